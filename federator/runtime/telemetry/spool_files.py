"""Files of a spool: segments with their content in their names, and the claim on batch numbers.

A segment is written under a hidden name and renamed when it is whole, so a listing of the folder
shows whole files only. The lines of the hidden one show its content.

A batch number must never be used twice, or a reader would mistake a new batch for one that it has.
The files show the used numbers, unless the machine lost power, or they are damaged: then the last
numbers may be gone. So the next numbers are claimed on disk a block at a time, and another boot
goes on behind the block. A reader finds no batches there, and goes on too.

Source: docs/metrics.md, "The spool".
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self
from zlib import crc32

import msgspec

from federator.protocol.telemetry.records import Natural, SpoolId
from federator.runtime.storage import damage
from federator.runtime.storage.durable import this_boot

_WHOLE: Final = re.compile(r"(\d{1,10})-([0-9a-f]{16})-(\d{1,19})-(\d{1,19})\.jsonl")
_OPEN: Final = re.compile(r"\.(\d{1,10})-([0-9a-f]{16})-(\d{1,19})\.open")


@dataclass(slots=True)
class Segment:
    """A file: batches ``first`` to ``last`` of a spool, ``bytes`` long."""

    path: Path
    spool: str
    first: int
    last: int
    bytes: int


class Place(msgspec.Struct, gc=False):
    """The place of a line in its spool; its other fields are ignored."""

    spool: str
    batch: int
    row: int


_place: Final = msgspec.json.Decoder(Place)
_CRC: Final = b',"crc":"'
_END: Final = re.compile(rb'%s([0-9a-f]{8})"\}(?s:.)|\n' % _CRC)
"""Part of a line: its checksum, whatever became of the line end behind it; or a line end alone."""


def whole_name(broker: int, spool: str, first: int, last: int) -> str:
    return f"{broker}-{spool}-{first}-{last}.jsonl"


def open_name(broker: int, spool: str, first: int) -> str:
    """The file name of a segment while it is written."""
    return f".{broker}-{spool}-{first}.open"


def whole_segments(folder: Path, broker: int) -> list[Segment]:
    """The whole segments of ``broker``, those of former spools first, ascending in each.

    Raises:
        OSError: The folder cannot be read.
    """
    segments: dict[str, list[Segment]] = {}
    oldest: dict[str, float] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            match = _WHOLE.fullmatch(entry.name)
            if match is None or int(match[1]) != broker:
                continue
            stat = entry.stat()
            segment = Segment(
                Path(entry.path), match[2], int(match[3]), int(match[4]), stat.st_size
            )
            segments.setdefault(segment.spool, []).append(segment)
            oldest[segment.spool] = min(oldest.get(segment.spool, stat.st_mtime), stat.st_mtime)
    spools = sorted(segments, key=lambda spool: (oldest[spool], spool))
    return [s for spool in spools for s in sorted(segments[spool], key=lambda s: s.first)]


def finish_open(folder: Path, broker: int) -> int:
    """Rename every unfinished segment, without a torn end; return how many ends were cut off.

    Raises:
        OSError: The folder cannot be read or written.
    """
    torn = 0
    for name in sorted(os.listdir(folder)):
        match = _OPEN.fullmatch(name)
        if match is None or int(match[1]) != broker:
            continue
        path = folder / name
        good, size, last = _good_bytes(path, spool=match[2], first=int(match[3]))
        torn += good < size
        if not good:
            path.unlink()
            continue
        if good < size:
            os.truncate(path, good)
        path.rename(folder / whole_name(broker, match[2], int(match[3]), last))
    return torn


def stored(line: bytes) -> bytes:
    """``line``, an object, as stored on disk: with a checksum as its last field."""
    return b'%s%s%08x"}\n' % (line[:-1], _CRC, crc32(line))


def read_lines(content: bytes) -> Iterator[tuple[int, Place | None, bytes]]:
    """The end of each line, its place, and what was ``stored``, with its line end.

    The place is missing if a line, or its line end, is damaged or torn off. Older releases wrote no
    checksums.
    """
    start, is_former = 0, _CRC not in content
    for end in _END.finditer(content):
        line, start = content[start : end.start()], end.end()
        if end[1]:
            line += b"}"
        place = None
        if is_former or (end[1] and crc32(line) == int(end[1], 16)):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                place = _place.decode(line)
        yield start, place, line + b"\n"
        if not end[0].endswith(b"\n"):
            yield start, None, b""
    if start < len(content):
        yield len(content), None, b""


def _good_bytes(path: Path, *, spool: str, first: int) -> tuple[int, int, int]:
    """How much of an unfinished segment can be used, its size, and its last batch."""
    content = path.read_bytes()
    good, batch, row, damaged = 0, first - 1, -1, 0
    for end, place, _ in read_lines(content):
        if place and place.spool == spool and (place.batch, place.row) > (batch, row):
            good, batch, row = end, place.batch, place.row
        else:
            damaged += 1
    if damaged:
        damage.tell(path, "records in it are damaged", places=damaged)
    return good, len(content), batch


CLAIM: Final = 4_096
"""The numbers claimed at a time: an hour of batches."""


class Claim(msgspec.Struct, frozen=True):
    """The claim as stored in the file."""

    spool: SpoolId
    # The boot of the machine in which this was written; empty where it is unknown.
    boot: Annotated[str, msgspec.Meta(max_length=64)]
    last: Natural  # the last batch of the last whole segment then
    through: Natural  # no number beyond has been used


class Numbering:
    """The numbers of one spool."""

    def __init__(self, path: Path, claim: Claim, next_batch: int) -> None:
        self.next_batch = next_batch
        self._path = path
        self._claim = claim

    @classmethod
    def open(cls, path: Path, held: dict[str, int], *, end_lost: bool) -> Self:
        """Go on where an earlier process ended, or begin anew.

        Args:
            held: Each spool's last batch.
            end_lost: There may have been later ones.
        """
        boot = (this_boot() or b"").hex()
        claim = damage.read(path, msgspec.json.Decoder(Claim).decode)
        if claim is None:
            return cls(path, Claim(secrets.token_hex(8), boot, 0, 0), 1)
        last = max(claim.last, held.get(claim.spool, 0))
        if end_lost or not boot or claim.boot != boot:
            last = max(last, claim.through)
        return cls(path, Claim(claim.spool, boot, last, 0), last + 1)

    @property
    def spool(self) -> str:
        return self._claim.spool

    def claim(self, through: int) -> None:
        """Numbers up to ``through`` are about to be used.

        Raises:
            OSError: This cannot be written down; do not use them.
        """
        if through > self._claim.through:
            self._write(self._claim.last, through + CLAIM)

    def finished(self, last: int) -> None:
        """Batch ``last`` ends a whole segment.

        Raises:
            OSError: This cannot be written down.
        """
        self._write(last, max(self._claim.through, last))

    def _write(self, last: int, through: int) -> None:
        claim = Claim(self._claim.spool, self._claim.boot, last, through)
        damage.write(self._path, msgspec.json.encode(claim))
        self._claim = claim
