"""Who there is: brokers, links with their delays, what clients subscribe to and publish.

Every broker is a site. It publishes its own readings; a few filters are wanted by nearly everyone,
most by one or two (Zipf), and some topics match two filters.
"""

import random
from dataclasses import dataclass

from federator.protocol.types import BrokerId
from lab.sim import topologies
from lab.sim.plan import Link
from lab.sim.topics import topic_matches

KINDS = ("temperature", "power", "humidity", "door", "alarm")
"""What a site publishes, the busiest first."""

QOS = (0, 0, 0, 1, 1)
"""The QoS of each of ``KINDS``: readings may be lost, doors and alarms may not."""

ZIPF = 0.9
BUSIEST_PER_S = 6.0
BYTES_MIN, BYTES_MAX = 60, 400
LINK_US_MIN, LINK_US_MAX = 800, 12_000
SKEW_US = 37_000
"""The clock of one broker is so far ahead."""

BROKERS_MIN, BROKERS_MAX = 3, 200


@dataclass(frozen=True, slots=True)
class Stream:
    """One topic of one site."""

    origin: int
    topic: str
    qos: int
    per_s: float  # publications a second, in the mean
    size: int
    filters: tuple[int, ...]  # positions in ``Layout.filters`` that match and another broker wants
    destinations: tuple[int, ...]  # brokers, by position, that want it


@dataclass(frozen=True, slots=True)
class Layout:
    """A federation. Brokers stand by position 0.. here; ``ids`` gives their ids."""

    federation: str
    ids: tuple[BrokerId, ...]
    arcs: tuple[tuple[int, int], ...]  # both directions of every link, by position of (from, to)
    arc_us: tuple[int, ...]  # one-way delay of each
    filters: tuple[str, ...]
    wanted: tuple[frozenset[int], ...]  # filters of each broker's clients, by position
    streams: tuple[Stream, ...]
    skew_us: tuple[int, ...]  # how far ahead each broker's clock is
    phase_us: tuple[int, ...]  # when, within a second, each agent's windows start


def draw(brokers: int, *, seed: int, activity: float = 1.0) -> Layout:
    rng = random.Random(f"layout {brokers} {seed}")
    links = topologies.random_geometric(brokers, rng)
    arcs = tuple(sorted([*links, *((b, a) for a, b in links)]))
    delays = {link: rng.randint(LINK_US_MIN, LINK_US_MAX) for link in links}
    filters = _filters(brokers)
    wanted = _wanted(filters, brokers, rng)
    skewed = rng.randrange(brokers)
    return Layout(
        federation="simulated",
        ids=tuple(BrokerId(position + 1) for position in range(brokers)),
        arcs=arcs,
        arc_us=tuple(delays[_undirected(arc, delays)] for arc in arcs),
        filters=filters,
        wanted=wanted,
        streams=tuple(_streams(filters, wanted, rng, activity)),
        skew_us=tuple(SKEW_US if at == skewed else 0 for at in range(brokers)),
        phase_us=tuple(rng.randrange(1_000_000) for _ in range(brokers)),
    )


def _undirected(arc: tuple[int, int], links: dict[Link, int]) -> Link:
    a, b = BrokerId(arc[0]), BrokerId(arc[1])
    return (a, b) if (a, b) in links else (b, a)


def _filters(brokers: int) -> tuple[str, ...]:
    """Filters of all sites first, then of single ones: the order is that of popularity."""
    sites = [f"site/{site}/{part}" for part in (*KINDS[:2], "#") for site in range(brokers)]
    return ("site/+/alarm", "site/+/door", *sites)


def _wanted(
    filters: tuple[str, ...], brokers: int, rng: random.Random
) -> tuple[frozenset[int], ...]:
    wanted: list[set[int]] = [set() for _ in range(brokers)]
    ranks = list(range(2, len(filters)))
    rng.shuffle(ranks)
    for rank, position in enumerate([0, 1, *ranks], start=1):
        share = 0.6 / rank**ZIPF * len(filters) / 12
        for broker in rng.sample(range(brokers), max(1, min(brokers, round(brokers * share)))):
            wanted[broker].add(position)
    return tuple(frozenset(these) for these in wanted)


def _streams(
    filters: tuple[str, ...],
    wanted: tuple[frozenset[int], ...],
    rng: random.Random,
    activity: float,
) -> list[Stream]:
    streams = []
    for origin in range(len(wanted)):
        for rank, (kind, qos) in enumerate(zip(KINDS, QOS, strict=True), start=1):
            topic = f"site/{origin}/{kind}"
            fitting = [at for at, filter_ in enumerate(filters) if topic_matches(filter_, topic)]
            others = [broker for broker in range(len(wanted)) if broker != origin]
            asked = tuple(at for at in fitting if any(at in wanted[other] for other in others))
            if not asked:
                continue
            per_s = activity * BUSIEST_PER_S * rng.uniform(0.3, 1.7) / rank**ZIPF
            size = rng.randint(BYTES_MIN, BYTES_MAX)
            ends = tuple(other for other in others if not wanted[other].isdisjoint(asked))
            streams.append(Stream(origin, topic, qos, per_s, size, asked, ends))
    return streams
