"""The collector as a process: its folder, its HTTP answers, and the signals that end it.

Source: docs/observability.md, "Collector".
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

import structlog

from federator.collector.collector import Collector
from federator.collector.landing import Landing
from federator.config.all_brokers.collector import CollectorSettings
from federator.runtime.process import service_manager
from federator.runtime.process.exposition import Family, families, table
from federator.runtime.process.http import AgentView
from federator.runtime.process.reloading import Reloader, Source, reload_requested
from federator.runtime.process.serving import http_page, run_to_end, stop_requested, with_tasks

LEAVE_S: Final = 10.0
"""Time limit for landing the rest at the end; what is not landed is requested again."""

_log = structlog.get_logger()

COLLECTOR: Final = table(
    "federator_collector",
    """
counter counters
  asked asks_sent Questions to agents.
  unanswered asks_unanswered Questions not answered to their end in time.
  stray answers_stray Answers that nobody asked for, or that came twice.
  malformed words_malformed Guides, heads and answers that are none, or not of who was asked.
  refused words_refused Guides, heads and answers that no agent's key has signed.
  no_room answers_dropped Answers dropped because the memory was full.
  landed_files landed_files Files landed.
  landed_bytes landed_bytes Bytes landed.
  lost batches_lost Batches that can never be had, landed as gaps.
  skipped batches_skipped Numbers of no batch: agents skip some when their machine started anew.
  misled connections_misled Connections behind which somebody else was than expected.
  land_failures land_failures Times that a file could not be written.
counter .
  http_refused http_connections_refused HTTP connections that gave way to others.
gauge .
  ready ready 1 when some broker can be read.
  files files Landed files.
  bytes files_bytes Bytes of landed files.
  bytes_in_memory memory_bytes Bytes not yet landed.
gauge spools[broker,spool] broker spool
  lag lag_batches Batches (seconds) that the spool has and that are not landed.
gauge brokers[url] url
  subscribed broker_up 1 when the broker can be asked.
""",
)
COUNTERS: Final = tuple(row.attribute for row in COLLECTOR if row.under == "counters")
"""By the names that they have in ``/status``."""

OF_READERS: Final = ("asked", "unanswered", "stray")
"""Counters that each reader of a spool has."""

LISTED_MAX: Final = 1_000
"""Spools in one answer."""

Answer = dict[str, object]


class CollectorView(AgentView):
    """Answers for one collector."""

    def __init__(self, collector: Collector) -> None:
        self.http_refused: Callable[[], int] = lambda: 0
        self._collector = collector

    def ready(self) -> tuple[bool, str]:
        """Whether anything can be read, and the reason if not."""
        why = self._collector.connections.why_none()
        return why is None, why or "ready"

    def counters(self) -> Mapping[str, int]:
        """Counters since the start, summed over all spools."""
        collector = self._collector
        counters = Counter(
            stray=collector.collection.stray,
            no_room=collector.collection.no_room,
            malformed=collector.connections.malformed,
            refused=collector.words.refused.total(),
            misled=collector.connections.misled,
            land_failures=collector.land_failures,
        )
        for position in collector.collection.positions():
            counters.update(position.counts)
            counters.update({name: getattr(position.reader, name) for name in OF_READERS})
        return {name: counters[name] for name in COUNTERS}

    def status(self) -> Answer:
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
                    "subscribed": source.link.subscribed,
                    "error": source.link.last_error,
                }
                for source in islice(collector.connections.by_url.values(), LISTED_MAX)
            ],
            "unreached": collector.connections.directory.unreached,
            "spools": list(self.routes()),
            "files": collector.landing.files,
            "bytes": collector.landing.bytes,
            "bytes_in_memory": collector.collection.bytes_held,
            "counters": self.counters(),
            "http_refused": self.http_refused(),
        }

    def routes(self) -> Iterable[Answer]:
        """One entry per spool; bounded."""
        return (
            {
                "broker": position.key[0],
                "spool": position.key[1],
                "first": position.reader.head_first,
                "last": position.reader.head_last,
                "taken": position.reader.taken,
                "landed": position.landed,
                "lag": position.lag,
                "lost": position.counts["lost"],
            }
            for position in islice(self._collector.collection.positions(), LISTED_MAX)
        )

    def metrics(self) -> Iterable[Family]:
        return families(COLLECTOR, self.status())


def serve(settings: CollectorSettings, source: Source[CollectorSettings]) -> None:
    """Collect until SIGTERM or SIGINT; ``source`` is read again at SIGHUP.

    Raises:
        ConfigError: The folder or the HTTP port is not available.
    """
    run_to_end(run(settings, source))


async def run(settings: CollectorSettings, source: Source[CollectorSettings]) -> None:
    """Collect as ``serve`` does, on the running loop."""
    stop = stop_requested(settings.notices())
    reloader = Reloader(settings, source, reload_requested())
    with Landing(settings.landing, sync=settings.files.sync) as landing:
        await with_tasks(
            lambda tasks: _collect(Collector(settings, landing, tasks), reloader, stop)
        )
        _log.info("collector.stopped", landing=str(settings.landing))


async def _collect(
    collector: Collector, reloader: Reloader[CollectorSettings], stop: asyncio.Event
) -> None:
    settings, landing = collector.settings, collector.landing
    view = CollectorView(collector)
    async with http_page(view, settings.http) as port:
        collector.start()
        _log.info(
            "collector.started",
            landing=str(landing.path),
            files=landing.files,
            spools=len(collector.collection.landed),
            leftovers=landing.leftovers,
            http_port=port,
        )
        links = lambda: [source.link for source in collector.connections.by_url.values()]  # noqa: E731
        async with (
            service_manager.told(view.ready, links) as reloading,
            reloader.following(reloading),
        ):
            await stop.wait()
        await collector.leave(patience_s=LEAVE_S)
