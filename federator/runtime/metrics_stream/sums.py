"""The tape, added up: rows of deliveries, offered and arrived traffic, links and sampled hops.

Delays are kept as they are until the window ends, because the histogram is laid at the smallest.
So that a window of many frames stays small, its rows are written out early when it has seen
``DELAYS_MAX`` of them: two rows of one key say the same as one.

Source: docs/metrics.md.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

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

_K = TypeVar("_K", bound=Hashable)


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
class _Traffic:
    """Publications and bytes."""

    publications: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Group:
    """Deliveries with one key: the lines themselves, for they are added up when the row is made."""

    out_of_order: int = 0
    lines: list[Delivered] = field(default_factory=list)


@dataclass(slots=True)
class _Origin:
    """An origin's incarnation: where its sampling begins, and its latest numbers delivered."""

    salt: int
    latest: list[int] = field(default_factory=lambda: [-1, -1])  # plain, under custody


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
        self._groups: dict[tuple[BrokerId, int, int, str], _Group] = {}
        self._offered: dict[tuple[str, int], _Traffic] = {}
        self._arrived: dict[tuple[str, BrokerId, int], _Traffic] = {}
        self._hops: list[dict[str, Any]] = []
        self._early: list[dict[str, Any]] = []
        self._delays = 0
        self._origins: dict[tuple[BrokerId, int], _Origin] = {}
        # What frames alike are added to, while no route can have changed:
        self._made_to: dict[tuple[bytes, int], list[_Traffic]] = {}
        self._delivered_to: dict[
            tuple[BrokerId, int, bytes, int], tuple[_Group, list[_Traffic]]
        ] = {}

    def add(self, lines: Sequence[Line]) -> None:
        """Add up ``lines``."""
        self._made_to.clear()
        self._delivered_to.clear()
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
        for (filter_, qos), sum_ in self._offered.items():
            rows.append((Offered, when | self._traffic(filter_, qos, sum_)))
        for (filter_, origin, qos), sum_ in self._arrived.items():
            rows.append((Arrived, when | {"origin": origin} | self._traffic(filter_, qos, sum_)))
        rows += [(Hops, fields) for fields in self._hops]
        self._early, self._offered, self._arrived, self._hops = [], {}, {}, []
        self._made_to.clear()
        self._delivered_to.clear()
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
        elif self._sample and line.publications:
            origin = self._origin(line.origin, line.epoch)
            if is_sampled(origin.salt, line.seq, self._sample):
                self._hop(line, line.hops, line.sender, line.now_us)

    def _made(self, line: Made) -> None:
        sums = self._made_to.get((line.keys, line.flags))
        if sums is None:
            qos = line.flags & CUSTODY_FLAG
            filters = self._filters_of(line.keys).all
            sums = [_known(self._offered, (filter_, qos), self) for filter_ in filters]
            self._made_to[line.keys, line.flags] = sums
        for sum_ in sums:
            sum_.publications += line.publications
            sum_.bytes += line.bytes
        if self._sample:
            origin = self._origin(self._self_id, line.epoch)
            if is_sampled(origin.salt, line.seq, self._sample):
                self._hop(line, 0, None, line.time_us)

    def _delivered(self, line: Delivered) -> None:
        known = self._delivered_to.get((line.origin, line.hops, line.keys, line.flags))
        group, sums = known or self._where(line)
        group.lines.append(line)
        for sum_ in sums:
            sum_.publications += line.publications
            sum_.bytes += line.bytes
        latest = self._origin(line.origin, line.epoch).latest
        custody = line.flags & CUSTODY_FLAG
        if line.seq < latest[custody]:
            group.out_of_order += line.publications
        else:
            latest[custody] = line.seq
        self._delays += 1
        if self._delays >= DELAYS_MAX:
            self._write_deliveries()

    # Within

    def _where(self, line: Delivered) -> tuple[_Group, list[_Traffic]]:
        """What a line like this is added to."""
        custody = line.flags & CUSTODY_FLAG
        filters = self._filters_of(line.keys)
        key = (line.origin, line.hops, custody, filters.strategy)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= KEYS_MAX:
                self._write_deliveries()
            group = self._groups[key] = _Group()
        sums = [_known(self._arrived, (f, line.origin, custody), self) for f in filters.local]
        if len(self._delivered_to) >= KEYS_MAX:
            self._delivered_to.clear()
        self._delivered_to[line.origin, line.hops, line.keys, line.flags] = group, sums
        return group, sums

    def _origin(self, origin: BrokerId, epoch: int) -> _Origin:
        known = self._origins.get((origin, epoch))
        if known is None:
            if len(self._origins) >= KEYS_MAX:
                self._origins.clear()
            known = self._origins[origin, epoch] = _Origin(salt_of(origin, epoch))
        return known

    def _traffic(self, filter_: str, qos: int, sum_: _Traffic) -> dict[str, Any]:
        return {
            "filter": filter_,
            "qos": qos,
            "strategy": self._strategy_of(filter_),
            "publications": sum_.publications,
            "bytes": sum_.bytes,
        }

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
        named = [f for key in keys_in(keys) for f in self._forwarder.filters_with(key)]
        all_ = tuple(f for f in named if not f.startswith("$"))
        routes = ((f, self._forwarder.route_of(f)) for f in all_)
        local = tuple(f for f, route in routes if route is not None and route.local)
        return _Filters(all_, local, self._strategy_of(next(iter(local or all_), "")))

    def _write_deliveries(self) -> None:
        for (origin, hops, qos, strategy), group in self._groups.items():
            lines = group.lines
            delays = sketch((line.delay_us, line.publications) for line in lines)
            self._early.append(
                {
                    "origin": origin,
                    "hops": hops,
                    "qos": qos,
                    "strategy": strategy,
                    "redundancy": self._redundancy,
                    "publications": sum(line.publications for line in lines),
                    "bytes": sum(line.bytes for line in lines),
                    "frames": len(lines),
                    "out_of_order": group.out_of_order,
                    "repaired": sum(n.publications for n in lines if n.flags & REPAIR_FLAG),
                    "base_us": delays.base_us,
                    "sum_us": delays.sum_us,
                    "min_us": delays.min_us,
                    "max_us": delays.max_us,
                    "delay": delays.buckets,
                }
            )
        self._groups = {}
        self._delivered_to.clear()
        self._delays = 0


def _known(sums: dict[_K, _Traffic], key: _K, counting: Sums) -> _Traffic:
    """The sum for ``key``; one that nobody reads when there are too many."""
    known = sums.get(key)
    if known is None:
        known = _Traffic()
        if len(sums) < KEYS_MAX:
            sums[key] = known
        else:
            counting.lost += 1
    return known
