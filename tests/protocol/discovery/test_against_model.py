"""Discovery beside a naive broker: random clients, hidden session expiry, crashes and gaps.

Safety, after every step: whatever any client subscribes to is wanted, or everything is. Liveness,
once the broker has counted in peace: what is wanted is exactly what is subscribed.

Newcomers in a gap hold more filters here than all other clients together: a gap in which equally
many subscriptions come and go cannot be told from one in which nothing happened
(docs/protocol.md 4).
"""

import random

import pytest

from federator.protocol.discovery.log_lines import ClientEvent
from federator.protocol.filters import without_share
from federator.protocol.types import Millis
from tests.protocol.discovery.harness import CONNECTED, PLAIN, SHARED, UPTIME, Driven
from tests.protocol.discovery.model_broker import ModelBroker

SEEDS = 300
STEPS = 150
UNHEARD = 100

PLAIN_NAMES = ["c1", "c2", "c3", "c4", "c5", "c6"]
NASTY_NAMES = [*PLAIN_NAMES, "c1 0 a", "c1 0 a 1 b", "c2 disconnected.", "c3 t/1", "c1 0"]
FILTERS = ["a", "b/+", "t/1", "a 0 t/1", "b 1 t/1", "x/#", "$share/g/a", "$share/g h/b", "a t/1"]
FILTERS += ["more/1", "more/2", "more/3"]


class World:
    """One broker, one agent, and the steps between them."""

    def __init__(self, seed: int, *, names: list[str]) -> None:
        self.rng = random.Random(seed)
        self.names = names
        self.broker = ModelBroker()
        self.agent = Driven(version=self.rng.choice(["2.0.11", "2.1.0", "2.1.2"]))
        self.uptime_s = 100
        self.counted = (-1, -1)

    def act(self) -> list[ClientEvent]:
        """Some client does something; what the broker logs of it."""
        broker, rng = self.broker, self.rng
        connected = sorted(id for id, s in broker.sessions.items() if s.connected)
        offline = sorted(id for id, s in broker.sessions.items() if not s.connected)
        match rng.randrange(10):
            case 0 | 1 | 2:
                protocol = rng.choice([3, 4, 5])
                expiry_s = rng.choice([0, 0, 100])
                return broker.connect(
                    rng.choice(self.names),
                    protocol=protocol,
                    clean=rng.random() < 0.6,
                    expiry_s=expiry_s,
                )
            case 3 | 4 | 5 if connected:
                return broker.subscribe(rng.choice(connected), rng.choice(FILTERS))
            case 6 | 7 if connected:
                return broker.unsubscribe(rng.choice(connected), rng.choice(FILTERS))
            case 8 if connected:
                return broker.disconnect(rng.choice(connected))
            case 9 if offline:
                return broker.expire(rng.choice(offline))
        return []

    def count(self) -> None:
        """The broker publishes its numbers where they have changed."""
        self.uptime_s += 10
        self.agent.sys(UPTIME, f"{self.uptime_s} seconds")
        self.agent.sys(CONNECTED, self.broker.connected + 1)
        now = (self.broker.count(shared=False) + self.agent.own, self.broker.count(shared=True))
        for topic, number, before in zip((PLAIN, SHARED), now, self.counted, strict=True):
            if number != before:
                self.agent.sys(topic, number)
        self.counted = now

    def gap(self) -> None:
        """The agent is away; the broker may restart, or some clients may come or go."""
        self.agent.down()
        if self.rng.random() < 0.5:
            self.broker.restart(persistence=self.rng.random() < 0.5)
            self.uptime_s = 0
        else:
            self.broker.connect("unheard", protocol=4, clean=False, expiry_s=0)
            for number in range(UNHEARD):
                self.broker.subscribe("unheard", f"unheard/{number}")
        self.agent.later(30_000)
        self.agent.up()
        self.counted = (-1, -1)  # our probe changes both

    def check_nothing_is_missed(self) -> None:
        wanted = {without_share(filter) for filter in self.broker.filters}
        assert "#" in self.agent.wanted or wanted <= self.agent.wanted

    def everybody_returns(self) -> None:
        """Clients reconnect and subscribe anew, then the broker counts."""
        for id in sorted(self.broker.sessions):
            filters = sorted(self.broker.sessions[id].filters)
            self.agent.log(*self.broker.connect(id, protocol=4, clean=True, expiry_s=0))
            for filter in filters:
                self.agent.log(*self.broker.subscribe(id, filter))
        self.count()
        self.agent.later(5_000)


def run(seed: int, *, names: list[str], gaps: bool) -> World:
    world = World(seed, names=names)
    for _ in range(world.rng.randrange(4)):  # older than the agent
        world.act()
    world.agent.up()
    world.check_nothing_is_missed()
    for _ in range(STEPS):
        match world.rng.randrange(30):
            case 0 | 1 | 2:
                world.count()
            case 3 if gaps:
                world.gap()
            case _:
                world.agent.log(*world.act())
                world.agent.later(Millis(world.rng.randrange(2_000)))
        world.check_nothing_is_missed()
    return world


@pytest.mark.parametrize("start", range(0, SEEDS, 100))
def test_nothing_is_missed_and_everything_settles(start: int):
    settled = 0
    for seed in range(start, start + 100):
        world = run(seed, names=PLAIN_NAMES, gaps=False)

        world.everybody_returns()

        assert world.agent.discovery.snapshot().trusted, seed
        assert world.agent.wanted == {without_share(f) for f in world.broker.filters}, seed
        settled += 1
    assert settled == 100


@pytest.mark.parametrize("start", range(0, SEEDS, 100))
def test_nothing_is_missed_with_nasty_names(start: int):
    ambiguous = 0
    for seed in range(start, start + 100):
        world = run(seed, names=NASTY_NAMES, gaps=False)
        ambiguous += world.agent.discovery.snapshot().ambiguous
    assert ambiguous > 100


@pytest.mark.parametrize("start", range(0, SEEDS, 100))
def test_nothing_is_missed_over_gaps_and_broker_restarts(start: int):
    trusted = 0
    for seed in range(start, start + 100):
        world = run(seed, names=PLAIN_NAMES, gaps=True)
        trusted += world.agent.discovery.snapshot().trusted
    assert trusted > 30, "trust does come back"
