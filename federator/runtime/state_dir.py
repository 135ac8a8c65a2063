"""What an agent remembers between starts: its epoch, and the lock that keeps a second one out.

The epoch is the wall clock in milliseconds, unless that would not be greater than the last one: a
clock that was set back must not make a restart look like a replay.
"""

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from federator.protocol.types import EPOCH_MAX, Epoch
from federator.runtime.clocks import wall_clock_ms
from federator.runtime.folder_lock import lock_folder


def write_whole(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` so that a crash leaves the old or the new, never half."""
    beside = path.with_name(path.name + ".new")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


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
