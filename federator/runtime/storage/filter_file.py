"""Filters and a time for each, on disk: what an agent must know after a restart.

One list holds what is wanted or still owed, another what our broker may hold in our session. Both
work alike: each change appends a line, and the list is rewritten when it is twice as long as
necessary. A line is a JSON array, ``["a/b", 0]`` or, to forget, ``["a/b", null]``, and a checksum;
those of older releases have none. A first line keeps a list without filters from being empty.
"""

import contextlib
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
        self._file = durable.AppendedFile(folder / name)
        self.close = self._file.close
        self._filters_max = filters_max
        self._times_us: dict[str, int] = {}
        self._lines = 0
        durable.private_folder(folder, key=CONFIG_KEY)
        path = self._file.path
        self.is_new = not (path.exists() or damage.is_gone(path))
        try:
            stored = self._file.read()
            self._file.open()
            self._recover(stored)
        except OSError as error:
            raise durable.unusable(folder, error, key=CONFIG_KEY) from error

    def load(self) -> dict[str, int]:
        """The time of each listed filter."""
        return dict(self._times_us)

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
            lines = [*((f, None) for f in gone), *noted.items()]
            self._file.append(_encoded(lines))
            self._lines += len(lines)
            for filter_ in gone:
                del times_us[filter_]
            times_us.update(noted)
            if self._lines > 2 * len(times_us) + SPARE_LINES:
                self._lines = len(times_us)
                with contextlib.suppress(OSError):  # the long file is as good; tried again later
                    self._write_anew()
        return not refused

    def _write_anew(self) -> None:
        self._file.replace(_FIRST, _encoded(self._times_us.items()), sync=True)

    def _recover(self, stored: bytes) -> None:
        """Take the lines of the file; rewrite it if it is damaged, or of an older release."""
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
        if damaged:
            damage.tell(self._file.path, "lines in it are damaged", places=damaged)
        if damaged or not stored.startswith(_FIRST):
            self._write_anew()


def _encoded(lines: Iterable[_Line]) -> bytes:
    return damage.lines(map(_encode, lines))
