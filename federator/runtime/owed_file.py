"""The filters that our data connection subscribes or still owes, on disk.

A restarted agent resumes its broker's session; to know what that session subscribes, the agent
keeps a list: append a line for each change, and write the list anew when it is twice as long as it
need be. A line is a JSON array, ``["a/b", 0]`` or, to forget, ``["a/b", null]``; half a line at the
end is what a killed agent had not done yet.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from federator.runtime.durable import open_private, private_folder, replace_file, unusable, write_at

__all__ = ["OwedFile"]

FILTERS_MAX = 131_072
FILE_NAME = "owed"
CONFIG_KEY = "custody"
SPARE_LINES = 1_024
"""Superfluous lines that are not worth writing the file anew."""

_Line = tuple[str, int | None]
_decode = msgspec.json.Decoder(_Line, strict=True).decode
_encode = msgspec.json.Encoder().encode


class OwedFile:
    """The list of one agent, for one thread.

    Args:
        folder: Where the file is; made when missing.
        filters_max: Filters listed; more are turned away.

    Attributes:
        unreadable: Lines that were damaged when it was opened.
        is_new: There was no file, so nobody knows what an earlier session subscribes.

    Raises:
        ConfigError: The folder cannot be used.
    """

    def __init__(self, folder: Path, *, filters_max: int = FILTERS_MAX) -> None:
        self._path = folder / FILE_NAME
        self._filters_max = filters_max
        self._until_us: dict[str, int] = {}
        self._lines = 0
        self.unreadable = 0
        private_folder(folder, key=CONFIG_KEY)
        self.is_new = not self._path.exists()
        try:
            self._fd = open_private(self._path, os.O_RDWR | os.O_CREAT)
            self._size = self._recover()
        except OSError as error:
            raise unusable(folder, error, key=CONFIG_KEY) from error

    def load(self) -> dict[str, int]:
        """Filter -> wall clock, in microseconds, until which it is owed; 0: still wanted."""
        return dict(self._until_us)

    def note(self, filter_: str, until_us: int) -> bool:
        """List ``filter_``, owed until ``until_us``; ``False`` when the list is full.

        Raises:
            OSError: The disk is full or broken; the list is as before.
        """
        if self._until_us.get(filter_) == until_us:
            return True
        if filter_ not in self._until_us and len(self._until_us) >= self._filters_max:
            return False
        self._append((filter_, until_us))
        self._until_us[filter_] = until_us
        self._tidy()
        return True

    def forget(self, filter_: str) -> None:
        """Take ``filter_`` off the list.

        Raises:
            OSError: The disk is full or broken; the list is as before.
        """
        if filter_ in self._until_us:
            self._append((filter_, None))
            del self._until_us[filter_]
            self._tidy()

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, line: _Line) -> None:
        content = _encode(line) + b"\n"
        write_at(self._fd, content, self._size)
        self._size += len(content)
        self._lines += 1

    def _tidy(self) -> None:
        if self._lines <= 2 * len(self._until_us) + SPARE_LINES:
            return
        lines = [_encode(line) + b"\n" for line in self._until_us.items()]
        self._lines = len(lines)
        with contextlib.suppress(OSError):  # the long file is as good; tried again in a while
            fd = replace_file(self._path, lines, sync=True)
            os.close(self._fd)
            self._fd, self._size = fd, sum(map(len, lines))

    def _recover(self) -> int:
        """Read the file; return where its last whole line ends."""
        content = self._path.read_bytes()
        end = content.rfind(b"\n") + 1
        for line in content[:end].split(b"\n")[:-1]:
            self._lines += 1
            try:
                filter_, until_us = _decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.unreadable += 1
                continue
            if until_us is None:
                self._until_us.pop(filter_, None)
            elif len(self._until_us) < self._filters_max or filter_ in self._until_us:
                self._until_us[filter_] = until_us
        if end < len(content):
            os.ftruncate(self._fd, end)
        return end
