"""Bytes on disk: written whole or not at all.

Written bytes survive a ``kill -9`` of ours, because the kernel holds them; they survive a power cut
only once synchronised. So a file last written in another *boot* of the machine may have lost its
end without a trace, and code that numbers things in a file compares boots.
"""

import contextlib
import errno
import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal

import structlog

from federator.errors import ConfigError
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.types import Millis
from federator.runtime.process.clocks import monotonic_ms

FsyncPolicy = Literal["never", "interval", "always"]

COMPLAINT_GAP_MS: Final = Millis(60_000)
FSYNC_INTERVAL_S = 1.0
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
SHARED_FILE, SHARED_FOLDER = 0o666, 0o777
"""Less what the umask takes away."""

CANNOT_CREATE = 73
"""Exit code of ``sysexits.h``."""

BOOT_BYTES = 16
BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")

LEAP = 1 << 32
"""What a numbering skips when its end may be lost: more than a machine can have lost unsynced."""

_log = structlog.get_logger()


def this_boot() -> bytes | None:
    """The identity of this boot of the machine; ``None`` if it is unknown."""
    try:
        boot = bytes.fromhex(BOOT_FILE.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return None
    return boot if len(boot) == BOOT_BYTES else None


def private_folder(folder: Path, *, key: str) -> None:
    """Create ``folder`` and its parents if missing, readable by our user alone.

    Raises:
        ConfigError: It cannot be made or written; the text names it and begins with ``key``.
    """
    try:
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        for parent in reversed(missing):  # `parents=True` would leave all but the last open
            parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        folder.mkdir(exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise unusable(folder, error, key=key) from error


def unusable(folder: Path, error: OSError, *, key: str) -> ConfigError:
    """The error to raise when ``folder`` cannot be used."""
    text = f"{key}: {folder}: {error.strerror}: name a folder this user may write, with room"
    return ConfigError(text, exit_code=CANNOT_CREATE)


def open_private(path: Path, flags: int) -> int:
    """A descriptor of ``path``; a new file is readable by our user alone."""
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)


def write_at(fd: int, content: bytes, at: int) -> None:
    """Write ``content`` at the end of a file, which is at ``at``: in one call, as a rule.

    Raises:
        OSError: The disk is full or broken. The file ends at ``at`` as before.
    """
    size = len(content)
    try:
        written = os.pwrite(fd, content, at)
        while written < size:  # a full disk takes a part; the next call raises the reason
            more = os.pwrite(fd, memoryview(content)[written:], at + written)
            if not more:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += more
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, at)
        raise


def replace_file(
    path: Path, parts: Sequence[bytes], *, sync: bool, mode: int = PRIVATE_FILE
) -> int:
    """Replace ``path`` by a new file: a crash of ours leaves the old or the new one.

    Args:
        sync: The new file is on the disk when this returns, and a power cut, too, leaves the old
            or the new one. Otherwise it may leave anything.
        mode: Permissions of a new file, as ``os.open`` takes them.

    Returns:
        A descriptor of the new file, for reading and writing.

    Raises:
        OSError: The old file is still there.
    """
    beside = path.with_name(path.name + ".new")
    fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        write_at(fd, b"".join(parts), 0)
        if sync:
            os.fsync(fd)
        beside.replace(path)
    except OSError:
        os.close(fd)
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    if sync:
        with contextlib.suppress(OSError):  # the new one is in place, whatever a power cut does
            sync_folder(path.parent)
    return fd


def write_whole(path: Path, content: bytes, *, mode: int = PRIVATE_FILE) -> None:
    """Replace ``path`` by ``content``, synchronised, as ``replace_file`` does, and close it."""
    os.close(replace_file(path, [content], sync=True, mode=mode))


def sync_folder(folder: Path) -> None:
    """Synchronise the names in ``folder``."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class AppendedFile:
    """A file that grows at its end and is replaced, now and then, by a shorter one.

    A missing file is made by the first write.

    Raises:
        OSError: From each method: the disk is full or broken, and the file is as before.

    Attributes:
        size: Bytes of the file, as far as it was read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._fd = -1

    @property
    def is_open(self) -> bool:
        """Whether this process can write, or has written, the file."""
        return self._fd >= 0

    def open(self) -> None:
        self._fd = open_private(self.path, os.O_RDWR | os.O_CREAT)

    def read(self) -> bytes:
        """The whole content; empty if there is no file."""
        if self.is_open:
            return os.pread(self._fd, self.size, 0)
        content = self.path.read_bytes() if self.path.exists() else b""
        self.size = len(content)
        return content

    def append(self, content: bytes) -> None:
        if not self.is_open:
            self.open()
        write_at(self._fd, content, self.size)
        self.size += len(content)

    def replace(self, *parts: bytes, sync: bool) -> None:
        """Replace the whole content, as ``replace_file`` does."""
        fd = replace_file(self.path, parts, sync=sync)
        self.close()
        self._fd, self.size = fd, sum(map(len, parts))

    def close(self) -> None:
        if self.is_open:
            os.close(self._fd)
            self._fd = -1


class DiskTrouble:
    """Logs once a minute that a file cannot be written, however often we retry."""

    def __init__(self) -> None:
        self.failures = 0
        self._complaints: RateLimiter[str] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=8)

    def on_error(self, event: str, error: OSError) -> None:
        """Count a failed write or read, and log ``event`` unless it was logged lately."""
        self.failures += 1
        if self._complaints.allow(event, monotonic_ms()):
            _log.error(event, reason=error.strerror or str(error))


class Syncing:
    """Synchronises a growing file by policy; ``interval`` in a thread, so that no caller waits.

    Args:
        policy: ``never``: the kernel decides. ``interval``: ``FSYNC_INTERVAL_S`` after a write,
            while ``written`` or ``tick`` are called that often. ``always``: before ``written``
            returns.
    """

    def __init__(self, policy: FsyncPolicy) -> None:
        self.policy = policy
        self._last_s = time.monotonic()
        self._dirty = -1
        self._thread: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None

    def written(self, fd: int) -> None:
        """Note that ``fd`` was written, and synchronise it when it is due.

        Raises:
            OSError: The disk failed, now or in the thread since the last call.
        """
        if self.policy == "never":
            return
        if self.policy == "always":
            os.fdatasync(fd)
            return
        self._dirty = fd
        self.tick()

    def tick(self) -> None:
        """Synchronise what has been due for long enough.

        Raises:
            OSError: The disk failed in the thread since the last call.
        """
        if self._running is not None and self._running.done():
            done, self._running = self._running, None
            done.result()
        now_s = time.monotonic()
        if self._dirty < 0 or self._running or now_s - self._last_s < FSYNC_INTERVAL_S:
            return
        self._thread = self._thread or ThreadPoolExecutor(1, "fsync")
        own = os.dup(self._dirty)  # the file may be closed before the thread gets to it
        self._running = self._thread.submit(_sync_and_close, own)
        self._last_s, self._dirty = now_s, -1

    def finish(self, fd: int) -> None:
        """Synchronise ``fd``, which is complete, unless the policy is ``never``."""
        if self.policy != "never":
            os.fdatasync(fd)
            self._dirty = -1

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None


def _sync_and_close(fd: int) -> None:
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)
