"""Stamps published here, on disk: after a restart we still recognise duplicates.

A leaf that goes on at its other hub looks some seconds back, also when its hub only restarted. Each
stamp is a piece of 17 bytes (``storage.damage``); older releases wrote nine bytes. When the file is
twice as long as necessary, it is rewritten with the newest.
"""

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
        self._file = durable.AppendedFile(folder / NAME)
        self._saved_max = saved_max
        self.close = self._file.close

    def load(self) -> list[KnownStamp]:
        """The newest stamps, the oldest first. Raises ``OSError`` if the file cannot be read."""
        content = self._file.read()
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
            damage.tell(self._file.path, reason, lost_bytes=sum(lost), places=len(lost))
        newest = pieces[-self._saved_max :]
        stamps = [KnownStamp(*_WIRE.unpack(content[at:end])) for at, end in newest]
        if content and (is_former or lost):
            self._file.replace(_packed(stamps), sync=False)
        return stamps

    def append(self, stamps: Sequence[KnownStamp]) -> None:
        """Store ``stamps``, too. Raises ``OSError`` if the disk is full or broken."""
        if not stamps:
            return
        self._file.append(_packed(stamps))
        if self._file.size > 2 * self._saved_max * _PIECE_BYTES:
            self._file.replace(_packed(self.load()), sync=False)


def _packed(stamps: Sequence[KnownStamp]) -> bytes:
    return b"".join(damage.piece(_WIRE.pack(*stamp)) for stamp in stamps)
