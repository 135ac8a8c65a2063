"""The spool: numbered once and for all, whole, bounded, and unmoved by a full disk or a crash."""

import contextlib
import json
import os
import re
import resource
from pathlib import Path

import msgspec
import pytest

from federator.protocol.telemetry.records import Events, decode
from federator.runtime.storage import damage
from federator.runtime.telemetry.spool import BATCH_BYTES_MAX, Spool
from federator.runtime.telemetry.spool_files import CLAIM, Claim
from tests.transcripts import play, scenes

SHARED = {"federation": "f", "epoch": 1}
LIMITS = {"bytes_max": 10**9, "segment_bytes_max": 10**8, "segment_age_ms": 1_000}


def rows(*details):
    return [(Events, {"at_us": 1, "kind": "link_up", "detail": detail}) for detail in details]


def spool_in(folder, **limits):
    return Spool(folder=folder, broker=3, **LIMITS | limits)


def records_in(folder):
    files = sorted(folder.glob("3-*.jsonl"), key=lambda p: int(p.name.split("-")[2]))
    return [decode(line) for file in files for line in file.read_bytes().splitlines()]


@contextlib.contextmanager
def files_of_at_most(size):
    """The kernel writes up to ``size`` bytes of a file, and then says that there is no room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Stage:
    """A spool on disk. ``write a b`` writes one batch with two records, ``at 900`` sets the time.

    ``restart`` begins with what is on disk, without an end of the former process. ``files`` prints
    the whole ones, ``records`` each as ``batch.row:detail``, and ``read 2 9`` those of a part; a
    number behind ``CLAIM`` is printed as such. What is damaged is printed when it is found.
    """

    def __init__(self, folder):
        self.folder, self.limits, self.now_ms, self.first_id = folder, {}, 0, None
        list(self._restart())

    def do(self, command, *words):
        damaged = damage.found(self.folder).total()
        yield from getattr(self, f"_{command}")(*words) or ()
        if (more := damage.found(self.folder).total() - damaged) > 0:
            yield f"damaged: {more}"

    @property
    def unfinished(self):
        (path,) = self.folder.glob(".*.open")
        return path

    def _limits(self, *limits):
        """For a spool without a record yet, or the same again."""
        self.first_id = None
        self.limits = {name: int(value) for name, value in (word.split("=") for word in limits)}
        return self._restart()

    def _restart(self):
        self.spool = spool_in(self.folder, **self.limits)
        self.first_id = self.first_id or self.spool.id
        if self.first_id != self.spool.id:
            yield "another spool"
        if self.spool.torn:
            yield f"torn: {self.spool.torn}"

    def _at(self, ms):
        self.now_ms = int(ms)
        if dropped := self.spool.tend(now_ms=self.now_ms):
            yield f"dropped: {dropped}"

    def _write(self, *details):
        try:
            self.spool.write(rows(*details), SHARED, now_ms=self.now_ms)
        except OSError as error:
            yield error.strerror

    def _write_without_room(self, detail):
        with files_of_at_most(self.unfinished.stat().st_size + 100):
            yield from self._write(detail)

    def _close(self):
        self.spool.close()

    def _cut(self, count):
        os.truncate(self.unfinished, self.unfinished.stat().st_size - int(count))

    def _zeros(self):
        with self.unfinished.open("ab") as file:
            file.write(b"\0" * 4_096 + b"\n")

    def _another_boot(self):
        """The power was cut: the last record is gone, too."""
        content = self.unfinished.read_bytes()
        os.truncate(self.unfinished, content[:-1].rindex(b"\n") + 1)
        file = self.folder / "spool"
        claim = msgspec.json.decode(damage.unsealed(file.read_bytes()), type=Claim)
        file.write_bytes(msgspec.json.encode(msgspec.structs.replace(claim, boot="f" * 32)))

    def _claim_is_damaged(self):
        (self.folder / "spool").write_text("{")

    def _take_away(self, span):
        (self.folder / f"3-{self.first_id}-{span}.jsonl").unlink()

    def _garble(self, number):
        """The first byte of a line of the file that is being written."""
        lines = self.unfinished.read_bytes().splitlines(keepends=True)
        lines[int(number) - 1] = b"\xff" + lines[int(number) - 1][1:]
        self.unfinished.write_bytes(b"".join(lines))

    def _number_on_disk(self, old, new):
        (path,) = self.folder.glob("*.jsonl")
        path.write_bytes(
            path.read_bytes().replace(b'"batch":%s' % old.encode(), b'"batch":%s' % new.encode())
        )

    def _without_checksums(self):
        (path,) = self.folder.glob("*.jsonl")
        path.write_bytes(re.sub(rb',"crc":"[0-9a-f]{8}"', b"", path.read_bytes()))

    def _files(self):
        names = sorted(path.stem.split("-", 2)[2] for path in self.folder.glob("*.jsonl"))
        yield " ".join(names) or "none"

    def _held(self):
        yield "{} to {}".format(*self.spool.held(self.spool.id))

    def _records(self):
        yield listed(records_in(self.folder))

    def _read(self, first, last, former=""):
        spool = self.first_id if former else self.spool.id
        part = self.spool.read(spool, int(first), int(last), bytes_max=10**6)
        yield "nothing" if part is None else listed(map(decode, part.lines.splitlines()))


def listed(records):
    numbers = [(r.batch if r.batch <= CLAIM else f"CLAIM+{r.batch - CLAIM}", r) for r in records]
    return " ".join(f"{number}.{r.row}:{r.detail}" for number, r in numbers)


@scenes(Path(__file__).with_name("spool.txt"))
def test_transcript(path, number, tmp_path):
    play(path, number, Stage(tmp_path))


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_what_a_crash_tore_off_is_cut_and_no_number_is_given_again(tmp_path, cut):
    stage = Stage(tmp_path)
    for command in ("write a", "write b c", f"cut {cut}"):
        list(stage.do(*command.split()))

    assert list(stage.do("restart")) == ["torn: 1", "damaged: 1"]
    list(stage.do("write", "d"))
    list(stage.do("close"))
    (told,) = stage.do("records")
    assert re.fullmatch(r"1\.0:a 2\.0:b CLAIM\+\d+\.0:d", told)


def test_the_oldest_segments_go_when_there_is_no_room_and_are_counted(tmp_path):
    spool = spool_in(tmp_path, bytes_max=3_000, segment_bytes_max=1, segment_age_ms=10**9)
    dropped = 0
    for number in range(40):
        spool.write(rows(f"number {number}"), SHARED, now_ms=0)
        dropped += spool.tend(now_ms=0)

    size = sum(file.stat().st_size for file in tmp_path.glob("*.jsonl"))
    held = [record.batch for record in records_in(tmp_path)]
    assert size <= 3_000
    assert held == list(range(dropped + 1, 41))
    assert spool.held(spool.id) == (dropped + 1, 40)
    assert dropped == spool.dropped > 0


def test_parts_are_whole_batches_and_together_what_is_on_disk(tmp_path):
    spool = spool_in(tmp_path, segment_bytes_max=20_000, segment_age_ms=10**9)
    for number in range(100):
        spool.write(rows(*(f"{number}-{i}" for i in range(number % 7 + 1))), SHARED, now_ms=0)
        spool.tend(now_ms=0)

    parts, at = [], 1
    while (part := spool.read(spool.id, at, 10**9, bytes_max=3_000)) is not None:
        assert part.first == at
        batches = [json.loads(line)["batch"] for line in part.lines.splitlines()]
        assert batches[-1] == part.last
        assert len(part.lines) <= 3_000 or len(set(batches)) == 1
        parts.append(part.lines)
        at = part.last + 1
    spool.close()

    assert at == 101
    assert [decode(line) for line in b"".join(parts).splitlines()] == records_in(tmp_path)
    assert len(list(tmp_path.glob("*.jsonl"))) > 2
    middle = spool.read(spool.id, 50, 50, bytes_max=10**6)
    assert {json.loads(line)["batch"] for line in middle.lines.splitlines()} == {50}


def test_a_flush_of_very_much_becomes_batches_that_fit_in_a_message(tmp_path):
    spool = spool_in(tmp_path)

    written = spool.write(rows(*("x" * 1_000 for _ in range(500))), SHARED, now_ms=0)
    spool.write(rows("y" * BATCH_BYTES_MAX), SHARED, now_ms=0)
    spool.close()

    sizes = [sum(map(len, lines)) for batch in written for lines in batch.values()]
    assert len(sizes) == 4
    assert max(sizes) <= BATCH_BYTES_MAX
    assert spool.oversized == 1
    assert len(records_in(tmp_path)) == 500
    assert {record.batch for record in records_in(tmp_path)} == {1, 2, 3, 4}
    assert {record.row for record in records_in(tmp_path) if record.batch == 4} >= {0, 1}
