"""What custody asks of the process around it: a disk to write on, and two ways to be heard.

Custody is told the time and never asks for it. What it decides takes effect while it decides,
because the next step depends on whether the last one was taken: a broker may forget a publication
only when the disk has it. So a write to the disk has happened, or was refused and reported, when
the call returns; no port raises.

Source: docs/protocol.md section 11.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from federator.protocol.data.ports import KnownStamp
from federator.protocol.effects import Notice
from federator.protocol.messages.control import RepairRequest
from federator.protocol.types import BrokerId

Positions = Mapping[tuple[BrokerId, bytes], tuple[int, ...]]
"""By (origin, key): the epoch, the number of the last frame delivered, and, ascending, those before
it: some step may turn out to be a lie."""

COLLECTED = 1
"""No time: what is listed as owed until then is wanted now, by nobody but who collects."""

UNDO_MAX = 8
"""Steps of a chain that can be taken back exactly."""


def moved(at: tuple[int, ...], epoch: int, seq: int) -> tuple[int, ...]:
    """The position ``at`` after a delivery; no chain ever goes back."""
    if (epoch, seq) <= at[:2]:
        return at
    return (epoch, seq, *at[2:][1 - UNDO_MAX :], at[1]) if epoch == at[0] else (epoch, seq)


Delivered = tuple[BrokerId, int, int, bytes]
"""A delivery as the journal has it: origin, epoch, number and keys."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """A frame made of QoS 1 and 2 publications, as the origin keeps it.

    Numbers are consecutive, from 1 in an epoch, but for leaps at starts (``CustodyLog``).
    """

    seq: int
    time_us: int  # the wall clock when it was made, in microseconds
    publications: int  # how many PUBLISH packets the body holds
    keys: bytes  # of filters, 8 bytes each, ascending
    prevs: tuple[int, ...]  # for each key the number of the record before on it, 0 for none
    body: bytes  # the run of PUBLISH packets


class Log(Protocol):
    """What we are the origin of, as it is read."""

    def read(self, seq: int) -> Record | None:
        """The frame ``seq``; ``None`` when it cannot be read."""

    def is_lost(self, seq: int) -> bool:
        """Whether the frame ``seq``, which cannot be read, never will be."""

    def head(self, key: bytes) -> int:
        """The last frame on a chain; 0: none."""

    def last(self, key: bytes, upto: int) -> int:
        """The greatest number of a chain up to ``upto``, or the last that is gone beyond it."""

    def select(self, key: bytes, after: int, *, limit: int) -> list[int]:
        """The first ``limit`` frames of a chain after ``after``."""

    def floor(self, key: bytes, after: int) -> int:
        """The last frame of a chain that is gone, when it is greater than ``after``."""

    def first_since(self, key: bytes, time_us: int) -> int | None:
        """The first frame of a chain that was made at ``time_us`` or later."""

    @property
    def epoch(self) -> int:
        """The epoch of its numbers; it grows whenever numbering begins anew."""

    @property
    def next_seq(self) -> int:
        """The number of the next record."""

    def chains(self) -> Iterator[tuple[bytes, int]]:
        """The chains of which something is held, and their heads."""

    def recent(self, count: int) -> Iterator[Record]:
        """The newest ``count`` records, the newest first."""

    def expire(self) -> int:
        """Drop what is too old."""


class Journal(Protocol):
    """What we delivered, as it is read."""

    @property
    def last(self) -> int:
        """Number of the last entry; 0 without one."""

    @property
    def is_due(self) -> bool:
        """Whether it is time for a snapshot."""

    def since_us(self) -> Mapping[bytes, int]:
        """Since when our clients want what, as of the last snapshot."""

    def marker(self) -> bytes:
        """What to leave at our broker behind the last entry."""

    def read_marker(self, payload: bytes) -> int | None:
        """The entry that a marker of this journal names."""


class Disk(Protocol):
    """All that custody keeps. A write that fails leaves everything as it was."""

    @property
    def log(self) -> Log:
        """What we are the origin of."""

    @property
    def journal(self) -> Journal:
        """What we delivered."""

    @property
    def keep_s(self) -> int:
        """How long all of this is worth anything."""

    def write_log(self, records: Sequence[Record]) -> bool:
        """Append ``records`` to the log, all or none; whether it has them."""

    def write_journal(self, deliveries: Sequence[Delivered]) -> bool:
        """Enter what is delivered next; whether it is written down."""

    def note_marked(self, number: int) -> None:
        """Enter that our broker has the marker ``number``: older ones count no more."""

    def resume_journal(self, marker: int | None) -> Positions | None:
        """Where each chain is when entries up to ``marker``, or the one noted, were delivered.

        Entries after it are struck out. ``None``: the disk is out of order.
        """

    def fold_journal(
        self, positions: Positions | None, since_us: Mapping[bytes, int], *, folded_to: int
    ) -> bool:
        """Replace entries up to ``folded_to`` by positions; ``None``: those that it knows."""

    def load_owed(self) -> Mapping[str, int]:
        """Until when each filter is owed, in microseconds since 1970; 0: it is wanted now.

        ``COLLECTED``: it is wanted now by nobody but who collects.
        """

    def write_owed(self, filter_: str, until_us: int | None) -> None:
        """List until when ``filter_`` is owed; ``None``: take it off the list.

        All of one turn may be written at once, before what is subscribed follows.
        """

    def write_stamps(self, stamps: Sequence[KnownStamp]) -> bool:
        """Keep these, which were published here; whether they are written down."""


class CustodyContext(Protocol):
    """Who passes on what custody has to say."""

    def ask(self, neighbour: BrokerId, request: RepairRequest) -> None:
        """Send a request to a neighbour."""

    def tell(self, notice: Notice) -> None:
        """Tell the operator."""
