"""Real processes append, and are killed at any moment or find the disk full."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from federator.runtime.custody.delivery_journal import DeliveryJournal
from federator.runtime.custody.log import CustodyLog
from federator.runtime.storage import damage
from federator.runtime.storage.filter_file import OWED, FilterFile
from tests.runtime.custody.custody_world import BOOT, add, key, open_log

CHILD = [sys.executable, "-m", "tests.runtime.custody.custody_child"]
ROOT = Path(__file__).parent.parent.parent
KILLS = 6


def taken_by_killed_children(what, folder, check):
    """Let children append, kill each at a random moment, and ``check`` what it said was taken."""
    moments = random.Random(what)
    for _ in range(KILLS):
        child = subprocess.Popen(
            [*CHILD, what, str(folder), "0"], stdout=subprocess.PIPE, cwd=ROOT, pipesize=4096
        )
        lines = [child.stdout.readline() for _ in range(moments.randrange(1, 1_000))]
        child.kill()
        lines += child.stdout.readlines()
        child.wait()
        child.stdout.close()
        said = [int(line) for line in lines if line.endswith(b"\n")]
        assert said == sorted(set(said))
        check(said)


def fill(what, folder, bytes_max):
    """What a child said was taken before its disk was full, and what it said then."""
    run = [*CHILD, what, str(folder), str(bytes_max)]
    lines = subprocess.run(run, capture_output=True, cwd=ROOT, check=True).stdout.splitlines()
    assert len(lines) > 10
    assert lines[-1].startswith(b"full: ")
    return int(lines[-2])


def test_a_log_whose_writer_is_killed_has_all_that_was_taken(tmp_path):
    said = set()

    def check(said_now):
        said.update(said_now)
        log = open_log(tmp_path, bytes_max=1 << 30)
        most = 2 * (len(said) + KILLS)  # two records at once; each kill may meet one more write
        held = [record.seq for record in log.recent(most + 1)]
        assert held == sorted(held, reverse=True)
        assert said <= set(held)
        assert len(held) <= most
        assert log.head(key(2)) in held[:2]
        log.close()

    taken_by_killed_children("log", tmp_path, check)


def test_a_journal_whose_writer_is_killed_has_all_that_was_taken(tmp_path):
    ids = set()

    def check(said):
        taken = said[-1]
        journal = DeliveryJournal(tmp_path)
        positions = journal.positions(None)
        assert journal.last >= taken
        assert positions[1, key(1)][1] >= taken - 1
        assert positions[2, key(2)][1] >= taken
        ids.add(journal.journal_id)
        journal.close()

    taken_by_killed_children("journal", tmp_path, check)
    assert len(ids) == 1


def test_a_list_of_filters_whose_writer_is_killed_has_all_that_was_taken(tmp_path):
    def check(said):
        taken = said[-1]
        owed = FilterFile(tmp_path, OWED)
        assert taken <= int(max(owed.load())) <= taken + 1
        assert len(owed.load()) <= 1 + KILLS, "each kill may leave one listed"
        owed.close()

    taken_by_killed_children("owed", tmp_path, check)


@pytest.mark.parametrize("bytes_max", [19_999, 20_000, 20_301])
def test_a_full_disk_leaves_the_log_whole_and_without_the_rest(tmp_path, bytes_max):
    taken = fill("log", tmp_path, bytes_max - 10_000)

    log = open_log(tmp_path)
    assert log.next_seq == taken + 1
    assert not damage.found(tmp_path)
    [record] = add(log, {1})
    assert log.read(taken + 1) == record
    log.close()


def test_a_full_disk_leaves_the_journal_and_the_list_of_filters_whole(tmp_path):
    entered, listed = fill("journal", tmp_path, 9_999), fill("owed", tmp_path, 9_999)

    journal, owed = DeliveryJournal(tmp_path), FilterFile(tmp_path, OWED)
    assert journal.last == entered
    assert listed <= int(max(owed.load())) <= listed + 1
    assert not damage.found(tmp_path)
    assert journal.append([(1, 1, 1, key(1))]) == entered + 1
    journal.close()
    owed.close()


def test_an_append_that_fails_half_way_takes_nothing_and_the_next_one_is_whole(tmp_path):
    script = f"""
import resource
from pathlib import Path
from tests.runtime.custody.custody_world import add, open_log
log = open_log(Path({str(tmp_path)!r}), bytes_max=1 << 30)
add(log, {{1}})
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 2000))
for _ in range(2):
    try:
        add(log, {{1}}, {{2}}, body=bytes(800))
    except OSError:
        print("full", log.next_seq, log.head(b"\\0" * 7 + b"\\1"), log.records, log.bytes)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
add(log, {{1}}, {{2}}, body=bytes(800))
log.close()
"""
    run = [sys.executable, "-c", script]
    out = subprocess.run(run, capture_output=True, cwd=ROOT, check=True, text=True).stdout

    [path] = (tmp_path / "custody").glob("*.log")
    assert out.splitlines() == [out.splitlines()[0]] * 2
    assert out.startswith("full 2 1 1 ")
    log = CustodyLog(path.parent, bytes_max=1 << 20, age_max_s=1e9, boot=BOOT)
    assert [record.seq for record in log.recent(9)] == [3, 2, 1]
    assert not damage.found(path.parent)
    log.close()
