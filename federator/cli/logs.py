"""Our own log: one event a line on standard error, for people or for machines."""

import logging
import sys

import structlog
from structlog.typing import Processor

from federator.config import LogSettings


def configure(settings: LogSettings) -> None:
    """Send every ``structlog`` event to standard error in the configured form."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *(_json() if settings.format == "json" else _console()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # asyncio's own warnings go the same way, so that one reader understands every line.
    logging.basicConfig(level=logging.WARNING, handlers=[_Forward()], force=True)


def _json() -> list[Processor]:
    # Without local variables, here and below: they may hold secrets.
    traceback = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(traceback), structlog.processors.JSONRenderer()]


def _console() -> list[Processor]:
    return [
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    ]


class _Forward(logging.Handler):
    """Hands a record of the standard library to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(record.name)
        logger.log(record.levelno, record.getMessage(), exc_info=record.exc_info)
