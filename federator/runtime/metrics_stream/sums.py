"""The tape, added up: rows of deliveries, offered and arrived traffic, links and sampled hops.

Delays are kept as they are until the window ends, because the histogram is laid at the smallest.
So that a window of many frames stays small, its rows are written out early when it has seen
``DELAYS_MAX`` of them: two rows of one key say the same as one.

Source: docs/metrics.md.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from federator.protocol.forwarding import Forwarder
from federator.protocol.frames import CUSTODY_FLAG, REPAIR_FLAG, keys_in
from federator.protocol.metric_records import Arrived, Deliveries, Hops, Offered, Record, sketch
from federator.protocol.metric_records.sampling import is_sampled, salt_of
from federator.protocol.types import BrokerId
from federator.runtime.metrics_stream.tape import Came, Delivered, Line, Made, Refused, Sent

DELAYS_MAX: Final = 65_536
KEYS_MAX: Final = 16_384
"""Rows of one table in one window, and what is remembered between windows."""
HOPS_MAX: Final = 4_096

Row = tuple[type[Record], dict[str, Any]]


@dataclass(slots=True)
class Neighbour:
    """What one link carried in a window; names as in ``Links``."""

    frames_out: int = 0
    publications_out: int = 0
    bytes_out: int = 0
    frames_in: int = 0
    publications_in: int = 0
    bytes_in: int = 0
    duplicates: int = 0
    duplicate_publications: int = 0
    dropped: int = 0
    deferred: int = 0


@dataclass(slots=True)
class _Delivery:
    publications: int = 0
    bytes: int = 0
    frames: int = 0
    out_of_order: int = 0
    repaired: int = 0
    delays: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Filters:
    """What the keys of a frame stand for here."""

    all: tuple[str, ...]
    local: tuple[str, ...]
    strategy: str


class Sums:
    """One window's figures.

    Args:
        self_id: Our id.
        forwarder: Knows filters by their keys.
        strategy_of: How we ask for a filter.
        redundancy: Parents per core.
        sample: One frame in so many is told hop by hop; 0: none.

    Attributes:
        links: What each link carried.
        lost: Lines that found no room.
    """

    def __init__(
        self,
        *,
        self_id: BrokerId,
        forwarder: Forwarder,
        strategy_of: Callable[[str], str],
        redundancy: int,
        sample: int,
    ) -> None:
        self.links: defaultdict[BrokerId, Neighbour] = defaultdict(Neighbour)
        self.lost = 0
        self._self_id = self_id
        self._forwarder = forwarder
        self._strategy_of = strategy_of
        self._redundancy = redundancy
        self._sample = sample
        self._deliveries: dict[tuple[BrokerId, int, int, str], _Delivery] = {}
        self._offered: dict[tuple[str, int], list[int]] = {}
        self._arrived: dict[tuple[str, BrokerId, int], list[int]] = {}
        self._hops: list[dict[str, Any]] = []
        self._early: list[dict[str, Any]] = []
        self._delays = 0
        self._filters: dict[bytes, _Filters] = {}
        self._latest: dict[tuple[BrokerId, int], tuple[int, int]] = {}
        self._salts: dict[tuple[BrokerId, int], int] = {}

    def add(self, lines: Sequence[Line]) -> None:
        """Add up ``lines``."""
        self._filters.clear()  # they may have other routes by now
        for line in lines:
            if type(line) is Sent:
                link = self.links[line.neighbour]
                link.frames_out += 1
                link.publications_out += line.publications
                link.bytes_out += line.bytes
            elif type(line) is Came:
                self._came(line)
            elif type(line) is Delivered:
                self._delivered(line)
            elif type(line) is Made:
                self._made(line)
            elif type(line) is Refused:
                link = self.links[line.neighbour]
                if line.kept:
                    link.deferred += line.publications
                else:
                    link.dropped += line.publications

    def rows(self, *, at_us: int, window_ms: int) -> list[Row]:
        """What came together since this was last asked, but for the links."""
        when: dict[str, Any] = {"at_us": at_us, "window_ms": window_ms}
        self._write_deliveries()
        rows: list[Row] = [(Deliveries, when | fields) for fields in self._early]
        for (filter_, qos), (publications, bytes_) in self._offered.items():
            fields = {"filter": filter_, "qos": qos, "strategy": self._strategy_of(filter_)}
            fields |= {"publications": publications, "bytes": bytes_}
            rows.append((Offered, when | fields))
        for (filter_, origin, qos), (publications, bytes_) in self._arrived.items():
            fields = {"filter": filter_, "qos": qos, "strategy": self._strategy_of(filter_)}
            fields |= {"origin": origin, "publications": publications, "bytes": bytes_}
            rows.append((Arrived, when | fields))
        rows += [(Hops, fields) for fields in self._hops]
        self._early, self._offered, self._arrived, self._hops = [], {}, {}, []
        return rows

    def take_links(self) -> dict[BrokerId, Neighbour]:
        """What each link carried since this was last asked."""
        links, self.links = self.links, defaultdict(Neighbour)
        return links

    # Lines

    def _came(self, line: Came) -> None:
        link = self.links[line.sender]
        link.frames_in += 1
        link.publications_in += line.publications
        link.bytes_in += line.bytes
        if line.repeated:
            link.duplicates += 1
            link.duplicate_publications += line.publications
        elif self._is_sampled(line.origin, line.epoch, line.seq) and line.publications:
            self._hop(line, line.hops, line.sender, line.now_us)

    def _made(self, line: Made) -> None:
        qos = line.flags & CUSTODY_FLAG
        for filter_ in self._filters_of(line.keys).all:
            _add(self._offered, (filter_, qos), line.publications, line.bytes, self)
        if self._is_sampled(self._self_id, line.epoch, line.seq):
            self._hop(line, 0, None, line.time_us)

    def _delivered(self, line: Delivered) -> None:
        custody = line.flags & CUSTODY_FLAG
        count = line.publications
        filters = self._filters_of(line.keys)
        key = (line.origin, line.hops, custody, filters.strategy)
        known = self._deliveries.get(key)
        if known is None:
            if len(self._deliveries) >= KEYS_MAX:
                self._write_deliveries()
            known = self._deliveries[key] = _Delivery()
        known.publications += count
        known.bytes += line.bytes
        known.frames += 1
        if line.flags & REPAIR_FLAG:
            known.repaired += count
        if self._is_late(line.origin, custody, (line.epoch, line.seq)):
            known.out_of_order += count
        known.delays.append((line.delay_us, count))
        self._delays += 1
        if self._delays >= DELAYS_MAX:
            self._write_deliveries()
        for filter_ in filters.local:
            _add(self._arrived, (filter_, line.origin, custody), count, line.bytes, self)

    # Within

    def _is_late(self, origin: BrokerId, custody: int, number: tuple[int, int]) -> bool:
        latest = self._latest.get((origin, custody))
        if latest is not None and number < latest:
            return True
        if latest is None and len(self._latest) >= KEYS_MAX:
            self._latest.clear()
        self._latest[origin, custody] = number
        return False

    def _is_sampled(self, origin: BrokerId, epoch: int, seq: int) -> bool:
        salt = self._salts.get((origin, epoch))
        if salt is None:
            if len(self._salts) >= KEYS_MAX:
                self._salts.clear()
            salt = self._salts[origin, epoch] = salt_of(origin, epoch)
        return is_sampled(salt, seq, self._sample)

    def _hop(self, line: Came | Made, hop: int, sender: BrokerId | None, at_us: int) -> None:
        if len(self._hops) >= HOPS_MAX:
            self.lost += 1
            return
        custody = line.flags & CUSTODY_FLAG
        self._hops.append(
            {
                "at_us": at_us,
                "origin": line.origin if isinstance(line, Came) else self._self_id,
                "origin_epoch": line.epoch,
                "seq": line.seq,
                "custody": custody,
                "hop": hop,
                "sender": sender,
                "origin_time_us": line.origin_time_us if isinstance(line, Came) else at_us,
                "qos": custody,
            }
        )

    def _filters_of(self, keys: bytes) -> _Filters:
        """The filters that clients subscribe; what is between agents begins with ``$``."""
        found = self._filters.get(keys)
        if found is None:
            named = [f for key in keys_in(keys) for f in self._forwarder.filters_with(key)]
            all_ = tuple(f for f in named if not f.startswith("$"))
            routes = ((f, self._forwarder.route_of(f)) for f in all_)
            local = tuple(f for f, route in routes if route is not None and route.local)
            first = next(iter(local or all_), "")
            found = self._filters[keys] = _Filters(all_, local, self._strategy_of(first))
        return found

    def _write_deliveries(self) -> None:
        for (origin, hops, qos, strategy), made in self._deliveries.items():
            delays = sketch(made.delays)
            self._early.append(
                {
                    "origin": origin,
                    "hops": hops,
                    "qos": qos,
                    "strategy": strategy,
                    "redundancy": self._redundancy,
                    "publications": made.publications,
                    "bytes": made.bytes,
                    "frames": made.frames,
                    "out_of_order": made.out_of_order,
                    "repaired": made.repaired,
                    "base_us": delays.base_us,
                    "sum_us": delays.sum_us,
                    "min_us": delays.min_us,
                    "max_us": delays.max_us,
                    "delay": delays.buckets,
                }
            )
        self._deliveries = {}
        self._delays = 0


def _add(
    counts: dict[Any, list[int]], key: tuple[Any, ...], publications: int, bytes_: int, sums: Sums
) -> None:
    known = counts.get(key)
    if known is not None:
        known[0] += publications
        known[1] += bytes_
    elif len(counts) < KEYS_MAX:
        counts[key] = [publications, bytes_]
    else:
        sums.lost += 1
