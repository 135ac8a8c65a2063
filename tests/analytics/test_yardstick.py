"""The whole report against the yardstick: a log with copies, a skewed clock, and damaged lines."""

import pytest
from federator_analytics.jobs.report import run
from federator_analytics.schemas.reports import REPORT_TABLES

from lab.event_log.writing import Order, write
from tests.analytics.yardstick import Yardstick, differences

BROKERS, RECORDS, SEED = 5, 20_000, 6
CORRUPT = 0.01


@pytest.mark.full
@pytest.mark.timeout(900)  # a whole report: minutes on a machine that is busy tenfold
def test_every_table_is_as_the_yardstick_computes_it_and_damage_changes_none(spark, tmp_path):
    sound, damaged = tmp_path / "sound", tmp_path / "damaged"
    told = write(Order(BROKERS, RECORDS, SEED), sound, processes=1)
    harmed = write(Order(BROKERS, RECORDS, SEED, corrupt=CORRUPT), damaged, processes=1)

    run(spark, [str(damaged)], str(tmp_path / "report"))

    yardstick = Yardstick(sound, tmp_path)
    assert differences(yardstick, tmp_path / "report") == {}
    _, counts = yardstick.reported(tmp_path / "report" / "quarantine_counts")
    assert dict(counts) == harmed.damaged
    _, span = yardstick.reported(tmp_path / "report" / "span")
    assert span[0][3] == told.records
    assert span[0][-1] == told.copies > 0
    _, clocks = yardstick.reported(tmp_path / "report" / "clocks")
    assert {row[-1] for row in clocks} == {"ok", "corrected"}
    named = {"quarantine", "quarantine_counts"}
    compared = {path.name for path in (tmp_path / "report").iterdir() if path.is_symlink()}
    assert compared == set(REPORT_TABLES)
    assert len(REPORT_TABLES) - len(named) == 15
