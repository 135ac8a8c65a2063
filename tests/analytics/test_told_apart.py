"""Records that were read before, or twice, counted in the driver as one by one."""

import shutil
import tempfile
from collections import Counter
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from federator_analytics.errors import UsageError
from federator_analytics.jobs import stream
from federator_analytics.jobs.state import State, check_is_seen, fold_into
from federator_analytics.jobs.stream import Highest, tell_apart
from federator_analytics.transforms.partials import BESIDE, PARTIALS
from hypothesis import given
from hypothesis import strategies as st

from tests.analytics.landing import AGENT, record, text
from tests.analytics.test_folding import block

RECORDS = st.tuples(
    st.sampled_from(["s1", "s2"]), st.integers(1, 4), st.sampled_from([0, 1, 61, 62, 200])
)
"""(spool, batch, row)."""


def folded(folder, records, held):
    """COUNTED_MARKS of these, which are folded into files there."""
    lines = [
        record("agents", 7, spool=spool, batch=batch, row=row, **AGENT)
        for spool, batch, row in records
    ]
    return list(fold_into([block(text(lines).encode())], str(folder), held))


@given(st.lists(st.lists(RECORDS, max_size=12), max_size=5), st.integers(1, 3))
def test_each_record_counts_once_over_all_micro_batches(batches, at_once):
    with tempfile.TemporaryDirectory() as name, patch.object(stream, "HELD_AT_ONCE", at_once):
        state = State(Path(name), PARTIALS | BESIDE)
        highest = Highest(state.rows([], "marks"))
        for number, records in enumerate(batches):
            if not records:
                continue
            folder = Path(name, f".{number}")
            counted = pa.Table.from_batches(folded(folder, records, {}))
            if held := highest.doubtful(counted):
                shutil.rmtree(folder)
                folded(folder, records, held)
            tell_apart(folder, state.rows(state.spans(), "marks"))
            folder.rename(Path(name, f"span={number}-{number}"))
            highest.note(counted)
            if number % 2:  # as a process that begins anew
                highest = Highest(state.rows(state.spans(), "marks"))

        every = Counter(chain.from_iterable(batches))
        assert total(state, "agents_seen", "records") == len(every)
        assert total(state, "agents", "cpu_us") == len(every) * AGENT["cpu_us"]
        copies = every.total() - len(every)
        assert total(state, "duplicates", "records_twice") == copies


def test_workers_with_a_disk_of_their_own_are_an_error_and_no_loss(tmp_path):
    here, elsewhere = tmp_path / "driver", tmp_path / "worker"
    counted = pa.Table.from_batches(folded(elsewhere, [("s1", 1, 0), ("s1", 2, 0)], {}))

    check_is_seen(elsewhere, counted)
    with pytest.raises(UsageError, match="wrote 2 rows and 0 are there: a disk that all"):
        check_is_seen(here, counted)


def total(state, part, column):
    return sum(state.rows(state.spans(), part)[column].to_pylist())


def test_only_batches_that_may_have_been_read_are_looked_at_again(tmp_path):
    def counted(*records):
        return pa.Table.from_batches(folded(tmp_path, records, {}))

    highest = Highest(counted(("s1", 3, 0), ("s1", 2, 0), ("s2", 1, 0)))

    new = counted(("s1", 4, 0), ("s2", 2, 5), ("s3", 1, 0))
    again = counted(("s1", 3, 1), ("s2", 2, 5), ("s2", 4, 7), ("s2", 4, 7))
    assert highest.doubtful(new) == {}
    assert highest.doubtful(again) == {"s1": {3}, "s2": {4}}
