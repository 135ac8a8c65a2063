"""Filters and a time for each, on disk: what an agent must know after a restart.

One list holds what is wanted or still owed, another what our broker may hold in our session. Both
work alike: each change appends a line, and the list is rewritten when it is twice as long as
necessary. A line is a JSON array, ``["a/b", 0]`` or, to forget, ``["a/b", null]``, and a checksum;
those of older releases have none. A first line keeps a list without filters from being empty.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from federator.runtime.storage import damage, durable

FILTERS_MAX = 131_072
OWED = "owed"
SUBSCRIBED = "subscribed"
CONFIG_KEY = "custody"
SPARE_LINES = 1_024
"""So many superfluous lines do not cause a rewrite."""

_FIRST = damage.lines([b"[]"])

_Line = tuple[str, int | None]
_decode = msgspec.json.Decoder(_Line, strict=True).decode
_encode = msgspec.json.Encoder().encode


class FilterFile:
    """One list of filters with their times, on disk, for one thread.

    Args:
        folder: The file's folder; created if missing.
        filters_max: Filters listed; more are refused.

    Attributes:
        is_new: Whether there never was a file.

    Raises:
        ConfigError: The folder cannot be used.
        OSError: From methods that change it: the disk is full or broken. The list is as before.
    """

    def __init__(self, folder: Path, name: str, *, filters_max: int = FILTERS_MAX) -> None:
        self._path = folder / name
        self._filters_max = filters_max
        self._times_us: dict[str, int] = {}
        self._lines = 0
        durable.private_folder(folder, key=CONFIG_KEY)
        self.is_new = not (self._path.exists() or damage.is_gone(self._path))
        try:
            self._fd = durable.open_private(self._path, os.O_RDWR | os.O_CREAT)
            self._recover()
        except OSError as error:
            raise durable.unusable(folder, error, key=CONFIG_KEY) from error

    def load(self) -> dict[str, int]:
        """The time of each listed filter."""
        return dict(self._times_us)

    def note(self, filter_: str, time_us: int) -> bool:
        """List ``filter_`` with ``time_us``; ``False`` when the list is full."""
        return self.alter({filter_: time_us})

    def note_all(self, filters: Iterable[str], time_us: int) -> bool:
        """List ``filters`` with ``time_us``, in one write; ``False`` when some found no room."""
        return self.alter(dict.fromkeys(filters, time_us))

    def forget(self, filter_: str) -> None:
        """Remove ``filter_`` from the list."""
        self.alter({filter_: None})

    def alter(self, changes: Mapping[str, int | None]) -> bool:
        """List filters with their times, or remove those with ``None``, in one write.

        Returns ``False`` when some found no room.
        """
        times_us = self._times_us
        changed = {f: at_us for f, at_us in changes.items() if times_us.get(f) != at_us}
        gone = [f for f, at_us in changed.items() if at_us is None]
        noted = {f: at_us for f, at_us in changed.items() if at_us is not None}
        room = max(0, self._filters_max - len(times_us) + len(gone))
        refused = [f for f in noted if f not in times_us][room:]
        for filter_ in refused:
            del noted[filter_]
        if gone or noted:
            self._append(*((f, None) for f in gone), *noted.items())
            for filter_ in gone:
                del times_us[filter_]
            times_us.update(noted)
            self._tidy()
        return not refused

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, *lines: _Line) -> None:
        content = damage.lines(map(_encode, lines))
        durable.write_at(self._fd, content, self._size)
        self._size += len(content)
        self._lines += len(lines)

    def _tidy(self) -> None:
        if self._lines > 2 * len(self._times_us) + SPARE_LINES:
            self._lines = len(self._times_us)
            with contextlib.suppress(OSError):  # the long file is as good; tried again later
                self._write_anew()

    def _write_anew(self) -> None:
        content = _FIRST + damage.lines(map(_encode, self._times_us.items()))
        fd = durable.replace_file(self._path, [content], sync=True)
        os.close(self._fd)
        self._fd, self._size = fd, len(content)

    def _recover(self) -> None:
        """Read the file; rewrite it if it is damaged, or of an older release."""
        stored = self._path.read_bytes()
        damaged = 0
        for line in damage.read_lines(stored):
            if line == b"[]":
                continue
            self._lines += 1
            try:
                filter_, time_us = _decode(line or b"")
            except (msgspec.DecodeError, UnicodeDecodeError):
                damaged += 1
                continue
            if time_us is None:
                self._times_us.pop(filter_, None)
            elif len(self._times_us) < self._filters_max or filter_ in self._times_us:
                self._times_us[filter_] = time_us
        self._size = len(stored)
        if damaged:
            damage.tell(self._path, "lines in it are damaged", places=damaged)
        if damaged or not stored.startswith(_FIRST):
            self._write_anew()
