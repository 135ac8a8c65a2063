"""Partial aggregates in the driver's memory: merged, and the quantiles of delays found in them.

What ``transforms.partials`` and ``transforms.quantiles`` do with tables of any size by plans, jobs
and generated code, done here with columns in memory: for the few rows that a micro-batch leaves,
an array's sort takes milliseconds from the first on. The rules are those of there: a partial's rows
of one key become one, and the q-quantile is the least value whose cumulative weight is at least q
times the total, decided in whole numbers.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analytics.transforms import hop_times
from analytics.transforms.delays import FLOW, MERGING, PERCENTS, SCOPES, WAY
from analytics.transforms.floors import Pair
from analytics.transforms.folding import Whole, whole
from analytics.transforms.packed import arrow_type
from analytics.transforms.pairs import Judged
from analytics.transforms.partials import Partial

KEY_BITS = 63
"""Of a sort key that is one whole number; other rows are sorted by two, which takes longer."""

DELAYS = Partial((*FLOW, "value_us"), sums=("publications",))
"""The partial ``delays`` whenever it was: bounded, for in time a flow's delays come again."""
STEPS = Partial((*hop_times.FRAME, "destination", "hop", "sender", "receiver", "step_us"))
"""Rows of ``hop_times.steps``."""


def empty(how: Partial) -> pa.Table:
    """No rows, with the partial's columns."""
    kinds = {name: arrow_type(name) for name in how.columns}
    return pa.schema(list(kinds.items())).empty_table()


def over_windows(delays: pa.Table) -> pa.Table:
    """(window_us, *WAY, publications, *PERCENTS) of the partial ``delays``, as measured."""
    ids, ways = numbered(delays, ("window_us", *WAY))
    values, weights = whole(delays["value_us"]), whole(delays["publications"])
    total, _, found = quantiles(ids, values, weights, PERCENTS)
    told = {name: ways[name] for name in ("window_us", *WAY)}
    return pa.table(told | {"publications": total} | found)


def over_steps(steps: pa.Table) -> pa.Table:
    """What ``transforms.hop_times.step_quantiles`` gives. ``steps``: STEPS."""
    ids, keys = numbered(steps, hop_times.STEP)
    values = whole(steps["step_us"])
    samples, least, found = quantiles(ids, values, np.ones_like(values), hop_times.PERCENTS)
    told = {name: keys[name] for name in hop_times.STEP}
    return pa.table(told | {"samples": samples} | found | {"least_us": least})


def over_scopes(
    delays: pa.Table, judged: Mapping[Pair, Judged], scopes: Iterable[str] = tuple(SCOPES)
) -> pa.Table:
    """(scope, *FLOW, *PERCENTS): the quantiles of table ``delay``.

    Args:
        delays: DELAYS, of all flows that are in one of the scopes' groups.
        judged: Of each of their pairs, as of ``PairFacts.judged``.
        scopes: Those to tell of.
    """
    ids, flows = numbered(delays, FLOW)
    of_flow = [
        judged[way] for way in zip(*(flows[key].to_pylist() for key in FLOW[:2]), strict=True)
    ]
    offset_us = np.array([offset or 0 for offset, _ in of_flow], np.int64)
    believed = np.array([quality != "flagged" for _, quality in of_flow], bool)
    value_us, weight = whole(delays["value_us"]) - offset_us[ids], whole(delays["publications"])
    tables = []
    for scope in scopes:
        keys = SCOPES[scope]
        groups, named = numbered(flows, keys)
        kept = believed if scope in MERGING else np.full(len(flows), True)
        present, groups[kept] = np.unique(groups[kept], return_inverse=True)
        rows = kept[ids]
        _, _, found = quantiles(groups[ids[rows]], value_us[rows], weight[rows], PERCENTS)
        columns = {"scope": pa.array([scope] * len(present), pa.string())}
        for key in FLOW:
            none = pa.nulls(len(present), flows[key].type)
            columns[key] = named[key].take(pa.array(present)) if key in keys else none
        tables.append(pa.table(columns | found))
    return pa.concat_tables(tables)


def quantiles(
    groups: Whole, values: Whole, weights: Whole, percents: Mapping[str, int]
) -> tuple[Whole, Whole, dict[str, Whole]]:
    """Of each group in order: its weight, its least value, its quantiles. Groups: 0 to n - 1."""
    order = _order(groups, values)
    groups, values, so_far = groups[order], values[order], np.cumsum(weights[order])
    changes = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    some = groups[:1] * 0  # a zero, if there is a row
    first, last = np.append(some, changes), np.append(changes, some + len(groups)) - 1
    before = np.append(some, so_far[changes - 1])
    total = so_far[last] - before
    found = {}
    for name, percent in percents.items():
        wanted = before - -total * percent // 100  # at least so much: rounded up
        found[name] = values[np.searchsorted(so_far, wanted)]
    return total, values[first], found


def _order(groups: Whole, values: Whole) -> npt.NDArray[np.intp]:
    """The order by group, then value."""
    if len(values) == 0:
        return np.zeros(0, np.intp)
    least = int(values.min())
    bits = (int(values.max()) - least).bit_length()
    if int(groups.max()).bit_length() + bits < KEY_BITS:
        return np.argsort((groups << bits) | (values - least))
    return np.lexsort((values, groups))


def numbered(rows: pa.Table, keys: Sequence[str]) -> tuple[Whole, pa.Table]:
    """Of each row the number of its key, and the keys in the order of their numbers."""
    code = np.zeros(len(rows), np.int64)
    for key in keys:
        told = rows[key].combine_chunks().dictionary_encode(null_encoding="encode")
        code = code * len(told.dictionary) + told.indices.to_numpy(zero_copy_only=False)
    _, first, ids = np.unique(code, return_index=True, return_inverse=True)
    return ids.astype(np.int64), rows.select(list(keys)).take(pa.array(first))
