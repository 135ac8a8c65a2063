"""Files of a spool: names that tell what is inside, and what a crash left half written.

A segment is written under a hidden name and gets its own when it is whole, so whoever lists the
folder sees whole files only. The hidden one tells what it holds by its lines.

Source: docs/metrics.md, "The spool".
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

_WHOLE: Final = re.compile(r"(\d{1,10})-([0-9a-f]{16})-(\d{1,19})-(\d{1,19})\.jsonl")
_OPEN: Final = re.compile(r"\.(\d{1,10})-([0-9a-f]{16})-(\d{1,19})\.open")


@dataclass(frozen=True, slots=True)
class Segment:
    """A whole file: batches ``first`` to ``last`` of a spool, ``bytes`` long."""

    path: Path
    spool: str
    first: int
    last: int
    bytes: int


class Place(msgspec.Struct, gc=False):
    """Where a line belongs; its other fields are passed over."""

    spool: str
    batch: int
    row: int


_place: Final = msgspec.json.Decoder(Place)


def whole_name(broker: int, spool: str, first: int, last: int) -> str:
    """What a whole segment is called."""
    return f"{broker}-{spool}-{first}-{last}.jsonl"


def open_name(broker: int, spool: str, first: int) -> str:
    """What a segment is called while it is written."""
    return f".{broker}-{spool}-{first}.open"


def whole_segments(folder: Path, broker: int) -> list[Segment]:
    """The whole segments of ``broker``, those of former spools first, ascending in each.

    Raises:
        OSError: The folder cannot be read.
    """
    found: dict[str, list[Segment]] = {}
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
            found.setdefault(segment.spool, []).append(segment)
            oldest[segment.spool] = min(oldest.get(segment.spool, stat.st_mtime), stat.st_mtime)
    spools = sorted(found, key=lambda spool: (oldest[spool], spool))
    return [s for spool in spools for s in sorted(found[spool], key=lambda s: s.first)]


def finish_open(folder: Path, broker: int) -> tuple[list[Segment], int]:
    """Give every unfinished segment its name, without a torn end.

    Returns:
        The segments, and how many ends were cut off.

    Raises:
        OSError: The folder cannot be read or written.
    """
    finished: list[Segment] = []
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
        whole = folder / whole_name(broker, match[2], int(match[3]), last)
        path.rename(whole)
        finished.append(Segment(whole, match[2], int(match[3]), last, good))
    return finished, torn


def read_places(content: bytes) -> Iterator[tuple[int, int, Place]]:
    """Where each line begins and ends, and where it belongs; ends at what is no line of ours."""
    start = 0
    while (newline := content.find(b"\n", start)) >= 0:
        try:
            place = _place.decode(content[start:newline])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        yield start, newline + 1, place
        start = newline + 1


def _good_bytes(path: Path, *, spool: str, first: int) -> tuple[int, int, int]:
    """How much of an unfinished segment can be used, its size, and its last batch."""
    content = path.read_bytes()
    good, batch, row = 0, first - 1, -1
    for _, end, place in read_places(content):
        follows = place.batch > batch and place.row == 0
        if place.spool != spool or not (follows or (place.batch, place.row) == (batch, row + 1)):
            break
        good, batch, row = end, place.batch, place.row
    return good, len(content), batch
