"""Notices of the pure core become lines of the log."""

import structlog

from federator.protocol.effects import Notice

_log = structlog.get_logger()


def log_notice(notice: Notice) -> None:
    """Write ``notice`` to the log, at the level that the core chose."""
    getattr(_log, notice.level)(notice.name, **notice.details)
