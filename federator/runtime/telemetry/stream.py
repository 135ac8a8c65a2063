"""The metrics stream of one agent: adds up, writes a batch a second, tells it live, answers asks.

The disk is touched in one thread of its own, so that a slow one delays no publication. A batch is
told live only once it is written: its number is then taken for good.

Source: docs/metrics.md.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from mqtt5 import QoS, TopicFilter

from federator.config.sections import MetricsSettings
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.links.links import Links
from federator.protocol.parameters import Parameters
from federator.protocol.routing.mesh_event_log import MeshEventLog
from federator.protocol.telemetry.frame_events import FrameEventBuffer
from federator.protocol.telemetry.records import Row
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us
from federator.runtime.storage.disk_trouble import DiskTrouble
from federator.runtime.telemetry.events import EventRecorder
from federator.runtime.telemetry.replay import ReplayService
from federator.runtime.telemetry.spool import Batch, Limits, Part, Spool
from federator.runtime.telemetry.state import SYS_TOPICS, AgentState
from federator.runtime.telemetry.window_aggregator import WindowAggregator

FOLD_S: Final = 0.1
"""Between two times that frame events are added up."""


class MetricsStream:
    """Records what one agent does.

    Args:
        links: Our id and our epoch.
        state: Reads what the agent knows, at the end of each window.

    Attributes:
        replay: Tells of batches, and answers those who ask for them again.
        trouble: Counts and tells when the spool cannot be written.
        records_lost: Records that found no room, in memory or on disk, as far as told.

    Raises:
        ConfigError: The spool cannot be used.
    """

    def __init__(
        self,
        settings: MetricsSettings,
        *,
        federation: str,
        links: Links,
        parameters: Parameters,
        forwarder: Forwarder,
        mesh_events: MeshEventLog,
        frame_events: FrameEventBuffer,
        state: AgentState,
        link: MqttLink,
        folder: Path,
    ) -> None:
        self.events = EventRecorder()
        self._links = links
        self._mesh_events = mesh_events
        self._flush_s = settings.flush_ms / 1_000
        self._frame_events = frame_events
        self._window = WindowAggregator(
            self_id=links.self_id,
            forwarder=forwarder,
            parameters=parameters,
            sample=settings.sample,
        )
        frame_events.on_full = self._fold
        self.state = state
        limits = Limits(
            settings.spool_bytes_max, settings.segment_bytes_max, settings.segment_age_ms
        )
        self.spool = Spool(folder, broker=links.self_id, limits=limits)
        self.replay = ReplayService(
            link, federation=federation, broker=links.self_id, tables=settings.live, read=self._read
        )
        self._federation = federation
        self._disk = ThreadPoolExecutor(1, "metrics")
        self.trouble = DiskTrouble()
        self._flushing = asyncio.Lock()
        self._since = (wall_clock_us(), monotonic_ms())
        self._lag_s = 0.0
        self._lost = 0
        self.records_lost = 0
        self.events.note("agent_started", value=links.epoch)
        if self.spool.torn:
            self.events.note("spool_torn", value=self.spool.torn)

    def subscriptions(self) -> list[TopicFilter]:
        """What the control connection subscribes: the broker's counts, and asks."""
        told = [TopicFilter(topic, max_qos=QoS.AT_MOST_ONCE) for topic in SYS_TOPICS]
        return [*told, self.replay.subscription()]

    def on_handled(self) -> None:
        """The node saw an event: see what it did to meshes."""
        entries, missed = self._mesh_events.take()
        if entries or missed:
            self.events.on_mesh_events(entries, missed)

    async def run(self) -> None:
        """Flush until cancelled."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._flush_s
        while True:
            look_s = min(due_s, loop.time() + FOLD_S)
            await asyncio.sleep(max(0.0, look_s - loop.time()))
            self._lag_s = max(self._lag_s, loop.time() - look_s)
            self._fold()
            if loop.time() >= due_s:
                due_s = max(due_s + self._flush_s, loop.time())
                await self.flush()

    async def leave(self) -> None:
        """Write what there is, whole; nothing is written after this."""
        self.events.note("agent_stopped")
        self._fold()
        await self.flush()
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            await loop.run_in_executor(self._disk, self.spool.close)

    async def flush(self) -> None:
        """Write and tell what came together since the last time."""
        async with self._flushing:
            rows = self._rows()
            shared = {"federation": self._federation, "epoch": int(self._links.epoch)}
            loop = asyncio.get_running_loop()
            batches, dropped, held, errors = await loop.run_in_executor(
                self._disk, self._write, rows, shared
            )
            if dropped:
                self.events.note("spool_dropped", value=dropped)
            for error in errors:
                self.trouble.on_error("metrics.spool_failed", error)
            if not batches and rows:
                self._lost += len(rows)
            if batches:
                self.replay.push(batches, self.spool.id, held, wall_clock_us())

    # Within

    def _fold(self) -> None:
        self._window.add(self._frame_events.take())

    def _rows(self) -> list[Row]:
        (at_us, at_ms), self._since = self._since, (wall_clock_us(), monotonic_ms())
        window_ms = max(1, self._since[1] - at_ms)
        lag_us, self._lag_s = int(self._lag_s * 1_000_000), 0.0
        lost, self._lost = self._lost + self._window.lost, 0
        self._window.lost = 0
        if lost:
            self.records_lost += lost
            self.events.note("records_lost", value=lost)
        when: dict[str, Any] = {"at_us": at_us, "window_ms": window_ms}
        rows = self._window.rows(when)
        rows += self.state.rows(self._window.take_links(), when, lag_us=lag_us)
        return rows + self.events.rows()

    def _write(
        self, rows: Sequence[Row], shared: dict[str, Any]
    ) -> tuple[Sequence[Batch], int, tuple[int, int], list[OSError]]:
        """In the thread of the disk: batches written, dropped, what is held, what failed."""
        batches: Sequence[Batch] = []
        dropped = 0
        errors: list[OSError] = []
        try:
            batches = self.spool.write(rows, shared, now_ms=monotonic_ms())
        except OSError as error:
            errors.append(error)
        try:
            dropped = self.spool.tend(now_ms=monotonic_ms())
        except OSError as error:
            errors.append(error)
        return batches, dropped, self.spool.held(self.spool.id), errors

    async def _read(
        self, spool: str, first: int, last: int, bytes_max: int
    ) -> tuple[Part | None, tuple[int, int]]:
        def read() -> tuple[Part | None, tuple[int, int]]:
            part = self.spool.read(spool, first, last, bytes_max=bytes_max)
            return part, self.spool.held(spool)

        return await asyncio.get_running_loop().run_in_executor(self._disk, read)
