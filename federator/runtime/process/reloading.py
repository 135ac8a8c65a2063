"""``SIGHUP``: a daemon reads its configuration again, and follows what may change while it runs.

All of it or nothing: what is read is checked as at the start, in a thread, and only then followed,
in one turn of the loop. A file that cannot be used is named in one line, and changes nothing. What
takes a restart waits for one, and is told.

However many signals come, one reading is under way, and the next is no sooner than ``GAP_S`` after
it. The last signal always counts: a file that changed while it was read is read once more.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
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
"""Keys named in one line of the log."""

_log = structlog.get_logger()


class Root(Protocol):
    """Everything that a daemon is told."""

    @property
    def log(self) -> LogSettings:
        """What is logged, and how."""

    def notices(self) -> tuple[Notice, ...]:
        """What an operator should hear of it."""


_Root = TypeVar("_Root", bound=Root)


@dataclass(frozen=True, slots=True)
class Source(Generic[_Root]):
    """Where the settings of a daemon come from, and who writes its log.

    Attributes:
        read: Reads and checks all of it again; raises ``ConfigError``. May take its time.
        reloaded: ``config.reload.reloaded``; may take its time, too.
        set_log_level: Has what is below this level written no more.
    """

    read: Callable[[], _Root]
    reloaded: Callable[[_Root, _Root], tuple[_Root, Sequence[Change], Sequence[Change]]]
    set_log_level: Callable[[str], None]


def reload_requested() -> asyncio.Event:
    """An event that SIGHUP sets from now on; before, it ends the process."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)
    return asked


class Reloader(Generic[_Root]):
    """Follows one daemon's configuration.

    Args:
        settings: In effect.
        asked: Is set when they are to be read again.
        prepare: Gets ready for settings, off the loop; may raise ``OSError`` or ``ValueError``.
        follow: Goes by settings from now on, with what ``prepare`` gave.
    """

    def __init__(
        self,
        settings: _Root,
        source: Source[_Root],
        asked: asyncio.Event,
        *,
        prepare: Callable[[_Root], Any] = lambda settings: None,
        follow: Callable[[_Root, Any], None] = lambda settings, prepared: None,
    ) -> None:
        self.settings: _Root = settings
        self.restart_wanted: tuple[str, ...] = ()  # keys that wait, with both values
        self.refused: str | None = None  # what to mend of the file that was read last
        self.readings = 0
        self._source: Source[_Root] = source
        self._asked = asked
        self._prepare: Callable[[_Root], Any] = prepare
        self._follow: Callable[[_Root, Any], None] = follow

    @contextlib.asynccontextmanager
    async def following(
        self, telling: Callable[[], AbstractContextManager[None]]
    ) -> AsyncIterator[None]:
        """Follow signals meanwhile; ``telling`` is entered while one is followed."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._run(telling), name="reloading")
            try:
                yield
            finally:
                task.cancel()

    async def _run(self, telling: Callable[[], AbstractContextManager[None]]) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            with telling():
                await self.reload()
            await asyncio.sleep(GAP_S)

    async def reload(self) -> None:
        """Read the configuration, and follow it as far as may be; what is wrong is logged."""
        self.readings += 1
        old = self.settings
        try:
            new = await asyncio.to_thread(self._source.read)
            settings, changes, waiting = await asyncio.to_thread(self._source.reloaded, old, new)
            prepared = await asyncio.to_thread(self._prepare, settings)
        except (ConfigError, OSError, ValueError) as error:
            self.refused = str(error)
            _log.error("config.refused", reason=self.refused)
            return
        self.refused = None
        self._source.set_log_level(settings.log.level)
        self._follow(settings, prepared)
        for notice in settings.notices():
            if notice not in old.notices():
                log_notice(notice)
        self.settings = settings
        self.restart_wanted = tuple(map(str, waiting))
        self._tell(changes, waiting)

    def snapshot(self) -> dict[str, object]:
        """What an operator sees, as JSON."""
        return {
            "readings": self.readings,
            "refused": self.refused,
            "restart_wanted": list(self.restart_wanted),
        }

    def _tell(self, changes: Sequence[Change], waiting: Sequence[Change]) -> None:
        if changes or not waiting:
            _log.info("config.reloaded", changed=_told(changes))
        if waiting:
            mend = "restart to have these changes"
            _log.warning("config.restart_wanted", keys=_told(waiting), mend=mend)


def _told(changes: Sequence[Change]) -> list[str]:
    told = [str(each) for each in changes[:TOLD_MAX]]
    more = len(changes) - TOLD_MAX
    return [*told, f"and {more} more"] if more > 0 else told
