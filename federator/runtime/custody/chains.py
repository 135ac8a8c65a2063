"""Which records carried which filter: one chain of numbers per filter key.

Chains are beads on strings that share a table: a record with three filters is a bead on three
strings. The table is cut off at ``oldest``; each string remembers its last bead before the cut. A
string without beads is *idle*: only its last number is kept, on disk too, because the next record
on it must name that number as its predecessor.
"""

import contextlib
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from federator.protocol.forwarding.frames import keys_in
from federator.runtime.storage import damage
from federator.runtime.storage.durable import AppendedFile

IDLE_MAX = 131_072
"""Idle chains remembered; beyond, the one idle for longest is forgotten."""

TRIM_AT = 64
HEADS_FILE = "heads"

_MAGIC, _FORMER_MAGIC = b"fedhead2", b"fedhead1"
_HEADER = struct.Struct("<8sQ")  # magic and epoch; twice, with a checksum
_ENTRY = struct.Struct("<8sQI")  # key, head, CRC-32 of both
_ENTRY_CHECKED = 16


@dataclass(slots=True, eq=False, repr=False)
class _Chain:
    """The numbers of one filter's records. Those below ``oldest`` are trimmed now and then."""

    dropped: int  # the largest number on the chain before seqs[0]; 0 without one
    trim_at: int = TRIM_AT
    seqs: "array[int]" = field(default_factory=lambda: array("Q"))


class Chains:
    """All chains: 8 bytes for each record and filter, and about 200 for each filter."""

    def __init__(self) -> None:
        self._live: OrderedDict[bytes, _Chain] = OrderedDict()  # by last number, ascending
        # Last numbers of chains without held records.
        self.idle: OrderedDict[bytes, int] = OrderedDict()
        self.oldest = 1  # the smallest number still held; set it with ``drop``

    def add(self, keys: bytes, prevs: Sequence[int], seq: int) -> None:
        """Put the record ``seq`` on the chains of its keys."""
        if len(prevs) == 1:
            self._add_one(keys, prevs[0], seq)
            return
        for key, prev in zip(keys_in(keys), prevs, strict=True):
            self._add_one(key, prev, seq)

    def _add_one(self, key: bytes, prev: int, seq: int) -> None:
        live = self._live
        chain = live.get(key)
        if chain is None:
            self.idle.pop(key, None)
            chain = live[key] = _Chain(prev)
        else:
            live.move_to_end(key)
        seqs = chain.seqs
        if seqs and prev > seqs[-1]:
            seqs.append(prev)  # its record is damaged, and was not known to be on this chain
        seqs.append(seq)
        if len(seqs) > chain.trim_at:
            start = self._start(chain)
            if start:
                chain.dropped = seqs[start - 1]
                del seqs[:start]
            chain.trim_at = max(TRIM_AT, 2 * len(seqs))

    def add_damaged(self, keys: bytes, prevs: Sequence[int], seq: int) -> None:
        """Put the damaged record ``seq`` on the chains to which it seems to belong.

        Only if its key has a chain, or begins one: a damaged key is no chain.
        """
        for key, prev in zip(keys_in(keys), prevs, strict=True):
            head = self.head(key)
            if head or not prev:
                self._add_one(key, head, seq)

    def head(self, key: bytes) -> int:
        """The last number on the chain of ``key``, held or not; 0 when none is known."""
        chain = self._live.get(key)
        return chain.seqs[-1] if chain else self.idle.get(key, 0)

    def heads(self) -> Iterator[tuple[bytes, int]]:
        """The chains with held records, and their last numbers."""
        return ((key, chain.seqs[-1]) for key, chain in self._live.items())

    def select(self, key: bytes, after: int, *, limit: int) -> list[int]:
        """Held numbers of the chain greater than ``after``, ascending, at most ``limit``."""
        chain = self._live.get(key)
        if chain is None:
            return []
        start = bisect_right(chain.seqs, max(after, self.oldest - 1))
        return chain.seqs[start : start + limit].tolist()

    def last(self, key: bytes, upto: int) -> int:
        """The greatest number of the chain up to ``upto``, or the last one dropped before it."""
        chain = self._live.get(key)
        if chain is None:
            return self.idle.get(key, 0)
        at = bisect_right(chain.seqs, upto)
        return chain.seqs[at - 1] if at else chain.dropped

    def floor(self, key: bytes, after: int) -> int:
        """The largest dropped number of the chain, if greater than ``after``, else ``after``.

        Everything on the chain above ``after`` and up to the result is gone.
        """
        chain = self._live.get(key)
        if chain is None:
            return max(self.idle.get(key, 0), after)
        start = self._start(chain)
        return max(chain.seqs[start - 1] if start else chain.dropped, after)

    def first(self, key: bytes, least: int, by: Callable[[int], int]) -> int | None:
        """The first held number of the chain with ``by`` >= ``least``; ``by`` never falls."""
        chain = self._live.get(key)
        if chain is None:
            return None
        at = bisect_left(chain.seqs, least, lo=self._start(chain), key=by)
        return chain.seqs[at] if at < len(chain.seqs) else None

    def drop(self, oldest: int) -> dict[bytes, int]:
        """Drop everything below ``oldest``; return the last number of each chain idle now.

        Takes time in proportion to these.
        """
        self.oldest = oldest
        idle: dict[bytes, int] = {}
        while self._live:
            key = next(iter(self._live))
            head = self._live[key].seqs[-1]
            if head >= oldest:
                break
            del self._live[key]
            idle[key] = self.idle[key] = head
        while len(self.idle) > IDLE_MAX:
            self.idle.popitem(last=False)
        return idle

    def _start(self, chain: _Chain) -> int:
        return bisect_left(chain.seqs, self.oldest)


@dataclass(eq=False, repr=False)
class HeadsFile:
    """The idle chains on disk: appended as chains become idle, rewritten when twice as long.

    After a failure the file is rewritten next time. The loss costs no message: the chain's next
    record names no predecessor, and destinations do not learn that records were dropped.
    """

    folder: Path
    idle: Mapping[bytes, int]  # the current idle chains

    def __post_init__(self) -> None:
        self._file = AppendedFile(self.folder / HEADS_FILE)
        self.close = self._file.close
        self._epoch = 0
        self._entries = 0
        self._is_stale = True  # the file lacks heads, or may hold others

    def load(self, epoch: int) -> dict[bytes, int]:
        """The idle chains of ``epoch`` in the file, which the next ``append`` rewrites."""
        self._epoch, self._is_stale = epoch, True
        heads: dict[bytes, int] = {}
        if not self._file.path.exists():
            return heads
        try:
            content = self._file.read()
        except OSError:
            return heads
        is_former = content.startswith(_HEADER.pack(_FORMER_MAGIC, epoch))
        fields = damage.either(content, _HEADER.size)
        if fields is None and not is_former:
            damage.tell(self._file.path, "neither of its headers is sound", lost_bytes=len(content))
            return heads
        if not is_former and fields != _HEADER.pack(_MAGIC, epoch):
            return heads
        damaged = 0 if is_former else int(not damage.are_same(content, _HEADER.size))
        at = _HEADER.size if is_former else len(damage.twice(_HEADER.pack(_MAGIC, epoch)))
        for entry in range(at, len(content), _ENTRY.size):
            stored = content[entry : entry + _ENTRY.size]
            if crc32(stored[:_ENTRY_CHECKED]).to_bytes(4, "little") == stored[_ENTRY_CHECKED:]:
                key, head, _ = _ENTRY.unpack(stored)
                heads.pop(key, None)
                heads[key] = head
            else:
                damaged += 1
        if damaged:
            damage.tell(self._file.path, "heads in it are damaged", places=damaged)
        return heads

    def append(self, idle: Mapping[bytes, int]) -> None:
        """Append chains that became idle."""
        rewrites = self._is_stale or self._entries > 2 * len(self.idle) + 1024
        if not (idle or rewrites):
            return
        self._is_stale = True  # until it is written
        with contextlib.suppress(OSError):
            if rewrites:
                header = damage.twice(_HEADER.pack(_MAGIC, self._epoch))
                self._file.replace(header, _encode_heads(self.idle), sync=False)
                self._entries = len(self.idle)
            else:
                self._file.append(_encode_heads(idle))
                self._entries += len(idle)
            self._is_stale = False


def _encode_heads(heads: Mapping[bytes, int]) -> bytes:
    parts = []
    for key, head in heads.items():
        checked = key + head.to_bytes(8, "little")
        parts.append(checked + crc32(checked).to_bytes(4, "little"))
    return b"".join(parts)
