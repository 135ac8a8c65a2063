"""Processor time of other processes, as the kernel accounts for it.

Source: proc(5), ``/proc/PID/stat``.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from federator.errors import LinkError

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # fields after the program's name, which may contain spaces


def processor_s(pids: Iterable[int]) -> float:
    """Processor seconds, user and system, that the living processes ``pids`` have used so far.

    Raises ``LinkError``: one of them is gone.
    """
    return sum(_ticks(pid) for pid in pids) / _TICKS_PER_S


def _ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise LinkError(f"process {pid} is gone: {error.strerror}") from error
    fields = text.rpartition(")")[2].split()
    return int(fields[_UTIME]) + int(fields[_STIME])


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def resident_mb(pid: int) -> float:
    """The same, in 10**6 bytes."""
    return resident_bytes(pid) / 1e6
