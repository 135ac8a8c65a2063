"""What a collector tells when asked: how far every spool is, and what was in the way."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from federator.collector.collector import Collector

LISTED_MAX: Final = 1_000
"""Spools in one answer."""

Answer = dict[str, object]

_COUNTERS: Final = {
    "asked": "Questions to agents.",
    "unanswered": "Questions not answered to their end in time.",
    "stray": "Answers that nobody asked for, or that came twice.",
    "malformed": "Guides, heads and answers that are none, or not of who was asked.",
    "no_room": "Answers dropped because the memory was full.",
    "landed_files": "Files landed.",
    "landed_bytes": "Bytes landed.",
    "lost": "Batches that can never be had, landed as gaps.",
    "skipped": "Numbers of no batch: agents skip some when their machine started anew.",
    "misled": "Connections behind which somebody else was than expected.",
    "land_failures": "Times that a file could not be written.",
}


class CollectorView:
    """Answers for one collector.

    Args:
        collector: Whom to look at.

    Attributes:
        http_refused: How many HTTP connections were refused; set by whoever listens.
    """

    def __init__(self, collector: Collector) -> None:
        self.http_refused: Callable[[], int] = lambda: 0
        self._collector = collector

    def ready(self) -> tuple[bool, str]:
        """Whether anything can be read, and otherwise why not."""
        sources = self._collector.sources.values()
        if any(source.link.subscribed for source in sources):
            return True, "ready"
        errors = [f"{source.url}: {source.link.last_error}" for source in sources]
        return False, f"no broker: {'; '.join(errors)[:200]}"

    def counters(self) -> Mapping[str, int]:
        """What happened since the start, of all spools together."""
        collector = self._collector
        counters = dict.fromkeys(_COUNTERS, 0)
        for position in collector.collection.positions():
            for name, value in asdict(position.counters).items():
                counters[name] += value
        for name, value in asdict(collector.collection.counters).items():
            counters[name] += value
        counters["malformed"] = collector.malformed
        counters["misled"] = collector.misled
        counters["land_failures"] = collector.land_failures
        return counters

    def status(self) -> Answer:
        """The whole state."""
        collector = self._collector
        ready, reason = self.ready()
        return {
            "federation": collector.settings.federation,
            "landing": str(collector.landing.path),
            "ready": ready,
            "ready_reason": reason,
            "brokers": [
                {
                    "url": source.url,
                    "id": source.broker,
                    "connected": source.link.connected,
                    "error": source.link.last_error,
                }
                for source in islice(collector.sources.values(), LISTED_MAX)
            ],
            "unreached": collector.directory.unreached,
            "spools": list(self.routes()),
            "files": collector.landing.files,
            "bytes": collector.landing.bytes,
            "bytes_in_memory": collector.collection.bytes_held,
            "counters": self.counters(),
        }

    def routes(self) -> Iterable[Answer]:
        """One entry per spool; bounded."""
        return (
            {
                "broker": position.key[0],
                "spool": position.key[1],
                "first": position.head_first,
                "last": position.head_last,
                "taken": position.taken,
                "landed": position.landed,
                "lag": position.lag,
                "lost": position.counters.lost,
            }
            for position in islice(self._collector.collection.positions(), LISTED_MAX)
        )

    def explain(self, topic: str) -> Answer:
        """Where publications go is the agents' to say."""
        return {"topic": topic, "text": "ask the agent of a broker: a collector routes nothing"}

    def controller(self) -> Answer:
        """Who is the controller is the agents' to say, too."""
        return {"enabled": False, "controller": None}

    def topology(self) -> Answer:
        """And so is the graph."""
        return {"mode": None, "brokers": [], "links": []}

    def metrics(self) -> Iterable[Metric]:
        """Counters and gauges."""
        collector = self._collector
        for name, value in self.counters().items():
            yield CounterMetricFamily(f"federator_collector_{name}", _COUNTERS[name], value=value)
        gauges: Mapping[str, tuple[str, float]] = {
            "files": ("Landed files.", collector.landing.files),
            "bytes": ("Of landed files.", collector.landing.bytes),
            "bytes_in_memory": ("Not yet landed.", collector.collection.bytes_held),
            "http_refused": ("HTTP connections beyond the limit.", self.http_refused()),
        }
        for name, (text, amount) in gauges.items():
            yield GaugeMetricFamily(f"federator_collector_{name}", text, value=amount)
        lag = GaugeMetricFamily(
            "federator_collector_lag_batches",
            "Batches (seconds) that the spool has and that are not landed.",
            labels=["broker", "spool"],
        )
        for position in islice(collector.collection.positions(), LISTED_MAX):
            lag.add_metric([str(position.key[0]), position.key[1]], position.lag)
        yield lag
        up = GaugeMetricFamily(
            "federator_collector_broker_up", "1 when the broker can be asked.", labels=["url"]
        )
        for source in islice(collector.sources.values(), LISTED_MAX):
            up.add_metric([source.url], source.link.subscribed)
        yield up
