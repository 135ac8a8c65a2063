"""How far ``stream`` lags behind: from a record's landing to its being in the tables.

A log is written first, in the landing layout. Then a process of its own moves its segments, oldest
first, into the folder that a real ``stream`` watches, at a steady rate of records, each by a rename
as collectors do. Meanwhile we look at the table ``span``, which counts every record: the moment at
which it counts a segment's last line is when the segment is visible.

A stream runs for weeks and starts once, so the start is told apart: from the command until the
first segment is visible. Then records land for a while at a tenth of the rate, so that what Java
compiles late is compiled, and only then the rate that is measured.

Source: docs/analytics.md, "Lag".
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from federator_analytics.errors import InputMissingError, UnavailableError

LOOK_S = 0.05
"""Between two readings of the tables."""

CATCH_UP_S = 300.0
"""After the last landing: how long the rest may take to become visible."""

START_S = 600.0
"""How long ``stream`` may take to start and count its first segment."""

WARM_S = 120
"""For how long records land at a low rate before the lag is measured."""

WARM_SHARE = 10
"""That rate is this part of the one that is measured."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A file to land, and how many lines have landed when it has."""

    path: Path
    lines_so_far: int


@dataclass(frozen=True, slots=True)
class Lag:
    """What was measured; seconds, weighed by records."""

    records: int  # landed at ``rate`` per second and seen in the tables
    rate: float  # as it was achieved, per second
    behind_p50_s: float  # half the records were visible so soon
    behind_p95_s: float  # 95 % were
    behind_max_s: float  # all were
    updates: int  # different states of the tables that were seen, from the start
    start_s: float = 0.0  # from the command to the first records in the tables
    warm_records: int = 0  # landed before, at a low rate


def segments_of(log: Path) -> list[Segment]:
    """The segments below ``log``, in the order in which they came to be.

    Raises ``InputMissingError``: there is none.
    """
    found = sorted(log.rglob("*.jsonl"), key=_age)
    if not found:
        raise InputMissingError(f"{log}: holds no *.jsonl; a log by simulate is wanted")
    lines_so_far = accumulate(path.read_bytes().count(b"\n") for path in found)
    return [Segment(*each) for each in zip(found, lines_so_far, strict=True)]


def measure(
    log: Path, home: Path, *, rate: int, warm_s: int = WARM_S, options: Sequence[str] = ()
) -> Lag:
    """Land ``log`` at ``rate`` records a second below ``home``, and watch ``stream`` follow.

    ``log`` is moved, not copied; its beginning is what lands for ``warm_s`` at a low rate.

    Raises ``UnavailableError``: ``stream`` ended, or did not come to the end in time.
    """
    first, *rest = segments_of(log)
    landing, out = home / "landing", home / "out"
    landing.mkdir(parents=True)
    warm_lines = first.lines_so_far + warm_records(rate, warm_s)
    warm = [segment for segment in rest if segment.lines_so_far <= warm_lines]
    begun_s = time.monotonic()
    with _stream(landing, out, options) as process:
        _land(log, landing, first.path)
        seen = _Watch(out, process)
        seen.until(first.lines_so_far, begun_s + START_S)
        start_s = time.monotonic() - begun_s
        before = first
        if warm:
            _follow(log, landing, [first, *warm], max(1, rate // WARM_SHARE), seen)
            before = warm[-1]
        measured = [before, *rest[len(warm) :]]
        times = _follow(log, landing, measured, rate, seen)
    lag = lag_of(measured, times, seen.states)
    told = before.lines_so_far - first.lines_so_far
    return replace(lag, start_s=start_s, warm_records=told)


def warm_records(rate: int, warm_s: int) -> int:
    """About how many land before those that are measured."""
    return rate // WARM_SHARE * warm_s


def _follow(
    log: Path, landing: Path, segments: Sequence[Segment], rate: int, seen: "_Watch"
) -> list[float]:
    first, *rest = segments
    landed = get_context("spawn").Queue()
    feeder = get_context("spawn").Process(
        target=_feed, args=(log, landing, rest, first.lines_so_far, rate, landed)
    )
    feeder.start()
    try:
        lines = rest[-1].lines_so_far
        seen.until(lines, time.monotonic() + (lines - first.lines_so_far) / rate * 3 + CATCH_UP_S)
        times: list[float] = landed.get(timeout=LOOK_S * 100)
    finally:
        feeder.terminate()
        feeder.join()
    return times


def _feed(
    log: Path, landing: Path, segments: list[Segment], so_far: int, rate: int, told: object
) -> None:
    begun_s = time.monotonic()
    times = []
    for segment in segments:
        due_s = begun_s + (segment.lines_so_far - so_far) / rate
        time.sleep(max(0.0, due_s - time.monotonic()))
        _land(log, landing, segment.path)
        times.append(time.monotonic())
    told.put(times)  # type: ignore[attr-defined]  # a queue of a context has no public type


def _land(log: Path, landing: Path, path: Path) -> None:
    target = landing / path.relative_to(log)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.utime(path)  # it is made now: Spark takes the oldest first
    os.replace(path, target)


class _Watch:
    """Reads the tables while ``stream`` runs. ``states``: (when, lines) as they grew."""

    def __init__(self, out: Path, process: subprocess.Popen[bytes]) -> None:
        self.states: list[tuple[float, int]] = []
        self._out = out
        self._version: str | None = None
        self._process = process

    def until(self, lines: int, end_s: float) -> None:
        while not self.states or self.states[-1][1] < lines:
            now_s = time.monotonic()
            if counted := self._counted_anew():
                self.states.append((now_s, counted))
            if self._process.poll() is not None:
                raise UnavailableError(f"stream ended with {self._process.returncode}")
            if now_s > end_s:
                text = f"{self.states[-1][1] if self.states else 0} of {lines} lines"
                raise UnavailableError(f"stream: {text} were visible in time")
            time.sleep(LOOK_S)

    def _counted_anew(self) -> int:
        """Lines that the tables account for, if these were replaced and account for more."""
        link = self._out / "span"
        version = str(link.readlink()) if link.is_symlink() else None
        if version == self._version:
            return 0
        counted = counted_lines(self._out)
        if counted:
            self._version = version
        return counted if not self.states or counted > self.states[-1][1] else 0


def counted_lines(out: Path) -> int:
    try:
        span = pq.read_table(out / "span").to_pydict()
        bad = pq.read_table(out / "quarantine_counts").to_pydict()
    except (OSError, pa.ArrowInvalid):
        return 0  # not there yet, or being replaced
    return int(sum(span["records"]) + sum(span["duplicates_removed"]) + sum(bad["records"]))


@contextmanager
def _stream(landing: Path, out: Path, options: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable,
        "-m",
        "federator_analytics",
        "stream",
        str(landing),
        "--out",
        str(out),
    ]
    command += ["--refresh-s", "1", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def lag_of(segments: list[Segment], times: list[float], states: list[tuple[float, int]]) -> Lag:
    """The lag of each record landed: when its whole segment was counted, less when it landed."""
    behind: list[tuple[float, int]] = []
    state = iter(states)
    when_s, counted = next(state)
    before = segments[0].lines_so_far
    for segment, landed_s in zip(segments[1:], times, strict=True):
        while counted < segment.lines_so_far:
            when_s, counted = next(state)
        behind.append((when_s - landed_s, segment.lines_so_far - before))
        before = segment.lines_so_far
    records = segments[-1].lines_so_far - segments[0].lines_so_far
    rate = records / max(times[-1] - times[0], LOOK_S)
    half, most, all_ = (_quantile(behind, share) for share in (0.5, 0.95, 1.0))
    return Lag(records, rate, half, most, all_, len(states))


def _quantile(weighed: list[tuple[float, int]], share: float) -> float:
    total, so_far = sum(weight for _, weight in weighed), 0
    for value, weight in sorted(weighed):
        so_far += weight
        if so_far >= share * total:
            return value
    return max(weighed)[0]


def _age(path: Path) -> tuple[float, str]:
    """The wall clock of a segment's first record, then its name."""
    with path.open("rb") as file:
        line = file.readline()
    at = line.partition(b'"at_us":')[2].partition(b",")[0]
    return (float(at or 0), path.name)
