"""Writes the notices of the pure core to the log."""

from collections.abc import Callable

import structlog

from federator.protocol.effects import Notice
from federator.protocol.types import BrokerId

_log = structlog.get_logger()


def log_notice(notice: Notice, name_of: Callable[[BrokerId], str] | None = None) -> None:
    """Write ``notice`` to the log, at the level that the core chose.

    If ``name_of`` knows a name of its neighbour, the line contains that too.
    """
    details, neighbour = notice.details, notice.details.get("neighbour")
    if name_of is not None and isinstance(neighbour, int):
        name = name_of(BrokerId(neighbour))
        details = details | ({"neighbour_name": name} if name else {})
    getattr(_log, notice.level)(notice.name, **details)
