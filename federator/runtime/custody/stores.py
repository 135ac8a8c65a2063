"""Custody's files, behind the port that the core writes to: they never raise into the core.

Source: docs/protocol.md section 11; ``protocol.custody`` decides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from federator.config.sections import CustodySettings
from federator.protocol.custody.custodian import Custodian
from federator.protocol.custody.ports import Delivered, KnownStamp, Positions, Record
from federator.runtime.custody.delivery_journal import DeliveryJournal
from federator.runtime.custody.log import CustodyLog
from federator.runtime.custody.stamp_file import StampFile
from federator.runtime.storage.durable import DiskTrouble
from federator.runtime.storage.filter_file import OWED, SUBSCRIBED, FilterFile


@dataclass(eq=False, repr=False)
class CustodyStores:
    """Custody's files and how long to keep them: a ``Disk``; ``ports`` explains its methods.

    A write failure is logged once a minute, however often we retry.

    Raises:
        ConfigError: The folder cannot be used.
    """

    folder: Path  # created if missing
    settings: CustodySettings

    def __post_init__(self) -> None:
        folder, settings = self.folder, self.settings
        self.keep_s = settings.keep_s
        self.log = CustodyLog(
            folder / "log",
            bytes_max=settings.bytes_max,
            age_max_s=settings.keep_s,
            fsync=settings.fsync,
        )
        self.journal = DeliveryJournal(folder)
        self.owed = FilterFile(folder, OWED)  # filters that stay wanted
        self._owed_changes: dict[str, int | None] = {}
        self.subscribed = FilterFile(folder, SUBSCRIBED)  # what our session may hold
        self._stamps = StampFile(folder)
        self._disk_trouble = DiskTrouble()
        self._log_failure = ""  # why the last write to the log failed, until one works

    @property
    def failures(self) -> int:
        return self._disk_trouble.failures

    def block(self) -> str:
        """Why publications of QoS 1 and 2 wait at our broker; empty if they do not."""
        if not self._log_failure:
            return ""
        return f"the custody log cannot be written: {self._log_failure}: QoS 1 and 2 wait"

    def close(self) -> None:
        """Write pending changes, and close the files."""
        self.flush_owed()
        for file in (self.log, self.journal, self.owed, self.subscribed, self._stamps):
            file.close()

    def _tried(self, event: str, write: Callable[[], object]) -> bool:
        """Whether ``write`` worked; otherwise ``event`` is logged."""
        try:
            write()
        except OSError as error:
            self._disk_trouble.on_error(event, error)
            return False
        return True

    def write_log(self, records: Sequence[Record]) -> bool:
        try:
            self.log.append(records)
        except OSError as error:
            self._disk_trouble.on_error("custody.log_failed", error)
            self._log_failure = error.strerror or str(error)
            return False
        self._log_failure = ""
        return True

    def write_journal(self, deliveries: Sequence[Delivered]) -> bool:
        return self._tried("custody.journal_failed", lambda: self.journal.append(deliveries))

    def note_marked(self, number: int) -> None:
        self._tried("custody.journal_failed", lambda: self.journal.note_marked(number))

    def resume_journal(self, marker: int | None) -> Positions | None:
        try:
            return self.journal.resume(marker)
        except OSError as error:
            self._disk_trouble.on_error("custody.journal_failed", error)
            return None

    def fold_journal(
        self, positions: Positions | None, since_us: Mapping[bytes, int], *, folded_to: int
    ) -> bool:
        snapshot = partial(self.journal.snapshot, positions, since_us, folded_to=folded_to)
        return self._tried("custody.journal_failed", snapshot)

    def load_owed(self) -> dict[str, int]:
        """Until when each filter is owed, as far as ``flush_owed`` wrote it."""
        return self.owed.load()

    def write_owed(self, filter_: str, until_us: int | None) -> None:
        """List until when ``filter_`` is owed; ``None`` removes it.

        ``flush_owed`` writes it: a turn alters hundreds, and a write for each would take longer
        than all else.
        """
        self._owed_changes[filter_] = until_us

    def load_stamps(self) -> list[KnownStamp]:
        """The stamps published here by earlier processes."""
        try:
            return self._stamps.load()
        except OSError as error:
            self._disk_trouble.on_error("custody.stamps_failed", error)
            return []

    def write_stamps(self, stamps: Sequence[KnownStamp]) -> bool:
        return self._tried("custody.stamps_failed", lambda: self._stamps.append(stamps))

    def flush_owed(self) -> None:
        """Write down what is owed, before it takes effect."""
        changes, self._owed_changes = self._owed_changes, {}
        if changes:
            self._tried("custody.owed_failed", lambda: self.owed.alter(changes))


def counts(custody: Custodian, stores: CustodyStores) -> dict[str, int]:
    """Custody's numbers for operators; named as in the table of metrics, after ``custody_``."""
    receiver, origin, log = custody.destination.receiver, custody.origin, stores.log
    return {
        "log_bytes": log.bytes,
        "log_records": log.records,
        "dropped_by_age": log.dropped_by_age,
        "dropped_for_room": log.dropped_for_room,
        "repairs": origin.repairs,
        "failures": stores.failures,
        "owed": len(custody.owed),
        "chains": len(receiver),
        "gaps": receiver.gaps,
        "held_bytes": receiver.held_bytes,
        "asked": receiver.asked,
        "duplicates": receiver.duplicates,
        "gone": receiver.voids,
        "unfollowed": receiver.unfollowed,
    }
