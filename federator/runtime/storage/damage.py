"""Damage in stored files: found by checksums, skipped, reported.

A disk returns wrong bytes, a power cut takes the end of a file, a person deletes one. A reader of a
stored file takes all that is sound, in front of the damage and behind it, and reports the rest
here: one event and one metric for all kinds of files.

Three forms have checksums. *Records* of any size are found again behind damage by checking every
byte for the next sound one. *Lines* hold no line end, so the next begins behind the next line end.
*Whole* files have one seal; those of older releases have none. A seal stands in front, so that a
truncated file still has one. A header without which the rest could not be read is written *twice*.
"""

import contextlib
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar
from zlib import crc32

import msgspec
import structlog

from federator.errors import DecodeError
from federator.runtime.storage.durable import write_whole

ASIDE: Final = ".unreadable"
REASON_CHARS_MAX: Final = 200

_SEAL: Final = re.compile(rb"#([0-9a-f]{8}) ")
_CRC_BYTES: Final = 4
_U32 = struct.Struct("<I")
_pack, _unpack = _U32.pack, _U32.unpack_from
_SIZE_BYTES: Final = 4
PIECE_BYTES: Final = _SIZE_BYTES + _CRC_BYTES
"""The bytes of a record beside its content."""

T = TypeVar("T")

_log = structlog.get_logger()
_found: Counter[tuple[Path, str]] = Counter()  # by folder and kind
_gone: set[Path] = set()


def kind_of(path: Path) -> str:
    """How operators call the file: its name, or that of its folder if each file holds a part."""
    return path.parent.name if path.name.lstrip(".")[:1].isdigit() else path.name


def tell(path: Path, reason: str, *, lost_bytes: int = 0, places: int = 1) -> None:
    """Log and count that ``path`` is damaged in so many places."""
    _found[path.parent, kind_of(path)] += places
    _log.error("storage.damaged", path=str(path), reason=reason, lost_bytes=lost_bytes)


def tell_gone(path: Path, reason: str, *, lost_bytes: int = 0) -> None:
    """Report, once, that ``path``, or its end, is gone without a trace in the rest."""
    if path not in _gone:
        _gone.add(path)
        tell(path, reason, lost_bytes=lost_bytes)


def is_gone(path: Path) -> bool:
    """Whether ``path``, files in it, or their ends are gone without a trace in the rest."""
    return any(path in {gone, gone.parent} for gone in _gone)


def found(folder: Path | None = None) -> Counter[str]:
    """Damaged places by kind, in this process; with ``folder`` only in it and below."""
    counts: Counter[str] = Counter()
    for (at, kind), places in _found.items():
        if folder is None or folder in {at, *at.parents}:
            counts[kind] += places
    return counts


# Records


def next_sound(
    at: int, total: int, *, guess: int, least: int, is_sound: Callable[[int], bool]
) -> int:
    """Where the first sound record begins behind the damaged one at ``at``; ``total``: nowhere.

    Args:
        guess: Where the damaged record claims to end: checked first. Its content may look like
            a record.
        least: Bytes of the smallest record.
        is_sound: Whether the record that begins there is.
    """
    last = total - least
    if at < guess <= last and is_sound(guess):
        return guess
    return next((start for start in range(at + 1, last + 1) if is_sound(start)), total)


def piece(content: bytes) -> bytes:
    """``content`` as a record: bytes in all, content, CRC-32 of both."""
    checked = _pack(len(content) + PIECE_BYTES) + content
    return checked + _pack(crc32(checked))


def read_pieces(
    content: bytes, at: int, end: int, lost: Callable[[int, int], None]
) -> Iterator[tuple[int, int]]:
    """(start, end) of the content of each sound ``piece``, in ``content`` from ``at`` to ``end``.

    ``lost`` is called with the same of all other bytes, also behind the end of ``content``.
    """
    total = min(end, len(content))

    def is_sound(start: int) -> bool:
        size: int = _unpack(content, start)[0]
        checked = start + size - _CRC_BYTES
        if size < PIECE_BYTES or start + size > total:
            return False
        return crc32(content[start:checked]) == int(_unpack(content, checked)[0])

    while at + PIECE_BYTES <= total:
        after = at + int(_unpack(content, at)[0])
        if is_sound(at):
            yield at + _SIZE_BYTES, after - _CRC_BYTES
        else:
            start = at
            after = next_sound(start, total, guess=after, least=PIECE_BYTES, is_sound=is_sound)
            lost(start, after)
        at = after
    if at < end:
        lost(at, end)


def twice(fields: bytes) -> bytes:
    """``fields`` with a checksum, and the same again."""
    once = fields + crc32(fields).to_bytes(_CRC_BYTES, "little")
    return once + once


def are_same(content: bytes, size: int) -> bool:
    """Whether ``content`` begins with the same ``size`` bytes of fields twice."""
    step = size + _CRC_BYTES
    return content[:step] == content[step : 2 * step]


def either(content: bytes, size: int) -> bytes | None:
    """The ``size`` bytes of fields at the beginning of ``content``, from a sound copy."""
    step = size + _CRC_BYTES
    for at in (0, step):
        fields, checksum = content[at : at + size], content[at + size : at + step]
        if len(checksum) == _CRC_BYTES and crc32(fields) == int.from_bytes(checksum, "little"):
            return fields
    return None


# Lines and whole files


def sealed(content: bytes) -> bytes:
    """``content`` behind its checksum."""
    return b"#%08x %s" % (crc32(content), content)


def unsealed(stored: bytes) -> bytes | None:
    """The content of a ``sealed`` file, ``None`` when it is damaged; unchanged without a seal."""
    seal = _SEAL.match(stored)
    if seal is None:
        return stored
    content = stored[seal.end() :]
    return content if crc32(content) == int(seal[1], 16) else None


def lines(contents: Iterable[bytes]) -> bytes:
    """``contents``, none of which holds a line end, each in a line of its own.

    Each begins and ends with a line end: when one is damaged, the other still separates the lines.
    """
    return b"".join(b"\n%s\n" % sealed(content) for content in contents)


def read_lines(stored: bytes) -> Iterator[bytes | None]:
    """The contents of ``lines``, ``None`` for each that is damaged; old ones have no seals."""
    return (unsealed(line) for line in stored.split(b"\n") if line)


def is_sealed(path: Path) -> bool:
    """Whether ``path`` exists and, unlike files of older releases, has a seal."""
    with contextlib.suppress(OSError):
        return _SEAL.match(path.read_bytes()) is not None
    return False


def write(path: Path, content: bytes) -> None:
    """Replace the stored file ``path`` by ``content``, sealed and synchronised.

    Raises:
        OSError: The old file is still there.
    """
    write_whole(path, sealed(content))


def read(path: Path, decode: Callable[[bytes], T]) -> T | None:
    """The content of ``path``; ``None`` if the file is missing or damaged.

    A damaged file is reported and renamed.

    Args:
        decode: Raises ``ValueError``, or a decoder's error, if the content is not valid.
    """
    try:
        content = unsealed(path.read_bytes())
        if not content:
            raise ValueError("it is empty" if content is not None else "its checksum is another")
        return decode(content)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.DecodeError, DecodeError, RecursionError) as error:
        tell(path, str(error)[:REASON_CHARS_MAX])
        with contextlib.suppress(OSError):
            path.replace(path.with_name(path.name + ASIDE))
        return None
