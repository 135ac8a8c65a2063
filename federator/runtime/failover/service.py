"""Failover at work: reports the state of our broker and its clients, and carries out orders.

Source: docs/protocol.md 15; ``protocol.controller`` decides.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import structlog

from federator.config.sections import AgentFailoverSettings
from federator.protocol.controller.duties import rounded
from federator.protocol.controller.own_rows import own_rows
from federator.protocol.discovery import ClientFlow
from federator.protocol.events import Event, RowsChanged, StatusChanged
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.messages.gateways import ReportedSession
from federator.protocol.messages.session_records import BrokerRecord, encode_record
from federator.runtime.discovery.service import Discovery
from federator.runtime.failover.guide_publisher import GuidePublisher
from federator.runtime.mqtt.parts import Part
from federator.runtime.process.clocks import DutyCycle, beat, monotonic_ms
from federator.runtime.storage.durable import write_whole

DRAINING_FILE = "draining"
LOAD_SMOOTHING = 0.2
"""Weight of each second's rate in the average: about five seconds count."""

_log = structlog.get_logger()


@dataclass(kw_only=True, eq=False, repr=False)
class FailoverService:
    """Feeds the node's ``failover`` machine."""

    settings: AgentFailoverSettings
    address: str  # where clients reach our broker
    folder: Path
    discovery: Discovery
    counters: DataCounters
    guide: GuidePublisher
    may_tell: Callable[[str], bool]  # whether a filter may be announced to the federation
    announced_records: Callable[[], AbstractSet[str]]  # those of our rows
    handle: Callable[[Event], None]

    def __post_init__(self) -> None:
        self._draining_path = self.folder / DRAINING_FILE
        self.draining = self._draining_path.exists()
        self.clients = 0  # connected to our broker at the last report
        self._interval_s = self.settings.report_interval_ms / 1_000
        self._seen = (-1, -1)
        self._load = 0.0
        self._publications = 0
        self._walking = DutyCycle()
        self._walk_again_s = 0.0
        self._status: BrokerRecord | None = None

    def part(self) -> Part:
        return Part(tasks={"failover": self.run})

    async def run(self) -> None:
        while True:
            await self.report()
            await beat(self._interval_s)

    async def report(self) -> None:
        """Report the state of our clients and our broker, once in ``report_interval_ms``."""
        self.guide.reports.on_deadline(now_ms=monotonic_ms())
        await self._report_rows()
        publications = self.counters.publications_in + self.counters.delivered_publications
        rate = (publications - self._publications) / self._interval_s
        self._publications = publications
        self._load += LOAD_SMOOTHING * (rate - self._load)
        self._publish_status()
        self.guide.refresh()

    def set_draining(self, drain: bool) -> None:
        """Apply an operator's order, and keep it over restarts."""
        if drain == self.draining:
            return
        self.draining = drain
        try:
            if drain:
                _log.info("drain.started")
                write_whole(self._draining_path, b"")
            else:
                _log.info("drain.ended")
                self._draining_path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("drain.not_saved", path=str(self._draining_path), why=error.strerror)
        self._publish_status()

    # Within

    async def _report_rows(self) -> None:
        seen = (self.discovery.known.table_revision, self.guide.reports.revision)
        if seen == self._seen or time.monotonic() < self._walk_again_s:
            return
        self._seen = seen
        with self._walking.working():
            clients = list(self.discovery.known.flow())
        rest_s = self._walking.rest_s
        self.clients = sum(client.connected for client in clients)
        change = RowsChanged(frozenset(), frozenset(self.announced_records()))
        if self.settings.report_sessions:
            sessions = list(self.guide.reports.sessions())
            # In a thread: for a client with 100,000 filters it takes a second.
            change = await asyncio.to_thread(self._walk_rows, clients, sessions)
            rest_s += self._walking.rest_s
        with self._walking.working():
            if change.added or change.removed:
                self.handle(change)
        self._walk_again_s = time.monotonic() + rest_s + self._walking.rest_s

    def _walk_rows(self, clients: list[ClientFlow], sessions: list[ReportedSession]) -> RowsChanged:
        """Compare row by row with the announced ones, without a second copy of those."""
        rows_max = self.settings.rows_max

        def texts() -> Iterator[str]:
            rows = own_rows(clients, sessions, may_tell=self.may_tell, rows_max=rows_max)
            return (text for row in rows if (text := encode_record(row)) is not None)

        with self._walking.working():
            announced, unchanged, added = self.announced_records(), 0, set[str]()
            for text in texts():
                if text in announced:
                    unchanged += 1
                else:
                    added.add(text)
            gone = (
                frozenset[str]()
                if unchanged == len(announced)
                else frozenset(announced - set(texts()))
            )
            return RowsChanged(frozenset(added), gone)

    def _publish_status(self) -> None:
        status = BrokerRecord(
            draining=self.draining,
            clients=rounded(self.clients),
            load=rounded(self._load),
            address=self.address,
        )
        if status != self._status:
            self._status = status
            self.handle(StatusChanged(status))
