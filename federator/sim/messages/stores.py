"""A disk in the hands of one process: what ``Custodian`` writes to, and what may go wrong.

Each write fails whole while the disk is full, and the process may be killed right after it.

Source: docs/protocol.md section 11.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from federator.protocol.custody import Record
from federator.protocol.custody.destination import Positions
from federator.protocol.types import BrokerId
from federator.sim.messages.disks import CustodyDisk, FrameLog

KEEP_S = 1_800


class Writer(Protocol):
    """The process that writes."""

    noted: bool
    """The journal has what is delivered next."""

    def step(self) -> None:
        """One more thing is done that a crash may come after."""

    def too_old(self, numbers: list[int]) -> None:
        """The log had no room any more for these publications."""


class LogInUse:
    """The log on a disk; satisfies ``Log``."""

    def __init__(self, disk: CustodyDisk, log: FrameLog, writer: Writer) -> None:
        self._disk = disk
        self._writer = writer
        self._log = log
        self.epoch = log.epoch
        self.read = log.read
        self.head = log.head
        self.select = log.select
        self.floor = log.floor
        self.first_since = log.first_since
        self.chains: Callable[[], Iterator[tuple[bytes, int]]] = log.chains

    @property
    def next_seq(self) -> int:
        """The number of the next record."""
        return self._log.next_seq

    def append(self, records: Sequence[Record]) -> None:
        """Write ``records``, all or, with an ``OSError``, none."""
        self._disk.check()
        self._writer.too_old(self._log.append(records))
        self._writer.step()

    def expire(self) -> int:
        """Records are dropped for room only."""
        return 0


class JournalInUse:
    """The journal on a disk; satisfies ``Journal``."""

    is_due = False

    def __init__(self, disk: CustodyDisk, writer: Writer) -> None:
        self._disk = disk
        self._writer = writer
        self.marker = disk.journal.marker
        self.read_marker = disk.journal.read_marker

    @property
    def last(self) -> int:
        """Number of the last entry; 0 without one."""
        return self._disk.journal.last

    def since_us(self) -> dict[bytes, int]:
        """Since when our clients want what, as of the last snapshot."""
        return dict(self._disk.journal.since_us)

    def append(self, deliveries: Sequence[tuple[BrokerId, int, int, bytes]]) -> int:
        """Write down what is delivered next."""
        self._writer.noted = False
        self._disk.check()
        self._disk.journal.append(deliveries)
        self._writer.noted = True
        self._writer.step()
        return self.last

    def resume(self, marker: int | None) -> Positions:
        """Begin again behind ``marker``."""
        self._disk.check()
        return self._disk.journal.resume(marker)

    def snapshot(
        self, positions: Positions | None, since_us: Mapping[bytes, int], *, folded_to: int
    ) -> None:
        """Write down since when our clients want what; forget where other chains were."""
        self._disk.check()
        self._disk.journal.since_us = dict(since_us)
        if positions is not None:
            self._disk.journal.keep_only(positions)


class OwedInUse:
    """The filters owed, on a disk; satisfies ``OwedList``."""

    def __init__(self, disk: CustodyDisk) -> None:
        self._disk = disk

    def load(self) -> dict[str, int]:
        """Until when each is owed; 0: it is wanted now."""
        return dict(self._disk.owed)

    def note(self, filter_: str, until_us: int) -> bool:
        """List ``filter_``."""
        self._disk.check()
        self._disk.is_new = False
        self._disk.owed[filter_] = until_us
        return True

    def forget(self, filter_: str) -> None:
        """Take it off the list."""
        self._disk.check()
        self._disk.is_new = False
        self._disk.owed.pop(filter_, None)


class StoresInUse:
    """All of them; satisfies ``Stores``.

    Args:
        disk: What earlier lives left.
        log: The log on it.
        writer: The process.
    """

    keep_s = KEEP_S

    def __init__(self, disk: CustodyDisk, log: FrameLog, writer: Writer) -> None:
        self.log = LogInUse(disk, log, writer)
        self.journal = JournalInUse(disk, writer)
        self.owed = OwedInUse(disk)
