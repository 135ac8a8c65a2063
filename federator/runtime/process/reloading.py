"""``SIGHUP``: a daemon reads its configuration again, and applies what may change while it runs.

All or nothing: the configuration is checked as at the start, in a thread, and only then applied, in
one turn of the loop. A file that cannot be used is logged in one line, and changes nothing. Changes
that need a restart wait for one, and are logged.

However many signals come, one reading is in progress, and the next starts no sooner than ``GAP_S``
after it. The last signal always counts: a file that changed while it was read is read once more.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from federator.config.section import Change
from federator.config.sections import LogSettings
from federator.errors import ConfigError
from federator.protocol.effects import Notice
from federator.runtime.process.notices import log_notice

GAP_S: Final = 1.0
"""Between two readings; reading a large file takes a part of a second of a processor."""

TOLD_MAX: Final = 32
"""Keys named in one log line."""

_log = structlog.get_logger()


class Root(Protocol):
    """All settings of a daemon."""

    @property
    def log(self) -> LogSettings:
        """The log's level and format."""

    def notices(self) -> tuple[Notice, ...]:
        """Notices about the settings for the operator."""


_Root = TypeVar("_Root", bound=Root)


@dataclass(frozen=True, slots=True)
class Source(Generic[_Root]):
    """The source of a daemon's settings, and its log level.

    Attributes:
        read: Reads and checks all settings again; raises ``ConfigError``. May take its time.
        reloaded: ``config.reload.reloaded``; may take its time, too.
        set_log_level: Suppresses log lines below this level.
    """

    read: Callable[[], _Root]
    reloaded: Callable[[_Root, _Root], tuple[_Root, Sequence[Change], Sequence[Change]]]
    set_log_level: Callable[[str], None]


def reload_requested() -> asyncio.Event:
    """An event that SIGHUP sets from now on; before, it ends the process."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)
    return asked


@dataclass(eq=False, repr=False)
class Reloader(Generic[_Root]):
    """Reloads one daemon's configuration.

    Args:
        settings: In effect.
        asked: Is set when they are to be read again.
        prepare: Prepares settings, off the loop; may raise ``OSError`` or ``ValueError``.
        follow: Applies settings, with the result of ``prepare``.

    Attributes:
        restart_wanted: Keys that wait, with both values.
        refused: What to correct in the file that was read last.
    """

    settings: _Root
    source: Source[_Root]
    asked: asyncio.Event
    prepare: Callable[[_Root], Any] = lambda settings: None
    follow: Callable[[_Root, Any], None] = lambda settings, prepared: None
    restart_wanted: tuple[str, ...] = field(default=(), init=False)
    refused: str | None = field(default=None, init=False)
    readings: int = field(default=0, init=False)

    @contextlib.asynccontextmanager
    async def following(
        self, telling: Callable[[], AbstractContextManager[None]]
    ) -> AsyncIterator[None]:
        """Handle signals meanwhile; ``telling`` is entered during each reload."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._run(telling), name="reloading")
            try:
                yield
            finally:
                task.cancel()

    async def _run(self, telling: Callable[[], AbstractContextManager[None]]) -> None:
        while True:
            await self.asked.wait()
            self.asked.clear()
            with telling():
                await self.reload()
            await asyncio.sleep(GAP_S)

    async def reload(self) -> None:
        """Read the configuration and apply what may change; errors are logged."""
        self.readings += 1
        old = self.settings
        try:
            new = await asyncio.to_thread(self.source.read)
            settings, changes, waiting = await asyncio.to_thread(self.source.reloaded, old, new)
            prepared = await asyncio.to_thread(self.prepare, settings)
        except (ConfigError, OSError, ValueError) as error:
            self.refused = str(error)
            _log.error("config.refused", reason=self.refused)
            return
        self.refused = None
        self.source.set_log_level(settings.log.level)
        self.follow(settings, prepared)
        for notice in settings.notices():
            if notice not in old.notices():
                log_notice(notice)
        self.settings = settings
        self.restart_wanted = tuple(map(str, waiting))
        self._log_changes(changes, waiting)

    def snapshot(self) -> dict[str, object]:
        """The state for operators, as JSON."""
        return {
            "readings": self.readings,
            "refused": self.refused,
            "restart_wanted": list(self.restart_wanted),
        }

    def _log_changes(self, changes: Sequence[Change], waiting: Sequence[Change]) -> None:
        if changes or not waiting:
            _log.info("config.reloaded", changed=_as_text(changes))
        if waiting:
            mend = "restart to have these changes"
            _log.warning("config.restart_wanted", keys=_as_text(waiting), mend=mend)


def _as_text(changes: Sequence[Change]) -> list[str]:
    shown = [str(change) for change in changes[:TOLD_MAX]]
    more = len(changes) - TOLD_MAX
    return [*shown, f"and {more} more"] if more > 0 else shown
