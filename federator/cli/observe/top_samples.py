"""The data of ``federator top``: snapshots of agents, and changes between two of them.

Rates come from counters, so a snapshot that was missed makes a longer interval, not a wrong figure;
an agent that restarted counts from 0 again.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, Self

from federator.cli.observe.status_page import StatusPage, status_page

HISTORY: Final = 120
"""Rates remembered, for the curves."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One agent at one moment."""

    at_s: float  # when; a monotonic clock
    status: Mapping[str, Any]  # its ``/status``
    page: StatusPage  # the same, as far as verbs know its parts

    @classmethod
    def of(cls, at_s: float, status: Mapping[str, Any]) -> Self:
        """The status of an agent, as it answered then. Raises ``LinkError``: it is none."""
        return cls(at_s, status, status_page(status))

    def value(self, path: str) -> float | None:
        """The number at ``path``, such as ``custody.gaps``; ``None`` when the agent has none.

        ``traffic.2.bytes_out`` is of the neighbour 2.
        """
        value: Any = self.status
        for name in path.split("."):
            if isinstance(value, list):
                value = {str(entry.get("neighbour")): entry for entry in value}
            value = value.get(name) if isinstance(value, dict) else None
        return None if value is None else float(value)

    def delays(self) -> tuple[Sequence[float], Sequence[float]]:
        """The upper bounds of the buckets, and the frames in each and beyond the last."""
        seconds = (self.status.get("delays") or {}).get("seconds") or {}
        return seconds.get("bounds", ()), seconds.get("counts", ())


@dataclass(slots=True)
class Watched:
    """The last two snapshots of one agent."""

    url: str  # where it is asked
    now: Snapshot | None = None  # the newest, none before the first and while it does not answer
    before: Snapshot | None = None  # the one before that
    trouble: str = "not asked yet"  # why there is no snapshot
    id: str | None = None  # of its broker, once it answered
    names: Mapping[str, Any] = field(default_factory=dict)  # of brokers by id, in its last answer
    # Publications a second, oldest first.
    published: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    delivered: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def take(self, snapshot: Snapshot) -> None:
        """Note what the agent answered."""
        self.before, self.now = self.now, snapshot
        page = snapshot.page
        self.trouble, self.id = "", "?" if page.id is None else str(page.id)
        self.names = page.names if isinstance(page.names, dict) else {}
        if self.before is not None:
            self.published.append(self.rate("counters.data.publications_in") or 0.0)
            self.delivered.append(self.rate("counters.data.delivered_publications") or 0.0)

    def miss(self, trouble: str) -> None:
        """Note that the agent did not answer."""
        self.before = self.now = None
        self.trouble = trouble
        self.published.append(0.0)
        self.delivered.append(0.0)

    @property
    def name(self) -> str:
        """The id of its broker, or where it should be, without what is so for most."""
        where = self.url.removeprefix("http://").removeprefix("127.0.0.1")
        return where if self.id is None else self.id

    @property
    def page(self) -> StatusPage:
        """The newest page; an empty one while the agent does not answer."""
        return StatusPage() if self.now is None else self.now.page

    def value(self, path: str) -> float | None:
        """As of the newest snapshot."""
        return None if self.now is None else self.now.value(path)

    def rate(self, *paths: str) -> float | None:
        """Growth of counters, together, a second; ``None`` before the second snapshot."""
        if self.now is None or self.before is None or self.now.at_s <= self.before.at_s:
            return None
        grown = sum(
            _growth(self.now.value(path) or 0.0, self.before.value(path) or 0.0) for path in paths
        )
        return grown / (self.now.at_s - self.before.at_s)

    def delay_s(self, quantile: float) -> float | None:
        """A quantile of the delays of frames delivered between the last two snapshots."""
        if self.now is None or self.before is None:
            return None
        bounds, now = self.now.delays()
        _, before = self.before.delays()
        grown = accumulate(map(_growth, now, before))
        return _quantile(list(zip((*bounds, float("inf")), grown, strict=False)), quantile)


def _growth(now: float, before: float) -> float:
    return now - before if now >= before else now


def _quantile(buckets: Sequence[tuple[float, float]], quantile: float) -> float | None:
    """A quantile as Prometheus reckons it: even within a bucket; the last one's lower bound."""
    total = buckets[-1][1] if buckets else 0.0
    if not total:
        return None
    rank, lower, below = quantile * total, 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (rank - below) / max(count - below, 1e-9)
        lower, below = bound, count
    return lower
