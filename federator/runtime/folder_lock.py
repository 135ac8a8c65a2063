"""A folder that one process uses at a time: made when missing, locked while it is used."""

import errno
import fcntl
import os
from pathlib import Path

from federator.errors import ConfigError

CANNOT_CREATE, IN_USE = 73, 75
"""Exit codes of ``sysexits.h``."""


def lock_folder(path: Path, name: str, *, key: str, taken: str, access: int = os.F_OK) -> int:
    """Lock ``path`` until the descriptor returned is closed, or the process ends.

    Args:
        path: The folder; made when missing.
        name: Of the lock's file in it.
        key: The setting that names the folder.
        taken: What to say, and how to mend it, when somebody else uses it.
        access: What must be allowed there, as ``os.access`` takes it.

    Raises:
        ConfigError: It cannot be written, or is in use.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, access):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        lock = os.open(path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        text = f"{key}: {path}: {error.strerror}: name a folder this user may write"
        raise ConfigError(text, exit_code=CANNOT_CREATE) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise ConfigError(f"{key}: {path}: {taken}", exit_code=IN_USE) from error
    return lock
