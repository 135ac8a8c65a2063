"""What clients publish in a chunk, and how much of it arrives: one draw for all.

Readings come and go with the day, which is squeezed into the log when that is shorter. Now and then
a site has a burst. What cannot arrive is lost at QoS 0 and comes late at QoS 1.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lab.event_log.columns import Ints
from lab.event_log.layout import Layout
from lab.event_log.timeline import Chunk

Floats = NDArray[np.float64]

DAY_S = 86_400
NIGHT_SHARE = 0.35
"""The share of the rate at noon that is left at night."""

BURST_CHANCE, BURST_FACTOR = 0.004, 8.0
LOSS_QOS_0 = 2e-5
QOS_0 = 0


@dataclass(frozen=True, slots=True)
class Pairs:
    """All (stream, destination) of a phase that something can arrive over."""

    stream: Ints
    destination: Ints
    hops: Ints  # links on the way of the first copy
    way_us: Ints  # what the links on it take
    broken: NDArray[np.bool_]  # nothing arrives now


@dataclass(frozen=True, slots=True)
class Traffic:
    """Publications a second. ``published`` is by stream, ``received`` by pair."""

    pairs: Pairs
    published: Ints
    received: Ints
    load: Floats = field(repr=False)  # 1.0 at noon, by second


def origins(layout: Layout) -> Ints:
    return np.array([stream.origin for stream in layout.streams], dtype=np.int64)


def pairs_of(layout: Layout, chunk: Chunk) -> Pairs:
    rows: list[tuple[int, int, int, int, bool]] = []
    phase = chunk.phase
    for number, (stream, passage) in enumerate(zip(layout.streams, phase.passages, strict=True)):
        wanted = set(stream.destinations)
        rows += [
            (number, one.broker, one.hops, one.delay_us, False)
            for one in passage.reached
            if one.broker in wanted and one.broker in phase.act.alive
        ]
        rows += [
            (number, broker, 0, 0, True)
            for stream_number, broker in sorted(phase.broken)
            if stream_number == number and broker in wanted and broker in phase.act.alive
        ]
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    return Pairs(table[:, 0], table[:, 1], table[:, 2], table[:, 3], table[:, 4] > 0)


def draw(layout: Layout, chunk: Chunk, *, log_s: int, rng: Generator) -> Traffic:
    seconds = len(chunk.seconds)
    at_s = chunk.first_s + np.arange(seconds)
    turn = 2 * np.pi * at_s / min(log_s, DAY_S)
    load = NIGHT_SHARE + (1 - NIGHT_SHARE) * (1 - np.cos(turn)) / 2
    brokers = len(layout.ids)
    bursts = np.where(rng.random((brokers, seconds)) < BURST_CHANCE, BURST_FACTOR, 1.0)
    origin = origins(layout)
    per_s = np.array([stream.per_s for stream in layout.streams])
    alive = np.array([at in chunk.phase.act.alive for at in range(brokers)])
    rate = per_s[:, None] * load[None, :] * bursts[origin] * alive[origin][:, None]
    published = rng.poisson(rate)
    pairs = pairs_of(layout, chunk)
    qos = np.array([stream.qos for stream in layout.streams], dtype=np.int64)[pairs.stream]
    received = published[pairs.stream]
    lossy = np.where(pairs.broken, 1.0, np.where(qos == QOS_0, LOSS_QOS_0, 0.0))
    received = received - rng.binomial(received, lossy[:, None])
    return Traffic(pairs, published, received, load)


def delays(traffic: Traffic, layout: Layout, *, pair: Ints, second: Ints, rng: Generator) -> Ints:
    """The measured delay of single publications: links, agents, queues, and the clocks' difference.

    Args:
        pair: Over which pair each went.
        second: In which second of the chunk.
    """
    pairs = traffic.pairs
    hops = pairs.hops[pair]
    wait_us = rng.exponential(40.0, len(pair)) * (1 + hops) * (0.5 + traffic.load[second])
    wait_us *= np.where(rng.random(len(pair)) < 0.01, 12.0, 1.0)
    skew = np.array(layout.skew_us, dtype=np.int64)
    clocks_us = skew[pairs.destination[pair]] - skew[origins(layout)[pairs.stream[pair]]]
    return pairs.way_us[pair] + 150 * (1 + hops) + wait_us.astype(np.int64) + clocks_us
