"""A folder that one process uses at a time, and the epoch that an agent keeps in its own.

The epoch is the wall clock in milliseconds, unless that would not be greater than the last one: a
clock that was set back must not make a restart look like a replay.
"""

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from federator.errors import ConfigError
from federator.protocol.types import EPOCH_MAX, Epoch
from federator.runtime.process.clocks import wall_clock_ms
from federator.runtime.storage.durable import CANNOT_CREATE, PRIVATE_FILE, write_whole

IN_USE = 75
"""Exit code of ``sysexits.h``."""


def lock_folder(path: Path, name: str, *, key: str, taken: str, access: int = os.F_OK) -> int:
    """Let nobody else use ``path`` until the descriptor returned is closed, or the process ends.

    Args:
        path: The folder; made when missing.
        name: Of the lock's file in it.
        key: The setting that names the folder.
        taken: What to say, and how to mend it, when somebody else uses it.
        access: What we must be allowed to do there, as ``os.access`` takes it.

    Raises:
        ConfigError: It cannot be written, or is in use.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, access):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        lock = os.open(path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        text = f"{key}: {path}: {error.strerror}: name a folder this user may write"
        raise ConfigError(text, exit_code=CANNOT_CREATE) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise ConfigError(f"{key}: {path}: {taken}", exit_code=IN_USE) from error
    return lock


class StateDir:
    """The state folder of one agent, locked while it runs. Use as a context manager.

    Args:
        path: The folder; made when missing.

    Raises:
        ConfigError: It cannot be written, or another agent uses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def __enter__(self) -> Self:
        taken = "another agent uses it: stop it, or name another folder"
        self._lock = lock_folder(self.path, "lock", key="state_dir", taken=taken)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def next_epoch(self) -> Epoch:
        """An epoch greater than every one before, written down."""
        last = 0
        with contextlib.suppress(OSError, ValueError):
            last = int((self.path / "epoch").read_text())
        if not 0 <= last < EPOCH_MAX:
            last = 0  # damaged: neighbours who know the true one will say so
        epoch = Epoch(max(wall_clock_ms(), last + 1))
        self.save_epoch(epoch)
        return epoch

    def save_epoch(self, epoch: Epoch) -> None:
        """Write ``epoch`` down."""
        write_whole(self.path / "epoch", b"%d\n" % epoch)
