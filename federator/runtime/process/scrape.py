"""The text that Prometheus scrapes: definitions with their numbers, and those of our process.

Written here rather than by Prometheus' client library: that keeps the numbers itself, which ours do
not need, and its modules with all that they import take 4 MB of every process that is watched.
``tests/runtime/process/test_scrape.py`` holds the text against the library's.

Source: the Prometheus text format, 0.0.4; the names of a process's metrics are those that every
client library gives.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Final

from federator.runtime.process.exposition import (
    Definition,
    Distribution,
    Family,
    Value,
    families,
    table,
)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

OS_PROCESS: Final = (
    *table(
        "gauge",
        ("virtual_bytes", "virtual_memory_bytes", "Virtual memory size in bytes."),
        ("resident_bytes", "resident_memory_bytes", "Resident memory size in bytes."),
        (
            "started_s",
            "start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
        ),
        prefix="process_",
    ),
    *table(
        "counter",
        ("processor_s", "cpu_seconds", "Total user and system CPU time spent in seconds."),
        prefix="process_",
    ),
    *table(
        "gauge",
        ("open_fds", "open_fds", "Number of open file descriptors."),
        ("max_fds", "max_fds", "Maximum number of open file descriptors."),
        prefix="process_",
    ),
)
"""Of any process."""

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME, _STARTED, _VIRTUAL, _RESIDENT = 11, 12, 19, 20, 21  # behind the program's name


def text(metrics: Iterable[Family]) -> bytes:
    """All of ``metrics``, as they are scraped."""
    return "".join(line for row, value in metrics for line in _lines(row, value)).encode()


def process_metrics() -> Iterator[Family]:
    """What the kernel accounts to this process; nothing where there is no ``/proc``."""
    values: dict[str, Value] = {}
    try:
        fields = Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        limits = Path("/proc/self/limits").read_text("ascii").splitlines()
        values["open_fds"] = len(os.listdir("/proc/self/fd"))
    except OSError:
        return families(OS_PROCESS, values)
    ran_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_STARTED]) / _TICKS_PER_S
    values |= {
        "virtual_bytes": int(fields[_VIRTUAL]),
        "resident_bytes": int(fields[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE"),
        "started_s": time.time() - ran_s,
        "processor_s": (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S,
    }
    for line in limits:
        if line.startswith("Max open files"):
            values["max_fds"] = float(line.split()[3].replace("unlimited", "inf"))
    return families(OS_PROCESS, values)


def _lines(row: Definition, value: Value) -> Iterator[str]:
    meaning = row.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {row.name} {meaning}\n"
    yield f"# TYPE {row.name} {row.kind}\n"
    if isinstance(value, Distribution):
        bounds = [*map(_number, value.bounds), "+Inf"]
        for bound, count in zip(bounds, accumulate(value.counts), strict=True):
            yield f'{row.name}_bucket{{le="{bound}"}} {_number(count)}\n'
        yield f"{row.name}_count {_number(sum(value.counts))}\n"
        yield f"{row.name}_sum {_number(value.sum)}\n"
    elif isinstance(value, Mapping):
        for labels in sorted(value):
            named = sorted(zip(row.labels, labels, strict=True))
            told = ",".join(f'{name}="{_escaped(label)}"' for name, label in named)
            yield f"{row.name}{{{told}}} {_number(value[labels])}\n"
    else:
        yield f"{row.name} {_number(value)}\n"


def _escaped(label: object) -> str:
    return str(label).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    """As Go writes it, which is what readers expect."""
    told = float(value)
    if told == float("inf"):
        return "+Inf"
    if told == float("-inf"):
        return "-Inf"
    return "NaN" if told != told else repr(told)
