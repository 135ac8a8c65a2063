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
from typing import TYPE_CHECKING, Any, Final

import structlog
from mqtt5 import PublishPacket, QoS, TopicFilter

from federator.config import MetricsSettings
from federator.protocol import effects as e
from federator.protocol.custody.disk_trouble import DiskTrouble
from federator.runtime.clocks import monotonic_ms, wall_clock_us
from federator.runtime.metrics_stream.echo import BrokerEcho
from federator.runtime.metrics_stream.happenings import Happenings
from federator.runtime.metrics_stream.live import LivePush
from federator.runtime.metrics_stream.peers import PeerTraffic
from federator.runtime.metrics_stream.replay import ReplayDesk
from federator.runtime.metrics_stream.spool import Batch, Limits, Part, Row, Spool
from federator.runtime.metrics_stream.state import SYS_TOPICS, AgentState
from federator.runtime.metrics_stream.sums import Sums
from federator.runtime.metrics_stream.tape import Tape

if TYPE_CHECKING:
    from federator.runtime.agent import Agent

FOLD_S: Final = 0.1
"""Between two looks at the tape."""

_log = structlog.get_logger()


class MetricsStream:
    """Records what one agent does.

    Args:
        agent: Whom to watch; everything but its data path need not be there yet.
        settings: ``[metrics]``.
        tape: What its data path writes on.
        folder: Where the spool is.

    Attributes:
        records_lost: Records that found no room, in memory or on disk, as far as told.

    Raises:
        ConfigError: The spool cannot be used.
    """

    def __init__(
        self, agent: "Agent", settings: MetricsSettings, *, tape: Tape, folder: Path
    ) -> None:
        parameters = agent.settings.parameters()
        self.happenings = Happenings(wall_clock_us)
        self.peers = PeerTraffic()
        self._agent = agent
        self._flush_s = settings.flush_ms / 1_000
        self._tape = tape
        self._sums = Sums(
            self_id=agent.settings.broker_id,
            forwarder=agent.forwarder,
            strategy_of=lambda filter_: parameters.strategy_of(filter_).value,
            redundancy=parameters.redundancy,
            sample=settings.sample,
        )
        tape.on_full = self._fold
        federation = agent.settings.federation
        self._echo = BrokerEcho(
            agent.control_link, federation=federation, broker=agent.settings.broker_id
        )
        self._state = AgentState(agent, self.peers, self._echo)
        limits = Limits(
            settings.spool_bytes_max, settings.segment_bytes_max, settings.segment_age_ms
        )
        self.spool = Spool(folder, broker=agent.settings.broker_id, limits=limits)
        self.live = LivePush(
            agent.control_link,
            federation=federation,
            broker=agent.settings.broker_id,
            tables=settings.live,
        )
        self.replay = ReplayDesk(agent.control_link, federation=federation, read=self._read)
        self._federation = federation
        self._disk = ThreadPoolExecutor(1, "metrics")
        self._trouble = DiskTrouble(e.Notice("metrics.spool_failed", "error"), _tell)
        self._flushing = asyncio.Lock()
        self._since = (wall_clock_us(), monotonic_ms())
        self._lag_s = 0.0
        self._called = False
        self._lost = 0
        self.records_lost = 0
        self.happenings.note("agent_started", value=agent.epoch)
        if self.spool.torn:
            self.happenings.note("spool_torn", value=self.spool.torn)

    @property
    def failures(self) -> int:
        """Times that the spool could not be written."""
        return self._trouble.failures

    def subscriptions(self) -> list[TopicFilter]:
        """What the control connection subscribes for us."""
        told = [TopicFilter(topic, max_qos=QoS.AT_MOST_ONCE) for topic in SYS_TOPICS]
        return [*told, self.replay.subscription(), self._echo.subscription()]

    def on_publish(self, packet: PublishPacket) -> None:
        """Something under ``$`` came on the control connection."""
        if packet.topic == self.replay.topic:
            self.replay.on_ask(packet.payload)
        elif packet.topic == self._echo.topic:
            self._echo.on_echo(packet.payload)
        else:
            self._state.on_sys(packet.topic, packet.payload)

    def on_handled(self) -> None:
        """The node saw an event: see what it did to meshes."""
        entries, missed = self._agent.node.meshes.diary.take()
        if entries or missed:
            self.happenings.on_diary(entries, missed)

    async def run(self) -> None:
        """Flush until cancelled."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._flush_s
        while True:
            look_s = min(due_s, loop.time() + FOLD_S)
            await asyncio.sleep(max(0.0, look_s - loop.time()))
            self._lag_s = max(self._lag_s, loop.time() - look_s)
            self._fold()
            if not self._called and loop.time() >= due_s - self._flush_s / 2:
                self._echo.call()  # between two flushes, when we are idle as clients are
                self._called = True
            if loop.time() >= due_s:
                self._called = False
                due_s = max(due_s + self._flush_s, loop.time())
                await self.flush()

    async def leave(self) -> None:
        """Write what there is, whole; nothing is written after this."""
        self.happenings.note("agent_stopped")
        self._fold()
        await self.flush()
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            await loop.run_in_executor(self._disk, self.spool.close)

    async def flush(self) -> None:
        """Write and tell what came together since the last time."""
        async with self._flushing:
            rows = self._rows()
            shared = {"federation": self._federation, "epoch": int(self._agent.epoch)}
            loop = asyncio.get_running_loop()
            batches, dropped, held, errors = await loop.run_in_executor(
                self._disk, self._write, rows, shared
            )
            if dropped:
                self.happenings.note("spool_dropped", value=dropped)
            for error in errors:
                self._trouble.on_error(error, monotonic_ms())
            if not batches and rows:
                self._lost += len(rows)
            if batches:
                self.live.push(batches, self.spool.id, held, wall_clock_us())

    # Within

    def _fold(self) -> None:
        self._sums.add(self._tape.take())

    def _rows(self) -> list[Row]:
        (at_us, at_ms), self._since = self._since, (wall_clock_us(), monotonic_ms())
        window_ms = max(1, self._since[1] - at_ms)
        lag_us, self._lag_s = int(self._lag_s * 1_000_000), 0.0
        lost, self._lost = self._lost + self._sums.lost, 0
        self._sums.lost = 0
        if lost:
            self.records_lost += lost
            self.happenings.note("records_lost", value=lost)
        when: dict[str, Any] = {"at_us": at_us, "window_ms": window_ms}
        rows = self._sums.rows(at_us=at_us, window_ms=window_ms)
        rows += self._state.rows(self._sums.take_links(), when, lag_us=lag_us)
        return rows + self.happenings.rows()

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


def _tell(notice: e.Notice) -> None:
    getattr(_log, notice.level)(notice.name, **notice.details)
