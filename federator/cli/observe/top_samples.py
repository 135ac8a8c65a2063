"""What ``federator top`` knows: snapshots of agents, and what changed between two of them.

A snapshot is the agent's ``/status`` and ``/metrics``. Rates come from counters, so a snapshot that
was missed makes a longer interval, not a wrong figure; an agent that restarted counts from 0 again.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

HISTORY: Final = 120
"""Rates remembered, for the curves."""

Labels = tuple[tuple[str, str], ...]
Samples = Mapping[tuple[str, Labels], float]


def parse(text: str) -> Samples:
    """An exposition as values by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One agent at one moment."""

    at_s: float  # when; a monotonic clock
    status: Mapping[str, Any]  # its ``/status``
    samples: Samples  # its ``/metrics``

    def value(self, name: str, **labels: str) -> float | None:
        """One value; ``None`` when the agent has none."""
        return self.samples.get((name, tuple(sorted(labels.items()))))


@dataclass(slots=True)
class Watched:
    """What is known of one agent."""

    url: str  # where it is asked
    now: Snapshot | None = None  # the newest, none before the first and while it does not answer
    before: Snapshot | None = None  # the one before that
    trouble: str = "not asked yet"  # why there is no snapshot
    id: str | None = None  # of its broker, once it was said
    names: Mapping[str, Any] = field(default_factory=dict)  # of brokers, as it told last, by id
    # Publications a second, oldest first.
    published: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    delivered: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def take(self, snapshot: Snapshot) -> None:
        """Note what the agent answered."""
        self.before, self.now = self.now, snapshot
        self.trouble, self.id = "", str(snapshot.status.get("id", "?"))
        names = snapshot.status.get("names")
        self.names = names if isinstance(names, dict) else {}
        if self.before is not None:
            self.published.append(self.rate("federator_publications_received_total") or 0.0)
            self.delivered.append(self.rate("federator_publications_delivered_total") or 0.0)

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

    def value(self, name: str, **labels: str) -> float | None:
        """The value of a metric in the newest snapshot."""
        return None if self.now is None else self.now.value(name, **labels)

    def rate(self, *names: str, **labels: str) -> float | None:
        """Growth of counters, together, a second; ``None`` before the second snapshot."""
        if self.now is None or self.before is None or self.now.at_s <= self.before.at_s:
            return None
        grown = 0.0
        for name in names:
            now, before = self.now.value(name, **labels), self.before.value(name, **labels)
            grown += _growth(now or 0.0, before or 0.0)
        return grown / (self.now.at_s - self.before.at_s)

    def delay_s(self, quantile: float) -> float | None:
        """A quantile of the delays of frames delivered between the last two snapshots."""
        if self.now is None or self.before is None:
            return None
        buckets = sorted(
            (float(labels[0][1]), value, self.before.samples.get((name, labels), 0.0))
            for (name, labels), value in self.now.samples.items()
            if name == "federator_delivery_delay_seconds_bucket"
        )
        return _quantile(
            [(bound, _growth(now, before)) for bound, now, before in buckets], quantile
        )


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
