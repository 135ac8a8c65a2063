"""What custody needs around it: a disk, an outlet for requests and notices, and both ways out.

Custody gets the time as an argument. What it decides takes effect while it decides, because the
next step depends on whether the last one succeeded: a broker may forget a publication only when the
disk has it. So when a call returns, the write has happened, or has failed and was reported; no port
raises.

Source: docs/protocol.md section 11.
"""

from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import NamedTuple, Protocol

import msgspec

from federator.protocol.effects import Notice
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.forwarding import Sends
from federator.protocol.forwarding.frames import Frame
from federator.protocol.messages.control import RepairRequest
from federator.protocol.types import BrokerId, Millis, Now

Positions = Mapping[tuple[BrokerId, bytes], tuple[int, ...]]
"""By (origin, key): the epoch, the number of the last frame delivered, and, ascending, those before
it: some step may turn out to be forged.
"""

COLLECTED = 1
"""Not a time: the filter is wanted now, by collectors only."""

UNDO_MAX = 8
"""How many steps of a chain can be rolled back exactly."""


def moved(at: tuple[int, ...], epoch: int, seq: int) -> tuple[int, ...]:
    """The position ``at`` after a delivery; a position never moves back."""
    if (epoch, seq) <= at[:2]:
        return at
    return (epoch, seq, *at[2:][1 - UNDO_MAX :], at[1]) if epoch == at[0] else (epoch, seq)


Delivered = tuple[BrokerId, int, int, bytes]
"""A delivery as the journal has it: origin, epoch, number and keys."""


class KnownStamp(NamedTuple):
    """The entry of a stamp in a book of stamps."""

    digest: int  # 64 bits of it
    by_leaf: bool  # whether a leaf brought it; otherwise the mesh


class Record(msgspec.Struct, frozen=True, gc=False):
    """A frame made of QoS 1 and 2 publications, as the origin keeps it.

    Numbers are consecutive from 1 in an epoch, except for jumps at starts (``CustodyLog``).
    """

    seq: int
    time_us: int  # the wall clock when it was made, in microseconds
    publications: int  # how many PUBLISH packets the body holds
    keys: bytes  # of filters, 8 bytes each, ascending
    prevs: tuple[int, ...]  # for each key the number of the record before on it, 0 for none
    body: bytes  # the run of PUBLISH packets


class Log(Protocol):
    """Read access to the log of our own frames."""

    def read(self, seq: int) -> Record | None:
        """The frame ``seq``; ``None`` when it cannot be read."""

    def is_lost(self, seq: int) -> bool:
        """Whether the frame ``seq``, which cannot be read, is lost for good."""

    def head(self, key: bytes) -> int:
        """The last frame on a chain; 0: none."""

    def last(self, key: bytes, upto: int) -> int:
        """The greatest number of a chain up to ``upto``, or the last dropped one beyond it."""

    def select(self, key: bytes, after: int, *, limit: int) -> list[int]:
        """The first ``limit`` frames of a chain after ``after``."""

    def floor(self, key: bytes, after: int) -> int:
        """The last dropped frame of a chain, or ``after`` if that is greater."""

    def first_since(self, key: bytes, time_us: int) -> int | None:
        """The first frame of a chain that was made at ``time_us`` or later."""

    @property
    def epoch(self) -> int:
        """The epoch of the log's numbers; it grows whenever numbering begins anew."""

    @property
    def next_seq(self) -> int:
        """The number of the next record."""

    def chains(self) -> Iterator[tuple[bytes, int]]:
        """The chains of which the log has frames, and their heads."""

    def recent(self, count: int) -> Iterator[Record]:
        """The newest ``count`` records, the newest first."""

    def expire(self) -> int:
        """Drop what is too old."""


class Journal(Protocol):
    """Read access to the journal of our deliveries."""

    @property
    def last(self) -> int:
        """The number of the last entry; 0 if there is none."""

    @property
    def is_due(self) -> bool:
        """Whether a snapshot is due."""

    def since_us(self) -> Mapping[bytes, int]:
        """Since when our clients want each key, as of the last snapshot."""

    def marker(self) -> bytes:
        """The payload of the marker to publish after the last entry."""

    def read_marker(self, payload: bytes) -> int | None:
        """The entry that a marker of this journal names; ``None``: not our marker."""


class Disk(Protocol):
    """Everything that custody keeps. A write that fails changes nothing."""

    @property
    def log(self) -> Log:
        """The log of our own frames."""

    @property
    def journal(self) -> Journal:
        """The journal of our deliveries."""

    @property
    def keep_s(self) -> int:
        """For how many seconds all of this is kept."""

    def write_log(self, records: Sequence[Record]) -> bool:
        """Append ``records`` to the log, all or none; return whether they are written."""

    def write_journal(self, deliveries: Sequence[Delivered]) -> bool:
        """Enter the next deliveries; return whether they are written."""

    def note_marked(self, number: int) -> None:
        """Enter that our broker has the marker ``number``: older ones are obsolete."""

    def resume_journal(self, marker: int | None) -> Positions | None:
        """The position of each chain after the entries up to ``marker``, or up to the noted one.

        Later entries are removed. ``None``: the disk is out of order.
        """

    def fold_journal(
        self, positions: Positions | None, since_us: Mapping[bytes, int], *, folded_to: int
    ) -> bool:
        """Replace entries up to ``folded_to`` by positions; ``None``: by those the journal knows.
        Return whether it is written.
        """

    def load_owed(self) -> Mapping[str, int]:
        """Until when each filter is owed, in microseconds since 1970; 0: it is wanted now.

        ``COLLECTED``: it is wanted now, by collectors only.
        """

    def write_owed(self, filter_: str, until_us: int | None) -> None:
        """List until when ``filter_`` is owed; ``None``: remove it from the list.

        All writes of one turn may be made at once, before the subscriptions follow.
        """

    def write_stamps(self, stamps: Sequence[KnownStamp]) -> bool:
        """Keep the stamps, which were published here; return whether they are written."""


class CustodyContext(Protocol):
    """Sends what custody has to send."""

    def ask(self, neighbour: BrokerId, request: RepairRequest) -> None:
        """Send a request to a neighbour."""

    def tell(self, notice: Notice) -> None:
        """Report to the operator."""


class Sender(Protocol):
    """Sends frames to neighbours: see ``protocol.data.outgoing``."""

    counters: DataCounters

    def send(
        self,
        frame: Frame,
        hops: int,
        sends: Sends,
        parts: Sequence[bytes | memoryview],
        size: int,
        *,
        now_ms: Millis,
    ) -> int:
        """Send copies of ``frame``, which travelled ``hops`` links, to next hops."""

    def send_repair(self, neighbour: BrokerId, frame: Frame, *, now_ms: Millis) -> bool:
        """Send a repair to a neighbour, unless many wait to be sent there already."""


class Publisher(Protocol):
    """Publishes on our own broker: see ``protocol.data.delivery``."""

    @property
    def room(self) -> bool:
        """Whether our broker can take a good deal more."""

    @property
    def settled(self) -> bool:
        """Whether our broker has acknowledged everything that we published."""

    @property
    def unsaved_stamps(self) -> MutableSequence[KnownStamp]:
        """Of what was published, and not on disk: to be removed when it is."""

    def mark(self, marker: bytes, *, asks: bool = False) -> None:
        """Publish the retained ``marker`` after everything that we published."""

    def deliver(self, frame: Frame, now: Now) -> None:
        """Publish the body of ``frame``."""

    def deliver_in_order(self, frames: Sequence[Frame], now: Now) -> None:
        """Publish frames of one bundle, their packets in the order in which they were published."""
