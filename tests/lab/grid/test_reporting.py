"""A grid's report is held against what clients measured: counts exactly, delays closely."""

import json
from dataclasses import asdict

import msgspec
import pytest

from federator.protocol.telemetry.records import decode
from federator.protocol.telemetry.sketch import quantile
from lab.grid.clients import DELAYS_KEPT_MAX, Arrivals, Tally, stamped
from lab.grid.reporting import Copies, Run, compare, gather_spools, median_us, write_clients


def arrivals(*delays_ms, sent=None):
    tally = Tally(1, max(len(delays_ms), sent or 0), payload_bytes=24)
    for number, delay_ms in enumerate(delays_ms):
        tally.arrived(stamped(1, number, 10**9, payload_bytes=24), 10**9 + int(delay_ms * 1e6))
    return tally.arrivals(len(delays_ms) if sent is None else sent)


def run(destination, got):
    return Run(
        at_us=1,
        window_ms=9,
        publisher=6,
        destination=destination,
        qos=0,
        strategy="mesh",
        arrivals=got,
    )


def summary(*, delivered=3, p50_us=20_400, copies=12):
    row = {"origin": 6, "destination": 2, "publications": delivered, "delay_us_p50": p50_us}
    return {
        "delay": {"slowest_pairs": [row], "pairs": 1, **row},
        "overhead": {"overall": {"data_copies": copies, "duplicates_suppressed": 4}},
    }


LEGS = {6: 300.0, 2: 100.0, 7: 9_999.0}
RUNS = [run(2, arrivals(20.0, 20.8, 31.0))]


def test_a_report_that_says_what_clients_measured_agrees():
    found = compare(summary(), RUNS, Copies(12, 4), LEGS)

    assert [finding.agrees for finding in found] == [True, True, True]
    assert found[0].text == (
        "report: 3 of 3 deliveries from 6 to 2, p50 20.80 ms: 20.40 between agents and 0.40 at "
        "both brokers (clients 20.80)"
    )
    assert "12 data copies" in found[2].text


@pytest.mark.parametrize(
    ("changes", "agree"),
    [
        ({"p50_us": 20_850}, [True, True, True]),
        ({"delivered": 2}, [False, False, True]),
        ({"delivered": 4}, [False, False, True]),
        ({"p50_us": 19_899}, [False, True, True]),
        ({"p50_us": 20_901}, [False, True, True]),
        ({"p50_us": None}, [False, True, True]),
        ({"copies": 13}, [True, True, False]),
    ],
)
def test_a_report_that_differs_is_told(changes, agree):
    found = compare(summary(**changes), RUNS, Copies(12, 4), LEGS)

    assert [finding.agrees for finding in found] == agree


def test_an_empty_report_does_not_agree():
    empty = {
        "delay": {"slowest_pairs": [], "pairs": 0, "publications": 0, "delay_us_p50": None},
        "overhead": {"overall": None},
    }

    assert not any(finding.agrees for finding in compare(empty, RUNS, Copies(12, 4), LEGS))


def test_what_clients_measured_is_written_as_records(tmp_path):
    runs = [run(2, arrivals(1.5, 3.0, sent=3)), run(2, arrivals(2.0)), run(7, arrivals())]

    write_clients(runs, tmp_path, federation="grid")

    files = sorted(tmp_path.iterdir())
    assert [file.name.split("-")[0] for file in files] == ["2", "7"]
    first, second = (decode(line) for line in files[0].read_bytes().splitlines())
    assert (first.publications, first.expected, first.delays_us) == (2, 3, (1_500, 3_000))
    assert (second.row, second.broker, second.destination) == (1, 2, 2)
    (nothing,) = (decode(line) for line in files[1].read_bytes().splitlines())
    assert (nothing.publications, nothing.delay) == (0, [])


def test_arrivals_survive_the_way_out_of_the_child_process():
    got = arrivals(1.5, 3.0)

    assert msgspec.convert(json.loads(json.dumps(asdict(got))), Arrivals) == got


def test_the_median_of_long_runs_is_that_of_the_histogram():
    many = arrivals(*(20 + (n % 100) / 10 for n in range(DELAYS_KEPT_MAX + 1)))
    few = arrivals(20.0, 21.0, 22.0)

    assert many.delays.each_us == ()
    assert median_us([run(2, few)]) == 21_000
    assert median_us([run(2, many)]) == quantile([(many.delays.base_us, many.delays.buckets)], 0.5)
    assert abs(median_us([run(2, many)]) - 24_950) <= 60


def test_whole_segments_are_gathered_and_open_ones_are_not(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "metrics").mkdir(parents=True)
        (tmp_path / name / "metrics" / f"{name}.jsonl").write_text(name)
        (tmp_path / name / "metrics" / f".{name}.open").write_text("torn")
    (tmp_path / "out").mkdir()

    count = gather_spools(
        [tmp_path / "one", tmp_path / "two", tmp_path / "three"], tmp_path / "out"
    )

    assert count == 2
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["one.jsonl", "two.jsonl"]
