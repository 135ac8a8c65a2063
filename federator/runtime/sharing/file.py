"""Groups with members elsewhere, on disk: after a restart we go on taking publications for them.

Source: docs/protocol.md 12.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from federator.protocol.messages.group_records import share_filter
from federator.protocol.sharing.membership import ORPHANS_MAX, GroupKey
from federator.runtime.storage import damage

FILE_NAME: Final = "shared_groups.json"
SAVE_AFTER_S: Final = 0.2
"""Changes within this time are written together."""

_log = structlog.get_logger()


class ShareFile:
    """The list of groups in an agent's state folder."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE_NAME
        self._saved: frozenset[GroupKey] = frozenset()
        self._groups: frozenset[GroupKey] = frozenset()
        self._timer: asyncio.Handle | None = None

    def load(self) -> list[GroupKey]:
        """The listed groups; none when the list cannot be read."""
        self._saved = self._groups = damage.read(self._path, _decode) or frozenset()
        return sorted(self._saved)

    def save(self, groups: Iterable[GroupKey]) -> None:
        """Write ``groups`` soon, unless the file has them already."""
        self._groups = frozenset(groups)
        if self._groups != self._saved and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SAVE_AFTER_S, self._write)

    def _write(self) -> None:
        self._timer = None
        groups = self._groups
        try:
            damage.write(self._path, msgspec.json.encode(sorted(groups)[:ORPHANS_MAX]))
        except OSError as error:
            _log.warning("share.not_saved", path=str(self._path), why=error.strerror)
            return
        self._saved = groups


def _decode(content: bytes) -> frozenset[GroupKey]:
    groups = msgspec.json.decode(content, type=list[tuple[str, str]])[:ORPHANS_MAX]
    for group, filter_ in groups:
        share_filter(group, filter_)
    return frozenset(groups)
