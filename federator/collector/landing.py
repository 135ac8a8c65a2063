"""The landing folder: files appear whole, and their names are the only state.

``<landing>/date=YYYY-MM-DD/hour=HH/<broker>-<spool>-<first>-<last>.jsonl`` holds the batches
``first`` to ``last`` of that spool; no other file holds them. It is written under a hidden name,
synchronised, renamed, and its folder synchronised; a crash leaves a hidden file, which the next
start removes, or the whole one. So reading resumes after the greatest ``last`` of a spool.

``prune`` never removes a spool's newest file: without it everything that the spool still holds
would be landed again.

Source: docs/collector.md, "The landing folder".
"""

import contextlib
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from federator.collector.position import Piece, SpoolKey
from federator.errors import ConfigError
from federator.protocol.types import BROKER_ID_MAX, BrokerId
from federator.runtime.storage.durable import CANNOT_CREATE, SHARED_FOLDER, sync_folder
from federator.runtime.storage.state_dir import LockedFolder

AT_US_MAX: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999; times after it or before 1970 are clamped."""

_LANDED: Final = re.compile(r"(\d{1,10})-([0-9a-f]{16})-(\d{1,19})-(\d{1,19})\.jsonl")
_DATE: Final = re.compile(r"date=(\d{4}-\d\d-\d\d)")
_HOUR: Final = re.compile(r"hour=\d\d")
_LOCK: Final = ".collector.lock"
_PART: Final = ".part"


class Landing(LockedFolder):
    """The folder, locked while in use. Use as a context manager.

    Args:
        path: The folder; created if missing.
        sync: Synchronise landed files. Without, a power cut may leave files without content.

    Attributes:
        files: How many files are landed.
        bytes: Their size.
        leftovers: Hidden files of a killed run, removed at the start.

    Raises:
        ConfigError: The folder cannot be written, or another collector uses it.
    """

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        super().__init__(
            path,
            _LOCK,
            key="landing",
            taken="another collector uses it: stop it, or name another",
            access=os.R_OK | os.W_OK | os.X_OK,
            mode=SHARED_FOLDER,  # Spark may run as another user
        )
        self.files = self.bytes = self.leftovers = 0
        self._sync = sync
        self._last: dict[SpoolKey, int] = {}

    def scan(self) -> dict[SpoolKey, int]:
        """Remove unfinished files; return the last landed batch of each spool.

        Raises:
            ConfigError: The folder cannot be read.
        """
        try:
            for folder in self._partitions():
                for entry in os.scandir(folder):
                    if entry.name.endswith(_PART) and entry.name.startswith("."):
                        Path(entry.path).unlink()
                        self.leftovers += 1
                    elif named := _read_name(entry.name):
                        key, _, last = named
                        self._last[key] = max(last, self._last.get(key, 0))
                        self.files += 1
                        self.bytes += entry.stat().st_size
        except OSError as error:
            text = f"landing: {error.filename}: {error.strerror}: mend its owner or mode"
            raise ConfigError(text, exit_code=CANNOT_CREATE) from error
        return dict(self._last)

    def write(self, piece: Piece) -> Path:
        """Land ``piece``; after this returns, the file survives a power cut.

        Raises:
            OSError: The file is not visible under its name, or may not survive.
        """
        folder = self._folder_of(piece.at_us)
        broker, spool = piece.key
        name = f"{broker}-{spool}-{piece.first}-{piece.last}.jsonl"
        hidden = folder / f".{name}{_PART}"
        try:
            with hidden.open("wb") as file:
                file.writelines(piece.lines)
                file.flush()
                if self._sync:
                    os.fsync(file.fileno())
            hidden.rename(folder / name)
        except OSError:
            with contextlib.suppress(OSError):
                hidden.unlink()
            raise
        if self._sync:
            sync_folder(folder)
        self._last[piece.key] = piece.last
        self.files += 1
        self.bytes += piece.bytes
        return folder / name

    def prune(self, *, now: datetime, keep_days: int, keep_bytes: int) -> int:
        """Remove the oldest files until the limits hold (0: no limit); return how many.

        Raises:
            OSError: A file cannot be removed.
        """
        oldest = f"{(now - timedelta(days=keep_days)).date().isoformat()}" if keep_days else ""
        removed = 0
        for folder in self._partitions():
            date = _DATE.fullmatch(folder.parent.name)
            too_old = date is not None and date.group(1) < oldest
            if not too_old and not (keep_bytes and self.bytes > keep_bytes):
                break
            for path in self._removable(folder):
                if not too_old and self.bytes <= keep_bytes:
                    break
                size = path.stat().st_size
                path.unlink()
                self.files -= 1
                self.bytes -= size
                removed += 1
            for empty in (folder, folder.parent):
                with contextlib.suppress(OSError):
                    empty.rmdir()
        return removed

    def _removable(self, folder: Path) -> Iterator[Path]:
        for name in sorted(os.listdir(folder)):
            named = _read_name(name)
            if named is not None and named[2] != self._last.get(named[0]):
                yield folder / name

    def _partitions(self) -> Iterator[Path]:
        """The folders of hours, oldest first."""
        for date in sorted(name for name in os.listdir(self.path) if _DATE.fullmatch(name)):
            for hour in sorted(name for name in os.listdir(self.path / date)):
                if _HOUR.fullmatch(hour):
                    yield self.path / date / hour

    def _folder_of(self, at_us: int) -> Path:
        at = datetime.fromtimestamp(min(max(0, at_us), AT_US_MAX) // 1_000_000, UTC)
        date = self.path / f"date={at:%Y-%m-%d}"
        folder = date / f"hour={at:%H}"
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            if self._sync:
                sync_folder(date)
                sync_folder(self.path)
        return folder


def _read_name(name: str) -> tuple[SpoolKey, int, int] | None:
    """Key, first and last batch from the name of a landed file; ``None`` for other names."""
    match = _LANDED.fullmatch(name)
    if match is None:
        return None
    broker, first, last = int(match.group(1)), int(match.group(3)), int(match.group(4))
    if broker > BROKER_ID_MAX or not 1 <= first <= last:
        return None
    return (BrokerId(broker), match.group(2)), first, last
