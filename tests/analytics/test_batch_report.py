"""The batch report of the example, whole and damaged, in one session."""

import random
from pathlib import Path

import pytest
from federator_analytics.errors import InputMissingError
from federator_analytics.jobs.report import run
from federator_analytics.sources.landing import literal

from tests.analytics.landing import example, land, record, reported, text

pytestmark = pytest.mark.timeout(900)  # some hundred small Spark jobs, on cores that are shared


@pytest.fixture(scope="module")
def whole(spark, tmp_path_factory):
    """The example's folder (``in``) and its report (``out``), which no test changes."""
    home = tmp_path_factory.mktemp("whole")
    land(home / "in", example(seconds=25))
    run(spark, [str(home / "in")], str(home / "out"))
    return home


def test_the_example_gives_the_figures_that_its_making_says(whole):
    tables = reported(whole / "out")

    pair = next(row for row in tables["delay"] if row[:3] == ("pair", 1, 3))
    delays = sorted(5_000 + 37 * s + 150 * i * i for s in range(1, 26) for i in range(4))
    assert pair[6] == 100
    assert pair[7] == pytest.approx(delays[49], rel=0.01)
    assert pair[8] == pytest.approx(delays[94], rel=0.01)
    assert pair[10:13] == (sum(delays) / 100, delays[0], delays[-1])
    assert pair[13:] == (5_000, 0, "ok")
    hops = {row[2]: row[3:7] for row in tables["hop_times"]}
    assert hops == {1: (1, 2, 25, 2_313), 2: (2, 3, 25, 3_226)}
    assert tables["loss"][0] == ("a/#", 1, 3, 1, 36, 36, 0, 0, 0, 24, 0, "compared")
    carried = sum((3_200 + s) // 8 for s in range(1, 26))
    assert tables["flows"] == [
        (origin, "a/#", carried * 8_000 / 25_000, 3_225, carried, 5 / 25) for origin in (1, 3)
    ]
    over = next(row for row in tables["overhead"] if row[0] is None)
    assert over[2:8] == (3, 2, 25, 100, 4.0, 4)
    assert tables["quarantine"] == []
    assert {row[0]: row[3] for row in tables["convergence"]} == {
        "agent_started": 0,
        "link_down": 2_000_000,
    }
    assert not (whole / "out" / "_staging").exists()


def test_bad_lines_cost_themselves_and_nothing_else(spark, whole, tmp_path):
    files = sorted((whole / "in").rglob("*.jsonl"))
    bad = {
        "not JSON": "lorem ipsum",
        "truncated": text([record("links", 1, batch=3, row=900)])[:40],
        "unknown version": '{"v":2,"table":"deliveries"}',
        "unknown table": '{"v":1,"table":"again"}',
        "wrong type: broker": '{"v":1,"table":"announcements","federation":"f","broker":"1"}',
        "wrong type: federation": text([record("announcements", 1, batch=1, row=9, federation=5)]),
        "missing: announcements": text([record("announcements", 1, batch=1, row=9)]),
        "out of range: announcements": text(
            [record("announcements", 1, batch=1, row=9, announcements=-1)]
        ),
    }
    chosen = random.Random(7)
    damaged = tmp_path / "damaged"
    for path in files:
        lines = path.read_text().splitlines()
        for reason in bad:
            lines.insert(chosen.randrange(len(lines) - 1), bad[reason].strip())
        lines.append(lines[-1] + lines[-2])  # a newline that was lost: two records, one line
        copy = damaged / path.relative_to(whole / "in")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("\n".join(lines) + "\n\n")
    (damaged / ".half-written.jsonl").write_text("{")
    (damaged / "note.txt").write_text("{")

    run(spark, [str(damaged), str(whole / "in")], str(tmp_path / "out"))

    clean, found = reported(whole / "out"), reported(tmp_path / "out")
    counted = dict(found.pop("quarantine_counts"))
    assert counted == {
        reason: len(files) + (len(files) if reason == "not JSON" else 0) for reason in bad
    }
    for file, line, reason, raw in found.pop("quarantine"):
        read = Path(file.removeprefix("file:")).read_text().splitlines()
        assert read[line - 1][:1_000] == raw, (reason, line)
    (span,) = found.pop("span")
    assert span[-1] == clean["span"][0][3]  # each record was also in the other folder
    assert span[:-1] == clean.pop("span")[0][:-1]
    del clean["quarantine"], clean["quarantine_counts"]
    assert found == clean


def test_records_that_are_twice_count_once_whatever_their_files_are_called(spark, whole, tmp_path):
    """Within a file, in two files, and in files that are read again by odd names."""
    files = sorted((whole / "in").rglob("*.jsonl"))
    odd = tmp_path / "o [d]{d,e}*?"
    for number, path in enumerate(files):
        lines = path.read_text().splitlines()
        (odd / f"{number}").mkdir(parents=True)
        (odd / f"{number}" / f"[{number}] a%20 b\\.jsonl").write_text("\n".join(lines) + "\n")
        (odd / f"{number}" / f"{{{number}}}.jsonl").write_text("\n".join(lines[-9:]) + "\n")
    first = next((odd / "0").glob("*a%20*"))
    first.write_text(first.read_text() + first.read_text().splitlines()[0] + "\n")

    run(spark, [literal(str(odd))], str(tmp_path / "out"))

    clean, found = reported(whole / "out"), reported(tmp_path / "out")
    (span,), (alone,) = found.pop("span"), clean.pop("span")
    assert span[-1] == 9 * len(files) + 1
    assert span[:-1] == alone[:-1]
    assert found == clean


def test_a_folder_that_is_not_there_is_named_and_an_empty_one_gives_empty_tables(spark, tmp_path):
    with pytest.raises(InputMissingError, match="nowhere: not there"):
        run(spark, [str(tmp_path / "nowhere")], str(tmp_path / "none"))
    (tmp_path / "empty").mkdir()

    run(spark, [str(tmp_path / "empty")], str(tmp_path / "out"))

    tables = reported(tmp_path / "out")
    assert tables["overhead"][0][2:4] == (0, 0)
    assert [name for name, told in tables.items() if told] == ["overhead"]
