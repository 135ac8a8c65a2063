"""Has it carried out by which of its hubs a leaf is served, at the leaf and where it hangs.

What was decided last is on disk, so that after a restart nobody goes on where somebody else went on
in the meantime. Of a leaf the file's age says, to some seconds, until when its hub served it.

Source: docs/hubs.md; ``protocol.leaves.hub_choice``, ``protocol.routing.serving``.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from federator.config.settings import PortSettings, Settings
from federator.protocol.data.stamps import Stamps
from federator.protocol.effects import Pause, Proceed
from federator.protocol.events import HubChosen
from federator.protocol.leaves.hub_choice import Choice, HubChoice
from federator.protocol.messages.serving import Served, latest, served_record
from federator.protocol.node import Node
from federator.protocol.types import BrokerId, Now
from federator.runtime.data.data_path import DataPath
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms, wall_clock_us
from federator.runtime.storage.durable import write_whole

FILE: Final = "served"
TOUCH_GAP_MS: Final = 10_000
"""A gateway's disk is flash: a leaf that starts without its hub looks back so much further."""

_log = structlog.get_logger()


@dataclass(eq=False, repr=False)
class LeafServing:
    """Who serves this leaf, or the leaf that hangs here; nothing for an agent that is neither.

    Attributes:
        on_roaming: Called when the leaf that hangs here is heard to have another hub.
    """

    settings: Settings
    folder: Path
    node: Node
    path: DataPath
    stamps: Stamps
    handle: Callable[[HubChosen], None]

    def __post_init__(self) -> None:
        self.on_roaming: Callable[[], None] = lambda: None
        self._file = self.folder / FILE
        self._timer = DeadlineTimer(self._on_time)
        self._touched_ms = monotonic_ms()
        self._known = self._read()
        self.choice: HubChoice | None = None
        self._choose_among(self.settings)
        if isinstance(self.settings, PortSettings) and self._known is not None:
            leaf = BrokerId(self.settings.leaf.id)
            self.node.serving.resume(leaf, self._known)
            if self._known.hub != self.settings.broker_id:
                self.path.custody.pause(leaf)
            else:
                since_us = self._known.since_us
                self.path.custody.proceed(leaf, since_us, by_its_clock=True, resumes=True)

    def start(self) -> None:
        """Begin with what an earlier life knew."""
        if isinstance(self.settings, PortSettings) and self._known is not None:
            self._roams()

    def _choose_among(self, settings: Settings) -> None:
        if not settings.hubs:
            return
        until_us = 0
        with contextlib.suppress(OSError):
            until_us = self._file.stat().st_mtime_ns // 1_000
        self.choice = HubChoice(
            settings.hubs,
            self._now(),
            look_back_ms=settings.links.hello_timeout_ms,
            return_after_ms=1_000 * settings.links.return_after_s,
            served_by=None if self._known is None else self._known.hub,
            served_since_us=0 if self._known is None else self._known.since_us,
            served_until_us=until_us,
        )
        self.node.serving.wait(settings.hubs)
        self.path.custody.hold(settings.hubs)

    # What happens

    def on_neighbour(self, neighbour: BrokerId, up: bool) -> None:
        """A link came up, or was lost."""
        if self.choice is not None:
            self._follow(self.choice.on_link(neighbour, up, self._now()))

    def follow(self, settings: Settings) -> None:
        """Whoever operates this leaf reloads: return to the hub that it prefers now."""
        if self.choice is not None and settings.hubs:
            self.choice.prefer(settings.hubs)
            self._follow(self.choice.return_now(self._now()))

    def perform(self, effect: Pause | Proceed) -> None:
        """Exchange nothing with a broker, or exchange again, and remember it."""
        if isinstance(effect, Pause):
            self.path.custody.pause(effect.broker)
        else:
            self.path.custody.proceed(
                effect.broker,
                effect.since_us,
                by_its_clock=effect.by_its_clock,
                resumes=effect.resumes,
            )
        served = self.node.serving.served
        if isinstance(self.settings, PortSettings):
            served = self.node.serving.of(BrokerId(self.settings.leaf.id))
            self._roams()
        if served is not None and served != self._known:
            try:
                write_whole(self._file, served_record(served).encode())
                self._known = served
            except OSError as error:
                _log.warning("leaf.note_failed", reason=error.strerror or str(error))

    def snapshot(self) -> dict[str, Any] | None:
        """Of a leaf with two hubs: which serves; ``None`` of any other broker."""
        if self.choice is None:
            return None
        return {"served_by": self.choice.hub, "in_reserve": sorted(self.choice.others)}

    # Inside

    def _roams(self) -> None:
        if not self.stamps.stamping:
            self.stamps.stamping = True
            self.on_roaming()

    def _on_time(self) -> None:
        if self.choice is None:
            return
        self._follow(self.choice.on_time(self._now()))
        noted = self._known == self.node.serving.served
        if self.choice.is_served and noted and monotonic_ms() >= self._touched_ms + TOUCH_GAP_MS:
            self._touched_ms = monotonic_ms()
            with contextlib.suppress(OSError):
                os.utime(self._file)

    def _follow(self, choice: Choice | None) -> None:
        assert self.choice is not None, "only a leaf with two hubs chooses"
        if choice is not None:
            self.handle(HubChosen(choice.hub, self.choice.others, choice.since_us, choice.resumes))
        self._timer.set(self.choice.next_deadline_ms())

    def _read(self) -> Served | None:
        try:
            return latest([self._file.read_text(errors="replace").strip()])
        except OSError:
            return None

    def _now(self) -> Now:
        return Now(monotonic_ms(), wall_clock_us())
