"""Frame events of one window, aggregated: rows of traffic, links and sampled hops.

Delays are kept unchanged until the window ends, because the histogram starts at the smallest. To
keep a window of many frames small, its rows are written out early when it has seen ``DELAYS_MAX``
of them: two rows of one key mean the same as one.

Source: docs/metrics.md.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.forwarding.frames import CUSTODY_FLAG, REPAIR_FLAG, keys_in
from federator.protocol.parameters import Parameters
from federator.protocol.telemetry import records
from federator.protocol.telemetry.frame_events import (
    Came,
    Delivered,
    FrameEvent,
    Made,
    Refused,
    Sent,
)
from federator.protocol.telemetry.records import MADE_WINDOW_US, Row, is_sampled, salt_of
from federator.protocol.telemetry.sketch import sketch
from federator.protocol.types import BrokerId

DELAYS_MAX: Final = 65_536
KEYS_MAX: Final = 16_384
"""Rows of one table in one window, and entries remembered between windows."""
HOPS_MAX: Final = 4_096
DELAY_US_MAX: Final = 86_400_000_000
"""If a frame is dated further in the past or future, we do not believe its time."""

_K = TypeVar("_K", bound=Hashable)


@dataclass(slots=True)
class _Traffic:
    """Publications and bytes."""

    publications: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Group:
    """Deliveries of one key: the events themselves, aggregated only when the row is made."""

    out_of_order: int = 0
    events: list[Delivered] = field(default_factory=list)


@dataclass(kw_only=True, eq=False, repr=False)
class WindowAggregator:
    """The figures of one window."""

    self_id: BrokerId
    forwarder: Forwarder
    parameters: Parameters
    sample: int  # one frame in so many is recorded hop by hop; 0: none

    def __post_init__(self) -> None:
        self.links: defaultdict[BrokerId, Counter[str]] = defaultdict(Counter)
        self.lost = 0  # events that found no room
        self._groups: dict[tuple[BrokerId, int, int, str], _Group] = {}
        self._offered: dict[tuple[str, int, int | None], _Traffic] = {}
        self._arrived: dict[tuple[str, BrokerId, int, int | None], _Traffic] = {}
        self._hops: list[dict[str, Any]] = []
        self._early: list[dict[str, Any]] = []
        self._delays = 0
        # The latest number delivered of each origin's incarnation, without and with custody.
        self._latest: dict[tuple[BrokerId, int, int], int] = {}
        # The totals that equal frames add to, while no route can have changed.
        self._made_to: dict[tuple[bytes, int, int | None], list[_Traffic]] = {}
        self._delivered_to: dict[
            tuple[BrokerId, int, bytes, int, int | None], tuple[_Group, list[_Traffic]]
        ] = {}

    def add(self, events: Sequence[FrameEvent]) -> None:
        self._made_to.clear()
        self._delivered_to.clear()
        for event in events:
            if type(event) is Sent:
                link = self.links[event.neighbour]
                link["frames_out"] += 1
                link["publications_out"] += event.publications
                link["bytes_out"] += event.bytes
            elif type(event) is Came:
                self._came(event)
            elif type(event) is Delivered:
                self._delivered(event)
            elif type(event) is Made:
                self._made(event)
            elif type(event) is Refused:
                link = self.links[event.neighbour]
                if event.kept:
                    link["deferred"] += event.publications
                else:
                    link["dropped"] += event.publications

    def rows(self, when: dict[str, Any]) -> list[Row]:
        """The rows since the last call, except for the links.

        ``when``: ``at_us`` and ``window_ms``.
        """
        self._write_deliveries()
        rows: list[Row] = [(records.Deliveries, when | fields) for fields in self._early]
        for (filter_, qos, made_us), total in self._offered.items():
            rows.append((records.Offered, when | self._traffic(filter_, qos, made_us, total)))
        for (filter_, origin, qos, made_us), total in self._arrived.items():
            fields = {"origin": origin} | self._traffic(filter_, qos, made_us, total)
            rows.append((records.Arrived, when | fields))
        rows += [(records.Hops, fields) for fields in self._hops]
        self._early, self._offered, self._arrived, self._hops = [], {}, {}, []
        self._made_to.clear()
        self._delivered_to.clear()
        return rows

    def take_links(self) -> dict[BrokerId, Counter[str]]:
        """What each link carried since the last call; names as in ``records.Links``."""
        links, self.links = self.links, defaultdict(Counter)
        return links

    # Events

    def _came(self, event: Came) -> None:
        link = self.links[event.sender]
        link["frames_in"] += 1
        link["publications_in"] += event.publications
        link["bytes_in"] += event.bytes
        if event.repeated:
            link["duplicates"] += 1
            link["duplicate_publications"] += event.publications
        elif event.publications:
            self._hop(event, event.hops, event.sender, event.now_us)

    def _made(self, event: Made) -> None:
        made_us = _window_of(event.time_us)
        totals = self._made_to.get((event.keys, event.flags, made_us))
        if totals is None:
            qos = event.flags & CUSTODY_FLAG
            filters, _, _ = self._filters_of(event.keys)
            totals = [_known(self._offered, (filter_, qos, made_us), self) for filter_ in filters]
            self._made_to[event.keys, event.flags, made_us] = totals
        for total in totals:
            total.publications += event.publications
            total.bytes += event.bytes
        self._hop(event, 0, None, event.time_us)

    def _delivered(self, event: Delivered) -> None:
        plausible = abs(event.delay_us) <= DELAY_US_MAX
        made_us = _window_of(event.origin_time_us) if plausible else None
        alike = (event.origin, event.hops, event.keys, event.flags, made_us)
        group, totals = self._delivered_to.get(alike) or self._where(event, made_us)
        group.events.append(event)
        for total in totals:
            total.publications += event.publications
            total.bytes += event.bytes
        chain = (event.origin, event.epoch, event.flags & CUSTODY_FLAG)
        if event.seq < self._latest.get(chain, -1):
            group.out_of_order += event.publications
        else:
            if chain not in self._latest and len(self._latest) >= KEYS_MAX:
                self._latest.clear()
            self._latest[chain] = event.seq
        self._delays += 1
        if self._delays >= DELAYS_MAX:
            self._write_deliveries()

    # Within

    def _where(self, event: Delivered, made_us: int | None) -> tuple[_Group, list[_Traffic]]:
        """The group and the totals for events like this one."""
        custody = event.flags & CUSTODY_FLAG
        _, local, strategy = self._filters_of(event.keys)
        key = (event.origin, event.hops, custody, strategy)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= KEYS_MAX:
                self._write_deliveries()
            group = self._groups[key] = _Group()
        totals = [_known(self._arrived, (f, event.origin, custody, made_us), self) for f in local]
        if len(self._delivered_to) >= KEYS_MAX:
            self._delivered_to.clear()
        alike = (event.origin, event.hops, event.keys, event.flags, made_us)
        self._delivered_to[alike] = group, totals
        return group, totals

    def _traffic(
        self, filter_: str, qos: int, made_us: int | None, total: _Traffic
    ) -> dict[str, Any]:
        return {
            "filter": filter_,
            "qos": qos,
            "strategy": self.parameters.strategy_of(filter_).value,
            "publications": total.publications,
            "bytes": total.bytes,
            "made_us": made_us,
        }

    def _hop(self, event: Came | Made, hop: int, sender: BrokerId | None, at_us: int) -> None:
        """Record the frame here, if it is a sample."""
        origin = event.origin if isinstance(event, Came) else self.self_id
        if not self.sample:
            return
        if not is_sampled(salt_of(origin, event.epoch), event.seq, self.sample):
            return
        if len(self._hops) >= HOPS_MAX:
            self.lost += 1
            return
        custody = event.flags & CUSTODY_FLAG
        self._hops.append(
            {
                "at_us": at_us,
                "origin": origin,
                "origin_epoch": event.epoch,
                "seq": event.seq,
                "custody": custody,
                "hop": hop,
                "sender": sender,
                "origin_time_us": event.origin_time_us if isinstance(event, Came) else at_us,
                "qos": custody,
            }
        )

    def _filters_of(self, keys: bytes) -> tuple[list[str], list[str], str]:
        """The filters behind ``keys``, those of them that are local, and the strategy of the first.

        Filters that begin with ``$`` are between agents, and left out.
        """
        named = [f for key in keys_in(keys) for f in self.forwarder.filters_with(key)]
        all_ = [f for f in named if not f.startswith("$")]
        routes = ((f, self.forwarder.route_of(f)) for f in all_)
        local = [f for f, route in routes if route is not None and route.local]
        first = next(iter(local or all_), "")
        return all_, local, self.parameters.strategy_of(first).value

    def _write_deliveries(self) -> None:
        for (origin, hops, qos, strategy), group in self._groups.items():
            events = group.events
            delays = sketch((event.delay_us, event.publications) for event in events)
            self._early.append(
                {
                    "origin": origin,
                    "hops": hops,
                    "qos": qos,
                    "strategy": strategy,
                    "redundancy": self.parameters.redundancy,
                    "publications": sum(event.publications for event in events),
                    "bytes": sum(event.bytes for event in events),
                    "frames": len(events),
                    "out_of_order": group.out_of_order,
                    "repaired": sum(n.publications for n in events if n.flags & REPAIR_FLAG),
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


def _window_of(time_us: int) -> int:
    return max(0, time_us - time_us % MADE_WINDOW_US)


def _known(totals: dict[_K, _Traffic], key: _K, window: WindowAggregator) -> _Traffic:
    """The total of ``key``; beyond the bound a fresh one that is discarded."""
    total = totals.get(key)
    if total is None:
        total = _Traffic()
        if len(totals) < KEYS_MAX:
            totals[key] = total
        else:
            window.lost += 1
    return total
