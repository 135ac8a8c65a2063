"""The quantiles of delays, found in memory.

What ``transforms.quantiles`` does with tables of any size by plans, jobs and generated code, done
here with columns in memory (``transforms.ranked``): for the rows that a micro-batch leaves, or for
those of one pair, that takes milliseconds from the first on.
"""

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.transforms import hop_times
from analytics.transforms.clocks import OneWay, Pair
from analytics.transforms.delays import FLOW, MERGING, PERCENTS, SCOPES, WAY
from analytics.transforms.folding import Whole
from analytics.transforms.load import MEDIAN
from analytics.transforms.pairs import Judged
from analytics.transforms.partials import Partial, arrow_type
from analytics.transforms.ranked import Ranked, numbered

STEPS = Partial((*hop_times.FRAME, "destination", "hop", "sender", "receiver", "step_us"))
"""Rows of ``hop_times.steps``."""

LEAST = Partial(("origin", "destination"), least=("min_us",))
"""The partial ``pair_windows`` whenever it was."""


def empty(how: Partial) -> pa.Table:
    """No rows, with the partial's columns."""
    kinds = {name: arrow_type(name) for name in how.columns}
    return pa.schema(list(kinds.items())).empty_table()


of_flows = partial(Ranked, FLOW, "value_us", "publications")
"""An index of delays whenever they were: bounded, for in time a flow's delays come again."""
of_windows = partial(Ranked, ("window_us", *WAY), "value_us", "publications")
"""An index of delays by window."""
of_links = partial(Ranked, ("a", "b"), "round_trip_us", "windows")
"""An index of round trips over links, whichever end measured them."""
of_pairs = partial(Ranked, ("origin", "destination"), "window_us", "one")
"""An index of the windows in which a pair had deliveries."""


def over_windows(delays: Ranked) -> pa.Table:
    """(window_us, *WAY, publications, *PERCENTS), as measured. ``delays``: as ``of_windows``."""
    told = {"publications": delays.totals()}
    told |= {name: delays.quantiles(percent) for name, percent in PERCENTS.items()}
    return _beside(delays.groups, told)


def by_link(round_trips: pa.Table) -> pa.Table:
    """What ``of_links`` takes, of the partial ``round_trips``."""
    known = round_trips.filter(pc.is_valid(round_trips["round_trip_us"]))
    ends = known["broker"], known["neighbour"]
    told = {"a": pc.min_element_wise(*ends), "b": pc.max_element_wise(*ends)}
    return pa.table(told | {name: known[name] for name in ("round_trip_us", "windows")})


def over_links(round_trips: Ranked) -> pa.Table:
    """What ``transforms.load.median_round_trips`` gives. ``round_trips``: as ``of_links``."""
    told = {name: round_trips.quantiles(percent) for name, percent in MEDIAN.items()}
    return _beside(round_trips.groups, told)


def by_pair(pair_windows: pa.Table) -> pa.Table:
    """What ``of_pairs`` takes, of the partial ``pair_windows``."""
    return _with_one(pair_windows)


def seen(windows: Ranked, least: pa.Table) -> dict[Pair, OneWay]:
    """What ``pairs.pair_facts`` takes of each pair. ``least``: LEAST."""
    pairs = zip(*(windows.groups[key].to_pylist() for key in LEAST.keys), strict=True)
    count = dict(zip(pairs, windows.lengths().tolist(), strict=True))
    rows = zip(*(least[name].to_pylist() for name in LEAST.columns), strict=True)
    return {(a, b): OneWay(least_us, count[a, b]) for a, b, least_us in rows}


def over_steps(steps: pa.Table) -> pa.Table:
    """What ``transforms.hop_times.step_quantiles`` gives. ``steps``: STEPS."""
    ranked = Ranked(hop_times.STEP, "step_us", "one")
    ranked.add(_with_one(steps))
    told = {"samples": ranked.totals()}
    told |= {name: ranked.quantiles(percent) for name, percent in hop_times.PERCENTS.items()}
    return _beside(ranked.groups, told | {"least_us": ranked.least()})


def over_scopes(
    delays: Ranked, judged: Mapping[Pair, Judged], scopes: Iterable[str] = tuple(SCOPES)
) -> pa.Table:
    """(scope, *FLOW, *PERCENTS): the quantiles of corrected delays that table ``delay`` tells.

    Args:
        delays: As ``of_flows``: of all flows that are in one of the scopes' groups.
        judged: Of each of their pairs, as of ``PairFacts.judged``.
        scopes: Those to tell of.
    """
    flows = delays.groups
    of_flow = [
        judged[way] for way in zip(*(flows[key].to_pylist() for key in FLOW[:2]), strict=True)
    ]
    offset_us = np.array([offset or 0 for offset, _ in of_flow], np.int64)
    believed = np.array([quality != "flagged" for _, quality in of_flow], bool)
    tables = []
    for scope in scopes:
        keys = SCOPES[scope]
        chosen = np.flatnonzero(believed | (scope not in MERGING))
        members = flows.take(pa.array(chosen))
        several, named = numbered(members, keys)
        count = int(several.max(initial=-1)) + 1
        columns = {"scope": pa.array([scope] * count, pa.string())}
        for key in FLOW:
            columns[key] = named[key] if key in keys else pa.nulls(count, flows[key].type)
        for name, percent in PERCENTS.items():
            columns[name] = delays.over(several, offset_us, chosen, percent)
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def _with_one(rows: pa.Table) -> pa.Table:
    return rows.append_column("one", pa.repeat(pa.scalar(1, pa.int64()), len(rows)))


def _beside(keys: pa.Table, told: Mapping[str, Whole]) -> pa.Table:
    return pa.table({name: keys[name] for name in keys.column_names} | dict(told))
