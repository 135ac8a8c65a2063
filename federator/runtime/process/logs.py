"""Our own log: one event a line on standard error, for people or for machines.

The log must never fill a disk: every event name has a bucket of lines that fills slowly. Lines
beyond it are counted in ``withheld`` of the next line of that name.
"""

import logging
import sys
import time
from collections.abc import Callable

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from federator.config.sections import LogSettings

LINES_BURST = 60
"""Lines of one event name that may come at once: a broker with as many neighbours starts."""

LINE_EVERY_S = 10.0
"""How long it takes until one more line may come."""

NAMES_MAX = 256
"""Event names told apart; the texts of libraries could be endless. The others share a bucket."""


class RateLimit:
    """A processor that drops lines beyond the bounds above; ``clock`` is monotonic, in seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full_at_s: dict[str, float] = {}  # when the bucket of a name is full again
        self._withheld: dict[str, int] = {}

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        name = str(event.get("event"))
        if name not in self._full_at_s and len(self._full_at_s) >= NAMES_MAX:
            name = ""
        now_s = self._clock()
        full_at_s = max(now_s, self._full_at_s.get(name, now_s)) + LINE_EVERY_S
        if full_at_s - now_s > LINES_BURST * LINE_EVERY_S:
            self._withheld[name] = self._withheld.get(name, 0) + 1
            raise structlog.DropEvent
        self._full_at_s[name] = full_at_s
        if withheld := self._withheld.pop(name, 0):
            event["withheld"] = event.get("withheld", 0) + withheld
        return event


class LevelGate:
    """A processor that drops events below a level, which may change at any time.

    Loggers are bound once, and so cannot follow a change themselves.
    """

    def __init__(self) -> None:
        self._least = logging.NOTSET
        self._levels = logging.getLevelNamesMapping()

    def set_level(self, name: str) -> None:
        """From now on, pass events of the level ``name`` and above."""
        self._least = self._levels[name.upper()]

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        level = "ERROR" if method == "exception" else method.upper()
        if self._levels.get(level, logging.INFO) < self._least:
            raise structlog.DropEvent
        return event


_gate = LevelGate()
set_level = _gate.set_level


def configure(settings: LogSettings) -> None:
    """Send every ``structlog`` event to standard error in the configured form."""
    set_level(settings.level)
    structlog.configure(
        processors=[
            _gate,
            structlog.contextvars.merge_contextvars,
            RateLimit(),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *_rendering(settings.format),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # asyncio's own warnings go the same way, so that one reader understands every line.
    logging.basicConfig(level=logging.WARNING, handlers=[_Forward()], force=True)


def _rendering(form: str) -> list[Processor]:
    # Without local variables in either form: they may hold secrets.
    if form == "console":
        plain = structlog.dev.plain_traceback
        colours = sys.stderr.isatty()
        return [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=plain)]
    traceback = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(traceback), structlog.processors.JSONRenderer()]


class _Forward(logging.Handler):
    """Hands a record of the standard library to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(record.name)
        logger.log(record.levelno, record.getMessage(), exc_info=record.exc_info)
