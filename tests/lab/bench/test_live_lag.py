import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from federator_analytics.errors import InputMissingError

from lab.bench.live_lag import Segment, counted_lines, lag_of, segments_of


def test_a_record_is_visible_when_the_last_line_of_its_segment_is_counted(tmp_path):
    segments = [Segment(tmp_path, lines) for lines in (100, 200, 400)]

    lag = lag_of(segments, [10.0, 12.0], [(9.0, 100), (13.0, 250), (17.0, 400)])

    assert lag.records == 300
    assert lag.rate == 150
    assert (lag.behind_p50_s, lag.behind_p95_s, lag.behind_max_s) == (5.0, 5.0, 5.0)
    assert lag.updates == 3


def test_the_lag_is_weighed_by_records(tmp_path):
    segments = [Segment(tmp_path, lines) for lines in (0, 900, 1_000)]

    lag = lag_of(segments, [10.0, 11.0], [(9.0, 0), (12.0, 900), (20.0, 1_000)])

    assert (lag.behind_p50_s, lag.behind_p95_s, lag.behind_max_s) == (2.0, 9.0, 9.0)


def test_segments_land_in_the_order_in_which_they_came_to_be(tmp_path):
    for name, at in (("1-a-1-1", 30), ("2-b-1-1", 10), ("3-c-1-1", 200)):
        folder = tmp_path / f"hour={name[0]}"
        folder.mkdir()
        (folder / f"{name}.jsonl").write_text(f'{{"v":1,"at_us":{at},"row":0}}\n' * 2)

    found = segments_of(tmp_path)

    assert [s.path.name[0] for s in found] == ["2", "1", "3"]
    assert [s.lines_so_far for s in found] == [2, 4, 6]


def test_a_folder_without_segments_is_named(tmp_path):
    with pytest.raises(InputMissingError, match=r"holds no \*\.jsonl"):
        segments_of(tmp_path)


def test_every_line_is_counted_whatever_became_of_it(tmp_path):
    assert counted_lines(tmp_path) == 0

    for name, columns in {
        "span": {"records": [90], "duplicates_removed": [7]},
        "quarantine_counts": {"reason": ["not JSON", "unknown table"], "records": [2, 1]},
    }.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(columns), tmp_path / name / "part-0.parquet")

    assert counted_lines(tmp_path) == 100
