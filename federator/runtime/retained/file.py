"""The versions of retained values on disk, so that a restarted agent tells old values from new.

A line with a checksum for each entry (``storage.damage``): a snapshot, and behind it in the same
file later changes, appended after ``APPEND_GAP_S`` without waiting for the disk: what a process has
written outlives it, and when the machine dies the broker's own state is gone, too. When the
appendix outgrows the snapshot, the file is rewritten. A second file holds the time of our broker's
last sign of life: a broker that started before that is still the same.

Source: docs/protocol.md 13.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from federator.protocol.retained.store import RetainedStore, Saved
from federator.runtime.storage import damage
from federator.runtime.storage.durable import AppendedFile, replace_file

FILE_NAME = "retained.log"
CONTACT_NAME = "retained_contact"
APPEND_GAP_S = 0.05
APPENDED_AT_ONCE_MAX = 1_000
CONTACT_GAP_S = 5.0
APPENDIX_BYTES_MIN = 1_000_000
"""A shorter appendix causes no rewrite."""

_LENGTH_BYTES = 4

_log = structlog.get_logger()

Part = list[Saved | str]
"""One write: entries, and forgotten topics."""

_FIRST = b"[]"
"""The first line: a file without entries is not empty."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Saved | str).decode


@dataclass(eq=False, repr=False)
class RetainedFile:
    """The file of versions of one agent, in its state folder."""

    folder: Path
    store: RetainedStore
    contact_s: Callable[[], float]  # wall clock of our broker's last sign of life

    def __post_init__(self) -> None:
        self._file = AppendedFile(self.folder / FILE_NAME)
        self._contact_path = self.folder / CONTACT_NAME
        self._contact_at_s = 0.0
        self._snapshot_bytes = self._appendix_bytes = 0
        self._complained = False

    def load(self) -> float:
        """Fill the store; return the time of our broker's last sign of life, 0 if unknown."""
        if not self._file.path.exists():
            return 0.0
        try:
            content = self._file.read()
        except OSError as error:
            damage.tell(self._file.path, error.strerror or str(error))
            return 0.0
        is_former = content[:1] == b"\0"  # of the length of a part of less than 16 MiB
        for part in _former_parts(content) if is_former else self._parts(content):
            self.store.load(part)
        return damage.read(self._contact_path, float) or 0.0

    def _parts(self, content: bytes) -> Iterator[Part]:
        damaged = 0
        part: Part = []
        for line in damage.read_lines(content):
            try:
                if line != _FIRST:
                    part.append(_decode(line or b""))
            except (msgspec.DecodeError, UnicodeDecodeError):
                damaged += 1
        if damaged or not content:
            reason = "entries in it are damaged" if content else "it is empty"
            damage.tell(self._file.path, reason, places=max(1, damaged))
        yield part

    async def save_for_ever(self) -> None:
        """Write changes until cancelled."""
        changed = asyncio.Event()
        self.store.on_change = changed.set
        try:
            await self._write_anew()
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CONTACT_GAP_S):
                        await changed.wait()
                        await asyncio.sleep(APPEND_GAP_S)
                changed.clear()
                part = self.store.take_changes(APPENDED_AT_ONCE_MAX)
                if len(part) == APPENDED_AT_ONCE_MAX:
                    changed.set()
                self._append(part)
                self._note_contact()
                if self._appendix_bytes > max(APPENDIX_BYTES_MIN, self._snapshot_bytes):
                    await self._write_anew()
        finally:
            while part := self.store.take_changes(APPENDED_AT_ONCE_MAX):
                self._append(part)
            self._note_contact(at_once=True)
            self._file.close()

    async def _write_anew(self) -> None:
        whole = self.store.save()
        writing = asyncio.ensure_future(asyncio.to_thread(self._write, whole))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing
            raise

    def _write(self, whole: Callable[[], Part]) -> None:
        content = damage.lines([_FIRST]) + _lines(whole())
        try:
            self._file.replace(content, sync=True)
        except OSError as error:
            self._complain(error)
        self._snapshot_bytes, self._appendix_bytes = len(content), 0

    def _append(self, part: Part) -> None:
        if not part:
            return
        content = _lines(part)
        self._appendix_bytes += len(content)
        if not self._file.is_open:
            return
        try:
            self._file.append(content)
        except OSError as error:
            self._complain(error)

    def _note_contact(self, *, at_once: bool = False) -> None:
        now_s = time.monotonic()
        contact_s = self.contact_s()
        if contact_s and (at_once or now_s - self._contact_at_s > 0.9 * CONTACT_GAP_S):
            self._contact_at_s = now_s
            try:
                content = damage.sealed(b"%f" % contact_s)
                os.close(replace_file(self._contact_path, [content], sync=False))
            except OSError as error:
                self._complain(error)

    def _complain(self, error: OSError) -> None:
        """Log that the disk failed, once: the next change tries again."""
        if not self._complained:
            self._complained = True
            _log.warning("retained.not_saved", path=str(self._file.path), why=error.strerror)


def _lines(part: Part) -> bytes:
    return damage.lines(map(_encode, part))


def _former_parts(content: bytes) -> Iterator[Part]:
    """The parts that an older release wrote, without an incomplete one at the end."""
    at = 0
    while at + _LENGTH_BYTES <= len(content):
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(content[at:start], "big")
        if at <= len(content):
            with contextlib.suppress(msgspec.DecodeError):
                yield msgspec.msgpack.decode(content[start:at], type=Part)
