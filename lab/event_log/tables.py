"""Every table of the stream, for one chunk."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.random import Generator

from federator.protocol.telemetry.records import FLOWS_MAX, MADE_WINDOW_US, flow_name
from lab.event_log import traffic
from lab.event_log.columns import Ints, Rows, sketch_rows, window_us
from lab.event_log.layout import Layout
from lab.event_log.story import REDUNDANCY, Change, Story
from lab.event_log.timeline import FIRST_EPOCH, START_US, Chunk
from lab.event_log.traffic import Traffic

FRAME_BYTES = 48
"""What a frame adds to its publications."""

SAMPLED = 1 / 256
"""The share of frames that leave a trace in ``hops``."""

CLIENTS_EVERY_S = 60
"""The interval at which test clients, beside the first broker, write what they measured."""

CAPACITIES = (None, 64_000, 2_000_000)
"""bit/s of links, in turn; of some nobody knows it."""


def tables_of(
    layout: Layout, story: Story, chunk: Chunk, *, log_s: int, seed: int
) -> dict[str, Rows]:
    """All rows of ``chunk``, drawn from ``seed`` and its number."""
    rng = np.random.default_rng([seed, chunk.number])
    drawn = traffic.draw(layout, chunk, log_s=log_s, rng=rng)
    data = _Data(layout, chunk, drawn, rng)
    return {
        "deliveries": data.deliveries(),
        "offered": data.offered(),
        "arrived": data.arrived(),
        "links": data.links(),
        "control": _control(layout, story, chunk),
        "announcements": _announcements(layout, story, chunk),
        "agents": data.agents(),
        "events": _events(layout, story, chunk),
        "hops": data.hops(),
        "clients": data.clients(),
        "wants": _wants(layout, chunk),
        "flows": data.flows(),
    }


class _Data:
    """The tables that follow from traffic."""

    def __init__(self, layout: Layout, chunk: Chunk, drawn: Traffic, rng: Generator) -> None:
        self.layout, self.chunk, self.drawn, self.rng = layout, chunk, drawn, rng
        self.seconds = len(chunk.seconds)
        streams = layout.streams
        self.origin = traffic.origins(layout)
        self.qos = np.array([stream.qos for stream in streams], dtype=np.int64)
        self.size = np.array([stream.size for stream in streams], dtype=np.int64)
        self.ids = np.array(layout.ids, dtype=np.int64)
        self.strategy = str(chunk.phase.act.strategy.value)

    def deliveries(self) -> Rows:
        pairs, received = self.drawn.pairs, self.drawn.received
        keys = np.stack(
            [pairs.destination, self.origin[pairs.stream], pairs.hops, self.qos[pairs.stream]]
        )
        groups, group_of = np.unique(keys, axis=1, return_inverse=True)
        total, cell_row, group, second = self._grouped(group_of, groups.shape[1], received)
        row, delay_us = self._delays(group_of, cell_row, received)
        sketched = sketch_rows(row, delay_us, len(total))
        size, *_ = self._grouped(
            group_of, groups.shape[1], received * self.size[pairs.stream][:, None]
        )
        late = self.rng.binomial(total, 0.0002)
        return Rows(
            groups[0][group],
            second,
            {
                "origin": self.ids[groups[1][group]],
                "hops": groups[2][group],
                "qos": groups[3][group],
                "strategy": [self.strategy] * len(total),
                "redundancy": [REDUNDANCY] * len(total),
                "publications": total,
                "bytes": size,
                "frames": total - self.rng.binomial(total - 1, 0.3),
                "out_of_order": late,
                "repaired": np.where(groups[3][group] > 0, late // 2, 0),
                **sketched,
            },
        )

    def offered(self) -> Rows:
        entries = [
            (number, filter_)
            for number, stream in enumerate(self.layout.streams)
            for filter_ in stream.filters
        ]
        stream, filter_ = np.array(entries, dtype=np.int64).T
        keys = np.stack([self.origin[stream], filter_, self.qos[stream]])
        return self._by_filter(keys, stream, self.drawn.published[stream], origin=False)

    def arrived(self) -> Rows:
        pairs, wanted = self.drawn.pairs, self.layout.wanted
        entries = [
            (pair, filter_)
            for pair, (stream, destination) in enumerate(
                zip(pairs.stream.tolist(), pairs.destination.tolist(), strict=True)
            )
            for filter_ in self.layout.streams[stream].filters
            if filter_ in wanted[destination]
        ]
        pair, filter_ = np.array(entries, dtype=np.int64).reshape(-1, 2).T
        stream = pairs.stream[pair]
        keys = np.stack([pairs.destination[pair], filter_, self.qos[stream], self.origin[stream]])
        return self._by_filter(keys, stream, self.drawn.received[pair], origin=True)

    def _by_filter(self, keys: Ints, stream: Ints, counts: Ints, *, origin: bool) -> Rows:
        groups, group_of = np.unique(keys, axis=1, return_inverse=True)
        total, _, group, second = self._grouped(group_of, groups.shape[1], counts)
        size, *_ = self._grouped(group_of, groups.shape[1], counts * self.size[stream][:, None])
        names = self.layout.filters
        own = {
            "filter": [names[at] for at in groups[1][group].tolist()],
            "qos": groups[2][group],
            "strategy": [self.strategy] * len(total),
            "publications": total,
            "bytes": size,
        }
        made_at = groups[3 if origin else 0][group]
        made_us = window_us(self.layout, self.chunk, made_at, second)
        own["made_us"] = made_us - made_us % MADE_WINDOW_US
        if origin:
            own["origin"] = self.ids[groups[3][group]]
        return Rows(groups[0][group], second, own)

    def _grouped(self, group_of: Ints, groups: int, counts: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Sums by group and second: (the sums above 0; the row of each cell; group; second)."""
        sums = np.zeros((groups, self.seconds), dtype=np.int64)
        np.add.at(sums, group_of.reshape(-1), counts)
        group, second = np.nonzero(sums)
        row = np.full(sums.shape, -1, dtype=np.int64)
        row[group, second] = np.arange(len(group))
        return sums[group, second], row, group, second

    def _delays(self, group_of: Ints, cell_row: Ints, received: Ints) -> tuple[Ints, Ints]:
        """The row and delay of each publication ``received`` by pair and second."""
        pair, second = np.nonzero(received)
        row = cell_row[group_of.reshape(-1)[pair], second]
        times = received[pair, second]
        pair, second, row = (np.repeat(one, times) for one in (pair, second, row))
        delay = traffic.delays(self.drawn, self.layout, pair=pair, second=second, rng=self.rng)
        return row, delay

    def links(self) -> Rows:
        """One row for each end of a link, while its agent runs."""
        arcs = self.layout.arcs
        position = {arc: at for at, arc in enumerate(arcs)}
        carries = np.zeros((len(arcs), len(self.layout.streams)), dtype=np.int64)
        again = np.zeros_like(carries)
        for number, passage in enumerate(self.chunk.phase.passages):
            carries[[position[arc] for arc in sorted(passage.arcs)], number] = 1
            again[[position[arc] for arc in sorted(passage.duplicates)], number] = 1
        published = self.drawn.published
        frames = published - self.rng.binomial(np.maximum(published - 1, 0), 0.3)
        sizes = published * self.size[:, None] + frames * FRAME_BYTES
        out = {
            "frames": carries @ frames, "publications": carries @ published,
            "bytes": carries @ sizes, "duplicates": again @ frames,
            "duplicate_publications": again @ published,
        }  # fmt: skip
        here = np.array([at for at, arc in enumerate(arcs) if arc[0] in self.chunk.phase.act.alive])
        back = np.array([position[arcs[at][1], arcs[at][0]] for at in here])
        arc, second = np.repeat(here, self.seconds), np.tile(np.arange(self.seconds), len(here))
        reverse = np.repeat(back, self.seconds)
        up = np.array([one in self.chunk.phase.act.up for one in arcs])
        delay_us = np.array(self.layout.arc_us, dtype=np.int64)
        noise = self.rng.exponential(200.0, len(arc)).astype(np.int64)
        own = {
            "neighbour": self.ids[[b for _, b in arcs]][arc],
            "up": up[arc].astype(np.int64),
            "cost": np.ones(len(arc), dtype=np.int64),
            "round_trip_us": 2 * delay_us[arc] + noise,
            "queue_bytes": self.rng.poisson(out["bytes"][arc, second] / 400),
            "capacity": [CAPACITIES[at % len(CAPACITIES)] for at in arc.tolist()],
        }
        for key in ("frames", "publications", "bytes"):
            own[f"{key}_out"] = out[key][arc, second]
            own[f"{key}_in"] = out[key][reverse, second]
        for key in ("duplicates", "duplicate_publications"):
            own[key] = out[key][reverse, second]
        for key in ("dropped", "deferred"):
            own[key] = np.zeros(len(arc), dtype=np.int64)
        return Rows(np.array([a for a, _ in arcs])[arc], second, own)

    def flows(self) -> Rows:
        """Of each origin and second the sets of filters that it published most for."""
        layout, published = self.layout, self.drawn.published
        names = [flow_name(layout.filters[at] for at in s.filters) for s in layout.streams]
        known = sorted(set(names))
        keys = np.stack([self.origin, np.array([known.index(name) for name in names])])
        groups, group_of = np.unique(keys, axis=1, return_inverse=True)
        count, *_ = self._grouped(group_of, groups.shape[1], published)
        sizes = published * self.size[:, None]
        size, _, group, second = self._grouped(group_of, groups.shape[1], sizes)
        cell = groups[0][group] * self.seconds + second
        order = np.lexsort((group, -size, cell))
        rank = np.arange(len(order)) - np.searchsorted(cell[order], cell[order])
        kept = order[rank < FLOWS_MAX]
        group, second, size, count = (one[kept] for one in (group, second, size, count))
        own = {
            "flow": [known[at] for at in groups[1][group].tolist()],
            "rate": 8 * size,
            "error": size,
            "publications_per_min": 60 * count,
            "destinations": group % 3,
            "planned": (group + second) % 2,
        }
        return Rows(groups[0][group], second, own)

    def agents(self) -> Rows:
        """One row for each agent that runs."""
        alive = np.array(sorted(self.chunk.phase.act.alive), dtype=np.int64)
        broker = np.repeat(alive, self.seconds)
        second = np.tile(np.arange(self.seconds), len(alive))
        brokers = len(self.layout.ids)
        taken = np.zeros((brokers, self.seconds), dtype=np.int64)
        np.add.at(taken, self.origin, self.drawn.published)
        given = np.zeros_like(taken)
        np.add.at(given, self.drawn.pairs.destination, self.drawn.received)
        taken, given = taken[broker, second], given[broker, second]
        degree = np.array([sum(1 for a, _ in self.layout.arcs if a == at) for at in range(brokers)])
        wanted = np.array([len(filters) for filters in self.layout.wanted])
        zeros = np.zeros(len(broker), dtype=np.int64)
        since = self.chunk.first_s + second
        own = {
            "clients": 20 + 3 * wanted[broker],
            "filters": np.full(len(broker), len(self.layout.filters)),
            "local_filters": wanted[broker],
            "publications_in": taken,
            "publications_out": taken,
            "delivered": given,
            "no_route": zeros, "dropped": zeros, "deferred": zeros,
            "custody_bytes": 4_096 + 130 * (taken // 3),
            "custody_gaps": zeros,
            "send_queue_bytes": self.rng.poisson(40, len(broker)),
            "cpu_us": 4_000 + 12 * (taken + given) + self.rng.poisson(900, len(broker)),
            "rss_bytes": 41_000_000 + 1_000 * np.minimum(since, 20_000),
            "loop_lag_us": self.rng.poisson(300, len(broker)),
            "broker_clients": 22 + 3 * wanted[broker],
            "broker_messages_in": 50 * since, "broker_messages_out": 70 * since,
            "broker_round_trip_us": 90 + self.rng.poisson(60, len(broker)),
            "strategy": [self.strategy] * len(broker),
            "redundancy": np.full(len(broker), REDUNDANCY),
            "link_count": degree[broker],
        }  # fmt: skip
        return Rows(broker, second, own)

    def hops(self) -> Rows:
        """The way of single frames, told by every agent on it."""
        counts = self.drawn.published
        number, second = np.nonzero(self.rng.random(counts.shape) < counts * SAMPLED)
        noise = self.rng.integers(50, 400, len(number)).tolist()
        start_us = window_us(self.layout, self.chunk, self.origin[number], second).tolist()
        rows = list(self._tell(number.tolist(), second.tolist(), start_us, noise))
        told = _told(rows, (
            "at_us", "origin", "origin_epoch", "seq", "custody", "hop", "sender",
            "origin_time_us", "qos",
        ))  # fmt: skip
        told.at_us = np.array(told.own.pop("at_us", ()), dtype=np.int64)
        return told

    def _tell(
        self, numbers: list[int], seconds: list[int], start_us: list[int], noise: list[int]
    ) -> Iterator[tuple[int | None, ...]]:
        layout, phase = self.layout, self.chunk.phase
        for number, second, made_us, wait_us in zip(numbers, seconds, start_us, noise, strict=True):
            stream = layout.streams[number]
            epoch = FIRST_EPOCH + phase.act.lives[stream.origin]
            seq = (self.chunk.first_s + second) * len(layout.streams) + number
            for one in phase.passages[number].reached:
                ahead_us = layout.skew_us[one.broker] - layout.skew_us[stream.origin]
                at_us = made_us + one.delay_us + wait_us * (one.hops + 1) + ahead_us
                sender = None if one.sender < 0 else int(layout.ids[one.sender])
                yield (
                    one.broker, second, at_us, int(layout.ids[stream.origin]), epoch, seq,
                    stream.qos, one.hops, sender, made_us, stream.qos,
                )  # fmt: skip

    def clients(self) -> Rows:
        """What test clients beside the first broker's publishers measured, now and then."""
        pairs, received = self.drawn.pairs, self.drawn.received
        keys = np.stack([pairs.destination, self.qos[pairs.stream]])
        own_pairs = self.origin[pairs.stream] == 0
        asked = received * own_pairs[:, None]
        asked = asked * (np.arange(self.seconds) % CLIENTS_EVERY_S == 0)
        groups, group_of = np.unique(keys, axis=1, return_inverse=True)
        total, cell_row, group, second = self._grouped(group_of, groups.shape[1], asked)
        if not len(total):
            return Rows(group, second, {})
        row, delay_us = self._delays(group_of, cell_row, asked)
        sketched = sketch_rows(row, delay_us, len(total))
        order = np.argsort(row, kind="stable")
        each = np.split(delay_us[order], np.cumsum(total)[:-1])
        return Rows(
            groups[0][group],
            second,
            {
                "publisher_broker": np.full(len(total), self.ids[0]),
                "destination": self.ids[groups[0][group]],
                "qos": groups[1][group],
                "strategy": [self.strategy] * len(total),
                "publications": total,
                "expected": total,
                **sketched,
                "delays_us": [",".join(map(str, one.tolist())) for one in each],
            },
        )


def _control(layout: Layout, story: Story, chunk: Chunk) -> Rows:
    rows = [
        (broker, at, layout.ids[neighbour], kind, direction, messages, size)
        for at, second in enumerate(chunk.seconds)
        for broker, neighbour, kind, direction, messages, size in story.control.get(second, ())
        if broker in chunk.phase.act.alive
    ]
    return _told(rows, ("neighbour", "kind", "direction", "messages", "bytes"))


def _announcements(layout: Layout, story: Story, chunk: Chunk) -> Rows:
    links = len(layout.arcs) // 2
    rows = [
        (core, at, count, links)
        for at, second in enumerate(chunk.seconds)
        for core, count in story.floods.get(second, ())
        if core in chunk.phase.act.alive
    ]
    return _told(rows, ("announcements", "links_known"))


def _wants(layout: Layout, chunk: Chunk) -> Rows:
    """What the clients of the living want, all the time; told once in a chunk."""
    since_us = START_US - MADE_WINDOW_US
    rows = [
        (broker, 0, layout.filters[filter_], since_us)
        for broker in sorted(chunk.phase.act.alive)
        for filter_ in sorted(layout.wanted[broker])
    ]
    return _told(rows, ("filter", "since_us"))


def _events(layout: Layout, story: Story, chunk: Chunk) -> Rows:
    if not chunk.fresh:
        return _told([], ())
    first, end = chunk.seconds[0], chunk.seconds[-1] + 1
    happened = [
        change
        for change in story.changes
        if first * 1_000 <= change.at_ms < end * 1_000 and change.broker in chunk.phase.act.alive
    ]
    rows = [_event(layout, change, change.at_ms // 1_000 - first) for change in happened]
    told = _told(rows, ("kind", "neighbour", "filter", "subject", "detail", "value"))
    skew = np.array(layout.skew_us, dtype=np.int64)[told.broker]
    at_ms = np.array([change.at_ms - first * 1_000 for change in happened], dtype=np.int64)
    told.at_us = START_US + chunk.first_s * 1_000_000 + at_ms * 1_000 + skew
    return told


def _event(layout: Layout, change: Change, second: int) -> tuple[object, ...]:
    neighbour = None if change.neighbour is None else int(layout.ids[change.neighbour])
    subject = None if change.subject is None else int(layout.ids[change.subject])
    return (
        change.broker, second, change.kind, neighbour, change.filter, subject, change.detail,
        change.value,
    )  # fmt: skip


def _told(rows: Sequence[tuple[object, ...]], names: tuple[str, ...]) -> Rows:
    if not rows:
        empty: Ints = np.zeros(0, dtype=np.int64)
        return Rows(empty, empty, {})
    columns = list(zip(*rows, strict=True))
    broker, second = (np.array(column, dtype=np.int64) for column in columns[:2])
    return Rows(broker, second, {name: list(columns[at]) for at, name in enumerate(names, start=2)})
