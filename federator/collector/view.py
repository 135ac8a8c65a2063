"""What a collector tells when asked: how far every spool is, and what was in the way."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Final

from prometheus_client.core import Metric

from federator.collector.collector import Collector
from federator.collector.metrics import COLLECTOR, COUNTERS
from federator.runtime.exposition import families

LISTED_MAX: Final = 1_000
"""Spools in one answer."""

Answer = dict[str, object]


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
        counters = {row.attribute: 0 for row in COUNTERS}
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
        positions = list(islice(collector.collection.positions(), LISTED_MAX))
        sources = islice(collector.sources.values(), LISTED_MAX)
        return families(
            COLLECTOR,
            {
                **self.counters(),
                "http_refused": self.http_refused(),
                "ready": int(self.ready()[0]),
                "files": collector.landing.files,
                "bytes": collector.landing.bytes,
                "bytes_in_memory": collector.collection.bytes_held,
                "lag": {(str(p.key[0]), p.key[1]): p.lag for p in positions},
                "up": {(source.url,): int(source.link.subscribed) for source in sources},
            },
        )
