"""What counts as lost, twice or out of order, and what a dead broker is allowed to take along."""

import random
from dataclasses import asdict
from pathlib import Path

import pytest

from lab.chaos.layout import Layout, Subscriber, draw_layout, gathered, is_cut_vertex
from lab.chaos.ledger import Counts, Ledger
from lab.grid.topology import Grid
from tests.transcripts import play, scenes

TOPIC = "chaos/1/temp"


class Stage:
    """One publisher at broker 1, subscribers near at 2 and far at 3; every command takes 0.1 s.

    ``send`` is acknowledged by the publisher's broker, ``attempt`` is not. ``come 3`` is heard by
    both, and ``come 1-20 near`` is all these numbers. In a ``mixed`` story publications are of QoS
    1 and 2, and so are the subscribers: 1 near, 2 far. ``end`` counts: by fault what is not 0,
    then what is broken.
    """

    def __init__(self):
        self._begin()

    def do(self, command, *words):
        self.now_s += 0.1
        answer = getattr(self, f"_{command}")(*words)
        return [] if answer is None else answer

    def _begin(self, mixed=""):
        near = Subscriber("near", 2, "chaos/#")
        far = Subscriber("far", 3, "chaos/+/temp", qos=2 if mixed else 1)
        layout = Layout((1,), (2, 3), (), {TOPIC: 1}, (near, far))
        self.ledger, self.now_s = Ledger(layout, mixed=bool(mixed)), 1.0
        self._stands()
        self._back("1", "near", "far")

    def _stands(self):
        """The mesh: what comes from now on counts."""
        self.ledger.begin()

    def _wait(self, seconds):
        self.now_s += float(seconds)

    def _attempt(self):
        return [f"number {self.ledger.attempted(TOPIC, self.now_s)}"]

    def _send(self, times="1"):
        for _ in range(int(times)):
            number = self.ledger.attempted(TOPIC, self.now_s)
            self._acknowledge(number)

    def _acknowledge(self, number):
        self.ledger.acknowledged(TOPIC, int(number))

    def _resend(self, number):
        self.ledger.resent(TOPIC, int(number))

    def _come(self, numbers, *more, topic=TOPIC):
        first, _, last = numbers.partition("-")
        for name in {"near", "far"}.intersection(more) or ("near", "far"):
            for number in range(int(first), int(last or first) + 1):
                how = {"redelivery": "again" in more, "now_s": self.now_s}
                self.ledger.arrived(name, topic, number, **how)

    def _stray(self, topic, number):
        self.ledger.arrived("near", topic, int(number), redelivery=False, now_s=self.now_s)

    def _die(self, broker, *keeps):
        self.ledger.died(int(broker), self.now_s, keeps=bool(keeps))

    def _back(self, broker, *subscribers):
        self.ledger.returns(int(broker), self.now_s)
        self.now_s += 0.1
        for name in subscribers:
            self.ledger.subscribed(name, self.now_s)

    def _interrupt(self, broker, seconds):
        self.ledger.interrupted(int(broker), self.now_s)
        self._wait(seconds)
        self.ledger.goes_on(int(broker), self.now_s)

    def _fault(self, name):
        self.ledger.enter(name, self.now_s)

    def _abandon(self):
        self.ledger.give_up()

    def _behind(self):
        return [str(self.ledger.behind(self.now_s))]

    def _stalled(self, seconds):
        return self.ledger.stalled(self.now_s - float(seconds))

    def _end(self):
        for phase, counts in self.ledger.counts().items():
            found = {name: value for name, value in asdict(counts).items() if value}
            slowest_s = found.pop("slowest_s", 0.0)
            told = ", ".join(f"{name} {value}" for name, value in found.items())
            yield f"{phase}: {told}, slowest {slowest_s:.1f} s"
        for each in self.ledger.violations:
            yield f"{each.kind} {each.number} {each.where}"


@scenes(Path(__file__).parent / "ledger.txt")
def test_the_ledger_counts(path, number):
    play(path, number, Stage())


def test_at_one_qos_order_is_owed_to_subscribers_of_qos_2_too():
    layout = draw_layout(Grid(1, 2), random.Random(1), (2,))
    ledger, topic = Ledger(layout), next(iter(layout.topics))
    ledger.begin()
    for _ in range(2):
        ledger.attempted(topic, 1.0)
    for number in (1, 0):
        ledger.arrived(layout.subscribers[0].name, topic, number, redelivery=False, now_s=2.0)

    assert [each.kind for each in ledger.violations] == ["order"]


@pytest.mark.parametrize(
    ("qos", "broken"), [(0, {"twice", "unexpected"}), (1, {"lost", "twice", "order", "unexpected"})]
)
def test_loss_and_order_are_no_promises_at_qos_0(qos, broken):
    kinds = ("lost", "twice", "order", "unexpected", "spared_lost", "redelivered")

    assert {kind for kind in kinds if Counts(**{kind: 1}).broken(qos)} == broken


@pytest.mark.parametrize("rows", range(1, 5))
@pytest.mark.parametrize("columns", range(2, 5))
def test_every_role_is_there_and_relays_can_die_where_the_graph_allows(rows, columns):
    grid = Grid(rows, columns)
    for seed in range(10):
        layout = draw_layout(grid, random.Random(seed))

        assert layout.origins
        assert layout.destinations
        assert not set(layout.relays) & {*layout.origins, *layout.destinations}
        assert {*layout.relays, *layout.origins, *layout.destinations} == set(grid.ids)
        assert any(layout.topics[t] != s.broker for s, t in layout.pairs())
        if min(rows, columns) > 1:
            assert not any(is_cut_vertex(grid, here) for here in layout.relays)
        if len(grid.ids) >= 3:
            assert layout.relays


def test_of_mixed_qos_every_filter_has_a_subscriber_of_each():
    grid = Grid(2, 2)
    alike = draw_layout(grid, random.Random(3))

    mixed = draw_layout(grid, random.Random(3), (1, 2))

    wanted = [(s.broker, s.filter, qos) for s in alike.subscribers for qos in (1, 2)]
    assert [(s.broker, s.filter, s.qos) for s in mixed.subscribers] == wanted
    assert len({s.name for s in mixed.subscribers}) == len(wanted)


def test_a_gathered_layout_has_the_same_clients_at_one_broker():
    layout = draw_layout(Grid(3, 3), random.Random(3))

    alone = gathered(layout, 7)

    assert {pair[0].name for pair in alone.pairs()} == {pair[0].name for pair in layout.pairs()}
    assert len(alone.pairs()) == len(layout.pairs())
    assert {s.broker for s in alone.subscribers} | set(alone.topics.values()) == {7}
    assert (alone.origins, alone.destinations, alone.relays) == ((7,), (7,), ())
