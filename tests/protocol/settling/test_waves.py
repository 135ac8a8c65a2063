"""Whoever hears that its subscription is known everywhere misses nothing that is published then."""

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.effects import Send
from federator.protocol.events import Received
from federator.protocol.messages.codec import decode, encode
from federator.protocol.messages.control import Echo, Hello, Wave
from federator.protocol.parameters import Parameters, Strategy
from federator.protocol.settling.routes import SettledRoutes
from federator.protocol.settling.waves import (
    QUESTIONS_MAX,
    TIMEOUT_MS,
    WAVE_BYTES_MAX,
    WAVES_MAX,
    Question,
    Settling,
    Standing,
)
from tests.protocol.hostile import mutated
from tests.protocol.network import Network
from tests.transcripts import play, scenes

BOTH = pytest.mark.parametrize("strategy", list(Strategy))


class Host:
    """A node with settling beside it, as in an agent. Its broker acknowledges what it is asked."""

    def __init__(self, network, node):
        self.node = node
        self.covered = True
        self.needless = set()
        self.answers = []  # (at_ms, token, known)
        self._network = network
        self._routes = SettledRoutes(node)
        self._outbox = []
        self.settling = Settling(node.links.self_id, node.links.epoch, self._routes, self)

    def __getattr__(self, name):
        return getattr(self.node, name)

    def ask(self, *filters, token=1):
        now_ms = self._network.now_ms
        texts = tuple(map(self._routes.text, filters))
        question = Question("g", token, texts, now_ms + TIMEOUT_MS)
        self.settling.ask(question, now_ms=now_ms)
        self.flush()

    def flush(self):
        effects, self._outbox = self._outbox, []
        for effect in effects:
            if not self._is_lost(effect):
                self._network._perform(self.node.links.self_id, effect)
        due_ms = self.next_deadline_ms()
        if due_ms is not None:
            self._network.at(due_ms, self.node.links.self_id, None)

    def _is_lost(self, effect):
        if not isinstance(effect, Send) or isinstance(effect.message, Wave | Echo | Hello):
            return False
        here = self.node.links.self_id
        return (here, self._network._conns.get((here, effect.conn))) in self._network.lossy

    def handle(self, event, *, now_ms):
        effects = []
        match event:
            case Received(Wave() as wave):
                self.settling.on_wave(wave, now_ms=now_ms)
            case Received(Echo() as echo):
                self.settling.on_echo(echo, now_ms=now_ms)
            case None:
                self.settling.proceed(now_ms=now_ms)
            case _:
                before = set(self.node.links.up)
                effects = self.node.handle(event, now_ms=now_ms)
                self._outbox += effects
                for gone in before - set(self.node.links.up):
                    self.settling.on_link_down(gone, now_ms=now_ms)
                self.settling.proceed(now_ms=now_ms)
        self.flush()
        return []

    def next_deadline_ms(self):
        due = [self.node.next_deadline_ms()]
        due.append(self.settling.next_deadline_ms(self._network.now_ms))
        return min((each for each in due if each is not None), default=None)

    # what settling asks

    def neighbours(self):
        return list(self.node.links.up)

    def send(self, neighbour, message):
        self._outbox += self.node.links.send(neighbour, message)

    def standing(self, filter):
        if filter in self.needless:
            return Standing.NEEDLESS
        return Standing.ANNOUNCED if self._routes.is_told(filter) else Standing.UNHEARD

    def is_routed(self, filter, to):
        return self.covered and self._routes.leads(filter, to)

    def answer(self, question, *, known):
        self.answers.append((self._network.now_ms, question.token, known))


def federation(links, strategy, **options):
    network = Network(links, parameters=Parameters(strategy=strategy), **options)
    network.lossy = set()  # (sender, receiver) between whom announcements are lost
    network.nodes = {id: Host(network, node) for id, node in network.nodes.items()}
    network.run(2_000)
    return network


def reached(network, start, filter_="f"):
    """The brokers that a publication made now at ``start`` comes to, by the tables as they are."""
    seen, frontier = {start}, [start]
    while frontier:
        here = frontier.pop()
        route = network.routes.get((here, filter_))
        hops = set() if route is None else set(route.next_hops)
        ways = network.nodes[here].topic_routing.next_hops
        hops |= {ways[end] for end in (route.destinations if route else ()) if end in ways}
        for hop in hops - seen:
            seen.add(hop)
            frontier.append(hop)
    return seen


@st.composite
def stories(draw):
    size = draw(st.integers(2, 7))
    edges = {(draw(st.integers(0, n - 1)), n) for n in range(1, size)}
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    edges |= {(min(pair), max(pair)) for pair in draw(st.lists(pairs)) if pair[0] != pair[1]}
    delays = {edge: draw(st.sampled_from([1, 5, 40])) for edge in sorted(edges)}
    broker = st.integers(0, size - 1)
    return {
        "delays": delays,
        "asker": draw(broker),
        "others": draw(st.sets(broker, max_size=3)),
        "busy": draw(st.sets(broker)),
        "lossy": draw(st.sets(st.sampled_from(sorted(edges)), max_size=2)),
        "strategy": draw(st.sampled_from(Strategy)),
    }


@settings(max_examples=60, deadline=None)
@given(stories())
def test_what_is_published_after_the_answer_comes_wherever_it_is_published(story):
    """Brokers that are busy hold back what they say; what is lost is asked for, or repeated."""
    asker, delays = story["asker"], story["delays"]
    network = federation(delays, story["strategy"], delay_ms=delays)
    for other in sorted(story["others"] - {asker}):
        network.subscribe(other, "f")
    network.run(200)
    for at_ms in (0, 10, 15):
        for busy in sorted(story["busy"]):
            network.subscribe(busy, f"busy/{at_ms}")
        network.run(5)
    network.lossy = {way for a, b in story["lossy"] for way in ((a, b), (b, a))}
    network.subscribe(asker, "f")
    network.run(0)
    network.nodes[asker].ask("f")
    network.run(30)
    network.lossy = set()

    while not network.nodes[asker].answers:
        network.run(4)

    ((_, token, known),) = network.nodes[asker].answers
    assert token == 1
    assert known or story["lossy"]
    if known:
        assert all(asker in reached(network, start) for start in network.nodes)


class Stage:
    """A federation; links as ``1-2 2-3``, behind ``mesh`` or ``straight`` where that matters.

    ``uncovered 3``: broker 3 does not get what its clients publish, until ``covered``. ``lossy
    4-3``: announcements from 4 to 3 are lost; ``needless 1 f``: the federation need not know. Each
    command but ``run`` takes no time. Prints the answers to ``ask BROKER FILTER``, with the time
    they took in tenths of seconds, and after ``reached`` where a publication at a broker comes.
    """

    def __init__(self, strategy):
        self.strategy = strategy

    def do(self, command, *words):
        yield from getattr(self, f"_{command}")(*words) or ()
        for id, host in self.network.nodes.items():
            for at_ms, token, known in host.answers[self.told.get(id, 0) :]:
                took = (at_ms - self.asked[id, token]) // 100
                yield f"{id} hears {'yes' if known else 'no'} to {token} after {took}"
            self.told[id] = len(host.answers)

    def _links(self, *words):
        fixed = {"mesh": Strategy.MESH, "straight": Strategy.SHORTEST_PATH}
        strategy = next((fixed[word] for word in words if word in fixed), self.strategy)
        pairs = [tuple(map(int, word.split("-"))) for word in words if word not in fixed]
        self.network, self.told, self.asked = federation(pairs, strategy), {}, {}

    def _subscribe(self, broker, *filters):
        self.network.subscribe(int(broker), *filters)
        self.network.run(0)

    def _ask(self, broker, *filters):
        for filter_ in filters:
            token = len(self.asked) + 1
            self.asked[int(broker), token] = self.network.now_ms
            self.network.nodes[int(broker)].ask(filter_, token=token)

    def _run(self, ms):
        self.network.run(int(ms))

    def _covered(self, broker):
        self.network.nodes[int(broker)].covered = True

    def _uncovered(self, broker):
        self.network.nodes[int(broker)].covered = False

    def _needless(self, broker, filter_):
        host = self.network.nodes[int(broker)]
        host.needless = {filter_, host._routes.text(filter_)}

    def _cut(self, one, other):
        self.network.cut(int(one), int(other))

    def _lossy(self, *ways):
        self.network.lossy = {tuple(map(int, way.split("-"))) for way in ways}

    def _reached(self, *brokers):
        for broker in map(int, brokers):
            yield f"{broker} reaches {sorted(reached(self.network, broker))}"

    def _joins_again(self, broker, core):
        """It sends its membership to its parent anew."""
        memberships = self.network.nodes[int(broker)].meshes.memberships
        memberships.by_core[int(core)].informed.clear()
        for effect in memberships.on_core_moved(int(core), now_ms=self.network.now_ms):
            self.network._perform(int(broker), effect)

    def _idle(self):
        hosts = self.network.nodes.values()
        assert all(host.settling.next_deadline_ms(0) is None for host in hosts)

    def _waves(self):
        found = [m for *_, m in self.network.sent if isinstance(m, Wave | Echo)]
        self.network.sent.clear()
        yield f"{len({m.number for m in found})} waves, {len(found)} messages"


@BOTH
@scenes(Path(__file__).with_name("waves.txt"))
def test_transcript(path, number, strategy):
    play(path, number, Stage(strategy))


def test_too_much_is_refused_at_once():
    network = federation([(1, 2)], Strategy.MESH)
    host = network.nodes[1]

    host.ask("x" * 60_000, "y" * (WAVE_BYTES_MAX - 59_000))
    assert host.answers == [(network.now_ms, 1, False)]

    for token in range(QUESTIONS_MAX + 1):
        host.ask("never", token=token)
    assert host.answers[1:] == [(network.now_ms, QUESTIONS_MAX, False)]


def test_a_wave_from_long_ago_or_twice_changes_nothing():
    network = federation([(1, 2), (2, 3)], Strategy.SHORTEST_PATH)
    network.subscribe(1, "f")
    network.run(0)
    network.nodes[1].ask("f")
    network.run(200)
    waves = [
        m for _, sender, to, m in network.sent if isinstance(m, Wave) and (sender, to) == (1, 2)
    ]
    network.sent.clear()

    network.at(network.now_ms, 2, Received(waves[0]))
    network.at(network.now_ms, 2, Received(Echo(3, 1, waves[0].epoch, 99, None)))
    network.run(200)

    told = [m for *_, m in network.sent if isinstance(m, Wave | Echo)]
    assert [type(m) for m in told] == [Echo], "answered again, passed on to nobody"


def test_our_own_wave_that_comes_back_from_the_way_to_its_core_is_no_answer():
    network = federation([(1, 2), (2, 3)], Strategy.MESH)
    network.subscribe(1, "f")
    network.run(500)
    network.subscribe(3, "f")
    network.run(500)
    network.cut(1, 2)
    network.nodes[3].ask("f")
    network.run(0)
    (wave,) = {m for _, sender, _, m in network.sent if isinstance(m, Wave) and sender == 3}
    assert wave.core == 1

    back = msgspec.structs.replace(wave, sender=2)
    network.nodes[3].settling.on_wave(back, now_ms=network.now_ms)
    network.run(5)

    cores = {m.core for _, sender, _, m in network.sent if isinstance(m, Wave) and sender == 3}
    assert cores == {1}, "the wave to all begins when that to the core is answered"


def test_waves_of_any_kind_raise_nothing_and_are_bounded():
    network = federation([(1, 2), (2, 3)], Strategy.SHORTEST_PATH)
    network.subscribe(1, "f")
    network.run(500)
    rng = random.Random(1)
    samples = [
        Wave(1, 1, 1_001, 5, None, (("$fed/to/f", 1), ("g", 3))),
        Wave(3, 9, 1, 2**60, 2, (("f", 2),)),
        Wave(1, 2, 1_002, 1, None, (("$fed/inbox/1", 1),)),
        Echo(3, 2, 1_002, 1, None),
        Echo(1, 1, 1_001, 5, 7),
    ]
    payloads = [encode(each) for each in samples]
    understood = 0
    for number in range(8_000):
        try:
            message = decode("wave", mutated(rng, rng.choice(payloads)))
        except DecodeError:
            continue
        understood += 1
        network.nodes[2].handle(Received(message), now_ms=network.now_ms + number // 4)
    for number in range(2 * WAVES_MAX):
        wave = Wave(1, 10 + number, 1, 1, 2, (("f", 2),))
        network.nodes[2].handle(Received(wave), now_ms=network.now_ms + 10_000)

    assert understood > 200
    assert len(network.nodes[2].settling._waves) <= WAVES_MAX


class Counting:
    """Hears of nothing, and counts how often it is asked."""

    def __init__(self):
        self.looks = 0
        self.answers = []

    def neighbours(self):
        return [2]

    def send(self, neighbour, message): ...

    def standing(self, filter):
        self.looks += 1
        return Standing.UNHEARD

    def answer(self, question, *, known):
        self.answers.append((question.token, known))


def test_a_flood_of_questions_costs_what_it_is_long():
    context = Counting()
    settling = Settling(1, 1, None, context)

    for token in range(3_000):
        filters = tuple(f"nobody/{token}/{each}" for each in range(40))
        settling.ask(Question(f"g{token % 7}", token, filters, 2_000), now_ms=0)
    for now_ms in range(1, 1_000):
        settling.proceed(now_ms=now_ms)

    assert context.looks < 120_000
    assert settling.refused == 0
    settling.proceed(now_ms=2_000)
    assert sorted(context.answers) == [(token, False) for token in range(3_000)]


def test_one_gateway_leaves_room_for_others():
    context = Counting()
    settling = Settling(1, 1, None, context)
    long = ("x" * 60_000,)

    for token in range(100):
        settling.ask(Question("greedy", token, long, 2_000), now_ms=0)
    for token in range(100, 110):
        settling.ask(Question("modest", token, long, 2_000), now_ms=0)

    assert settling.refused == len(context.answers) == 83
    assert all(token < 100 for token, _ in context.answers)
