"""Stamps published here, on disk: after a restart we still recognise duplicates.

A leaf that goes on at its other hub looks some seconds back, also when its hub only restarted. Each
stamp is a piece of 17 bytes (``storage.damage``); older releases wrote nine bytes. When the file is
twice as long as necessary, it is rewritten with the newest.
"""

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from federator.protocol.custody.ports import KnownStamp
from federator.runtime.storage import damage, durable

NAME: Final = "stamps"
SAVED_MAX: Final = 16_384
"""Stamps kept: at 300 publications a second those of the last minute."""

_WIRE: Final = struct.Struct(">Q?")
_PIECE_BYTES: Final = _WIRE.size + damage.PIECE_BYTES
_FIRST: Final = _PIECE_BYTES.to_bytes(4, "little")  # the beginning of each piece


class StampFile:
    """The file, created with the first stamp.

    Args:
        folder: The file's folder.
        saved_max: Stamps kept; twice as many are on disk at most.
    """

    def __init__(self, folder: Path, *, saved_max: int = SAVED_MAX) -> None:
        self._path = folder / NAME
        self._saved_max = saved_max
        self._fd = -1
        self._size = 0

    def load(self) -> list[KnownStamp]:
        """The newest stamps, the oldest first. Raises ``OSError`` if the file cannot be read."""
        content = self._path.read_bytes() if self._path.exists() else b""
        self._size = len(content)
        lost: list[int] = []
        pieces = list(
            damage.read_pieces(content, 0, len(content), lambda at, end: lost.append(end - at))
        )
        is_new = pieces or content.startswith(_FIRST) or len(content) % _WIRE.size
        is_former = not is_new  # of an older release
        if is_former:
            pieces = [(at, at + _WIRE.size) for at in range(0, len(content), _WIRE.size)]
        elif lost:
            reason = "stamps in it are damaged"
            damage.tell(self._path, reason, lost_bytes=sum(lost), places=len(lost))
        newest = pieces[-self._saved_max :]
        stamps = [KnownStamp(*_WIRE.unpack(content[at:end])) for at, end in newest]
        if content and (is_former or lost):
            written = _packed(stamps)
            os.close(durable.replace_file(self._path, [written], sync=False))
            self._size = len(written)
        return stamps

    def append(self, stamps: Sequence[KnownStamp]) -> None:
        """Store ``stamps``, too. Raises ``OSError`` if the disk is full or broken."""
        if not stamps:
            return
        if self._fd < 0:
            self._fd = durable.open_private(self._path, os.O_RDWR | os.O_CREAT)
        content = _packed(stamps)
        durable.write_at(self._fd, content, self._size)
        self._size += len(content)
        if self._size > 2 * self._saved_max * _PIECE_BYTES:
            newest = _packed(self.load())
            fd = durable.replace_file(self._path, [newest], sync=False)
            os.close(self._fd)
            self._fd, self._size = fd, len(newest)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _packed(stamps: Sequence[KnownStamp]) -> bytes:
    return b"".join(damage.piece(_WIRE.pack(*stamp)) for stamp in stamps)
