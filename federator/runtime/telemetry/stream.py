"""The metrics stream of one agent: aggregates, writes a batch a second, pushes it, answers asks.

A single thread does all disk access, so that a slow disk delays no publication. A batch is pushed
only once it is written: its number is then used for good.

Source: docs/metrics.md.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mqtt5 import QoS, TopicFilter

from federator.config.sections import MetricsSettings
from federator.protocol import effects as e
from federator.protocol.routing.mesh_event_log import MeshEntry
from federator.protocol.telemetry.frame_events import FrameEventBuffer
from federator.protocol.telemetry.records import Events, Row, Wants
from federator.protocol.telemetry.terms import Terms
from federator.runtime.mqtt import parts
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us
from federator.runtime.storage.durable import DiskTrouble
from federator.runtime.telemetry.replay import ReplayService
from federator.runtime.telemetry.spool import Batch, Part, Spool
from federator.runtime.telemetry.state import SYS_TOPICS, AgentState
from federator.runtime.telemetry.window_aggregator import WindowAggregator
from federator.runtime.trust.words import SignedWords

FOLD_S: Final = 0.1
"""Between two aggregations of frame events."""

EVENTS_MAX: Final = 2_048
"""In one window; further ones are only counted."""
DETAIL_CHARS_MAX: Final = 1_024

_WITH: Final = {"neighbour": "neighbour", "detail": "reason"}

NOTICES: Final = {
    "link.up": ("link_up", _WITH),
    "link.down": ("link_down", _WITH),
    "controller.changed": ("controller_changed", {"subject": "controller", "value": "before"}),
    "core.lost": ("core_lost", {"subject": "core", "detail": "reason"}),
    "epoch.renewed": ("epoch_renewed", {"value": "epoch"}),
    "id.conflict": ("id_conflict", {"value": "other_epoch"}),
}
"""Recorded notices of the node: the kind of event of each, and the detail that each field of the
event comes from."""

KINDS: Final = (
    *(kind for kind, _ in NOTICES.values()),
    "agent_started",
    "agent_stopped",
    "broker_up",
    "broker_down",
    "core_changed",
    "mesh_joined",
    "mesh_left",
    "parent_changed",
    "takeover",
    "takeover_ended",
    "draining",
    "spool_dropped",
    "spool_torn",
    "records_lost",
    "events_lost",
)
"""All kinds of events."""


class EventRecorder:
    """Changes of one window: effects of the node, events of meshes, and the agent's own."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._missed = 0

    def note(self, kind: str, **fields: int | str | None) -> None:
        """Record a change; ``fields`` as in ``Events``."""
        assert kind in KINDS, kind
        if len(self._rows) >= EVENTS_MAX:
            self._missed += 1
            return
        if isinstance(detail := fields.get("detail"), str):
            fields["detail"] = detail[:DETAIL_CHARS_MAX]
        self._rows.append({"at_us": wall_clock_us(), "kind": kind, **fields})

    def on_effect(self, effect: e.Effect) -> None:
        match effect:
            case e.Notice(name, _, details) if name in NOTICES:
                kind, detail_of = NOTICES[name]
                self.note(
                    kind, **{field: details.get(detail) for field, detail in detail_of.items()}
                )
            case e.StepIn(broker, _, sessions):
                self.note("takeover", subject=broker, value=len(sessions))
            case e.StepBack(broker):
                self.note("takeover_ended", subject=broker)
            case e.SetDraining(drain):
                self.note("draining", value=int(drain))
            case _:
                pass

    def on_mesh_events(self, entries: Iterable[MeshEntry], missed: int) -> None:
        self._missed += missed
        fields: dict[str, int | str | None]
        for entry in entries:
            match entry.kind:
                case "core_changed":
                    before = None if entry.before is None else f"from {entry.before}"
                    fields = {"filter": entry.filter, "detail": before}
                case "parent_changed":
                    parents = ", ".join(map(str, entry.parents)) or "none"
                    first = entry.parents[0] if entry.parents else None
                    fields = {"neighbour": first, "detail": parents, "value": len(entry.parents)}
                case _:
                    fields = {"filter": entry.filter}
            self.note(entry.kind, subject=entry.core, **fields)

    def rows(self) -> list[Row]:
        """All changes since the last call."""
        if self._missed:
            missed, self._missed = self._missed, 0
            self._rows.append({"at_us": wall_clock_us(), "kind": "events_lost", "value": missed})
        rows, self._rows = self._rows, []
        return [(Events, fields) for fields in rows]


@dataclass(kw_only=True, eq=False, repr=False)
class MetricsStream:
    """Records what one agent does.

    Raises:
        ConfigError: The spool cannot be used.
    """

    settings: MetricsSettings
    federation: str
    frame_events: FrameEventBuffer
    state: AgentState  # read at the end of each window
    link: MqttLink
    folder: Path
    words: SignedWords  # signs messages to readers, and verifies their asks

    def __post_init__(self) -> None:
        settings, state = self.settings, self.state
        self._links = links = state.node.links
        self.events = EventRecorder()
        self._terms = Terms()
        self._flush_s = settings.flush_ms / 1_000
        self._window = WindowAggregator(
            self_id=links.self_id,
            forwarder=state.data_path.forwarder,
            parameters=state.parameters,
            sample=settings.sample,
        )
        self.frame_events.on_full = self._fold
        self.spool = Spool(
            folder=self.folder,
            broker=links.self_id,
            bytes_max=settings.spool_bytes_max,
            segment_bytes_max=settings.segment_bytes_max,
            segment_age_ms=settings.segment_age_ms,
        )
        self.replay = ReplayService(
            link=self.link,
            federation=self.federation,
            broker=links.self_id,
            tables=settings.live,
            read=self._read,
            words=self.words,
        )
        self._disk = ThreadPoolExecutor(1, "metrics")
        self.trouble = DiskTrouble()
        self._flushing = asyncio.Lock()
        self._since = (wall_clock_us(), monotonic_ms())
        self._lag_s = 0.0
        self._lost = 0
        self.records_lost = 0  # for want of room, in memory or on disk, as far as reported
        self.events.note("agent_started", value=self._links.epoch)
        if self.spool.torn:
            self.events.note("spool_torn", value=self.spool.torn)

    def part(self) -> parts.Part:
        """The control connection subscribes the broker's counts, and asks."""
        counts = [TopicFilter(topic, max_qos=QoS.AT_MOST_ONCE) for topic in SYS_TOPICS]
        return parts.Part(
            subscriptions=[*counts, self.replay.subscription()],
            topics={
                **dict.fromkeys(SYS_TOPICS, self.state.on_sys),
                self.replay.topic: self.replay.on_ask,
            },
            tasks={"metrics stream": self.run, "metrics replay": self.replay.run},
            end=self.leave,
        )

    def on_interest(self, added: Iterable[str], removed: Iterable[str]) -> None:
        """Our clients want ``added`` from now on, and ``removed`` no longer."""
        self._terms.change(added, removed, now_us=wall_clock_us())

    def on_handled(self) -> None:
        """The node handled an event: record what it did to meshes."""
        entries, missed = self.state.node.meshes.event_log.take()
        if entries or missed:
            self.events.on_mesh_events(entries, missed)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._flush_s
        while True:
            look_s = min(due_s, loop.time() + FOLD_S)
            await asyncio.sleep(max(0.0, look_s - loop.time()))
            self._lag_s = max(self._lag_s, loop.time() - look_s)
            self._fold()
            if loop.time() >= due_s:
                due_s = max(due_s + self._flush_s, loop.time())
                async with self._flushing:
                    await self._flush()

    async def leave(self) -> None:
        """Write the rest as whole segments; nothing is written after this."""
        self.events.note("agent_stopped")
        self._fold()
        await self._flushing.acquire()  # for good: ``run`` goes on, and would begin a segment
        await self._flush()
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            await loop.run_in_executor(self._disk, self.spool.close)

    # Within

    async def _flush(self) -> None:
        """Write and push the rows since the last call."""
        rows = self._rows()
        shared = {"federation": self.federation, "epoch": int(self._links.epoch)}
        loop = asyncio.get_running_loop()
        batches, dropped, held, errors = await loop.run_in_executor(
            self._disk, self._write, rows, shared
        )
        if dropped:
            self.events.note("spool_dropped", value=dropped)
        for error in errors:
            self.trouble.on_error("metrics.spool_failed", error)
        if batches:
            self.replay.push(batches, self.spool.id, held, wall_clock_us())
        else:
            self._lost += len(rows)

    def _fold(self) -> None:
        self._window.add(self.frame_events.take())

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
        now_us = self._since[0]
        rows += [(Wants, {"at_us": now_us} | want) for want in self._terms.rows(now_us=now_us)]
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
