"""A folder that one process uses at a time; an agent's holds its epoch and its client ids' secret.

The epoch is the wall clock in milliseconds, unless that would not exceed the last one: a clock that
was set back must not make a restart look like a replay.

The secret part of the agent's client ids at its broker is drawn once: under another the agent would
not find its session again. A folder from before there was a secret has none. Data that waits under
the old id is taken once (``data.former_session``), and a file marks that until then.
"""

import contextlib
import errno
import fcntl
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from federator.errors import ConfigError
from federator.protocol.client_names import SECRET_DIGITS, is_secret
from federator.protocol.types import EPOCH_MAX, Epoch
from federator.runtime.process.clocks import wall_clock_ms
from federator.runtime.storage import damage, durable
from federator.runtime.storage.inventory import Inventory

TOKEN_FILE = "client-token"
KEPT = ("lock", TOKEN_FILE, "epoch")
"""Files that each agent rewrites; if another user owns them, it cannot start."""

ROOM_BYTES_MIN = 1_048_576
IN_USE = 75
"""Exit code of ``sysexits.h``."""


@dataclass(eq=False, repr=False)
class LockedFolder:
    """A folder that no other process uses while we do. Use as a context manager.

    Args:
        path: The folder; created if missing.
        name: The lock's file in it.
        key: The setting that names the folder.
        taken: The error text, with the remedy, when another process uses it.
        access: The access we need, as ``os.access`` takes it.
        mode: Permissions of a new folder, less what the umask takes away.

    Raises:
        ConfigError: It cannot be written, or is in use; raised when it is entered.
    """

    path: Path
    name: str
    key: str
    taken: str
    access: int = os.F_OK
    mode: int = durable.PRIVATE_FOLDER
    _lock: int = field(init=False)

    def __enter__(self) -> Self:
        path = self.path
        try:
            path.mkdir(mode=self.mode, parents=True, exist_ok=True)
            if not os.access(path, self.access):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            self._lock = durable.open_private(path / self.name, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise _cannot_be_had(self.key, path, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigError(f"{self.key}: {path}: {self.taken}", exit_code=IN_USE) from error
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)


def require_room(key: str, path: Path) -> None:
    """Check whether we could use the folder ``path``, which ``key`` names, without creating it.

    Raises:
        ConfigError: It can be neither written nor made, holds another user's files, or is full.
    """
    try:
        there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        kept = [path / name for name in KEPT if (path / name).exists()]
        if not os.access(there, os.W_OK | os.X_OK) or not all(os.access(k, os.W_OK) for k in kept):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        disk = os.statvfs(there)
        if disk.f_bavail * disk.f_frsize < ROOM_BYTES_MIN:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise _cannot_be_had(key, path, error) from error


def _cannot_be_had(key: str, path: Path, error: OSError) -> ConfigError:
    mend = "name a folder this user may write"
    if error.errno == errno.ENOSPC:
        mend = "make room there, or name a folder on another disk"
    text = f"{key}: {path}: {error.strerror}: {mend}"
    return ConfigError(text, exit_code=durable.CANNOT_CREATE)


class StateDir(LockedFolder):
    """The state folder of one agent, locked while it runs.

    Attributes:
        former_session: Exists while publications may wait under our old id without a secret.
        inventory: Its files; entering the folder reports missing ones.
    """

    def __init__(self, path: Path) -> None:
        taken = "another agent uses it: stop it, or name another folder"
        super().__init__(path, "lock", key="state_dir", taken=taken)
        self.former_session = path / "former-session"
        self.inventory = Inventory(path)

    def __enter__(self) -> Self:
        super().__enter__()
        self.inventory.compare()
        self.inventory.note_names()
        return self

    def __exit__(self, *error: object) -> None:
        self.inventory.note_all()
        super().__exit__(*error)

    def client_token(self) -> str:
        """The secret part of our client ids at our broker. Call it before ``next_epoch``.

        Raises:
            ConfigError: It cannot be read or written.
        """
        path = self.path / TOKEN_FILE
        try:
            with contextlib.suppress(FileNotFoundError):
                if token := _token(path):
                    path.chmod(durable.PRIVATE_FILE)
                    return token
            if (self.path / "epoch").exists():
                durable.write_whole(self.former_session, b"")
            token = secrets.token_hex(SECRET_DIGITS // 2)
            durable.write_whole(path, damage.lines([token.encode()] * 2))
        except OSError as error:
            text = f"state_dir: {path}: {error.strerror}: let this user read and write it"
            raise ConfigError(text, exit_code=durable.CANNOT_CREATE) from error
        return token

    def next_epoch(self) -> Epoch:
        """An epoch greater than every one before, written down."""
        last = damage.read(self.path / "epoch", int) or 0
        if not 0 <= last < EPOCH_MAX:
            last = 0  # damaged: neighbours that know the true one will report it
        epoch = Epoch(max(wall_clock_ms(), last + 1))
        self.save_epoch(epoch)
        return epoch

    def save_epoch(self, epoch: Epoch) -> None:
        damage.write(self.path / "epoch", b"%d" % epoch)


def _token(path: Path) -> str | None:
    """The secret in ``path``, which holds two copies; one in a file of an older release."""
    lines = damage.read_lines(path.read_bytes())
    copies = [(line or b"").decode(errors="replace") for line in lines]
    sound = [copy for copy in copies if is_secret(copy)]
    if not sound or len(sound) < len(copies):
        damage.tell(path, "the secret of our client ids is damaged")
    return sound[0] if sound else None
