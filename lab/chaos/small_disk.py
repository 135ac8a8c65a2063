"""A file system of its own for one agent's state, which can be full at a word.

A ``tmpfs`` is mounted on the state folder before the agent starts. It is filled by shrinking it to
what it holds: the next block that is asked for fails with ENOSPC, as on a full disk, while what is
written stays. Mounting takes root; ``available`` tells whether we may.
"""

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.errors import LinkError

ROOMY: Final = "256m"
COMMAND_TIMEOUT_S: Final = 10.0
PROBE_BYTES: Final = 65_536
"""A block or more."""


def available() -> bool:
    """Whether this process may mount a file system here."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory(prefix="federator-disk-") as folder:
        disk = SmallDisk(Path(folder))
        try:
            disk.mount()
        except LinkError:
            return False
        disk.unmount()
    return True


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A ``tmpfs`` on ``folder``."""

    folder: Path

    def mount(self) -> None:
        """Put it there, empty. Raises ``LinkError``: the system does not let us."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={ROOMY}", "federator-chaos", str(self.folder))

    def fill(self) -> None:
        """Leave no free block."""
        found = os.statvfs(self.folder)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        self._resize(str(max(used, found.f_frsize)))

    def is_full(self) -> bool:
        """Whether a block more is refused."""
        probe = self.folder / "probe"
        try:
            probe.write_bytes(bytes(PROBE_BYTES))
        except OSError as error:
            return error.errno == errno.ENOSPC
        finally:
            probe.unlink(missing_ok=True)
        return False

    def empty(self) -> None:
        """Give room again."""
        self._resize(ROOMY)

    def _resize(self, size: str) -> None:
        _run("mount", "-o", f"remount,size={size}", str(self.folder))

    def unmount(self, *, keep: bool = False) -> None:
        """Take it away; ``keep``: its files go to the folder below."""
        beside = self.folder.with_name(self.folder.name + ".kept")
        if keep:
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(self.folder, beside, dirs_exist_ok=True)
        _run("umount", str(self.folder))
        if keep and beside.is_dir():
            shutil.copytree(beside, self.folder, dirs_exist_ok=True)
            shutil.rmtree(beside)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LinkError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise LinkError(f"{' '.join(command)}: {done.stderr.strip()}")
