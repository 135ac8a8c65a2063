"""The quantiles of delays, found in memory: weighted values of many groups, in order.

What ``transforms.delays`` does with tables of any size by plans, jobs and generated code, done
here with columns in memory: for the rows that a micro-batch leaves, or for those of one pair, that
takes milliseconds from the first on.

To sort all delays anew for each refresh of the tables takes longer the older the stream is. Here a
group's values stay sorted, as in an index, with the weight of all up to each. So new rows cost
what it takes to find their places, and to move up those behind; a quantile of a group is one look,
and one over several groups, each with its own shift, is found by bisection: it lies between the
least and the greatest of theirs, and how much weighs less than any value is one look per group.

The q-quantile is the least value whose cumulative weight is at least q times the total, decided in
whole numbers, as in ``transforms.delays``.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from federator_analytics.transforms import hop_times
from federator_analytics.transforms.clocks import Judged, OneWay, Pair
from federator_analytics.transforms.delays import FLOW, MERGING, PERCENTS, SCOPES, WAY
from federator_analytics.transforms.folding import Whole, whole
from federator_analytics.transforms.load import MEDIAN
from federator_analytics.transforms.partials import Partial, arrow_type

_NONE = np.zeros(0, np.int64)


class Ranked:
    """The values of each group.

    ``groups``: what names each: the columns ``keys``, in the order of the groups' numbers.
    """

    def __init__(self, keys: Sequence[str], value: str, weight: str) -> None:
        self._keys, self._value, self._weight = tuple(keys), value, weight
        self._number: dict[tuple[object, ...], int] = {}
        self.groups = pa.table({key: pa.array([], arrow_type(key)) for key in self._keys})
        self._values = self._weights = _NONE
        self._ends = _NONE
        self._so_far = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, rows: pa.Table) -> None:
        """Rows of any order that have the keys, the value and the weight as columns."""
        of_row, named = numbered(rows, self._keys)
        before = len(self._number)
        told = zip(*(named[key].to_pylist() for key in self._keys), strict=True)
        number = np.array(
            [self._number.setdefault(key, len(self._number)) for key in told], np.int64
        )
        self.groups = pa.concat_tables([self.groups, named.filter(pa.array(number >= before))])
        groups = number[of_row]
        groups, values, weights = _summed(
            groups, whole(rows[self._value]), whole(rows[self._weight])
        )
        self._slide_in(groups, values, weights)

    def drop(self, key: str, gone: Sequence[int]) -> None:
        """Forget the groups whose ``key`` is one of these."""
        left = ~np.isin(whole(self.groups[key]), gone)
        rows = left[self._of_row()]
        lengths = self.lengths()[left]
        self.groups = self.groups.filter(pa.array(left))
        names = (named for named, stays in zip(self._number, left, strict=True) if stays)
        self._number = {named: number for number, named in enumerate(names)}
        self._values, self._weights = self._values[rows], self._weights[rows]
        self._ends = np.cumsum(lengths)
        self._so_far = np.append(0, np.cumsum(self._weights))

    def lengths(self) -> Whole:
        """How many values each group has."""
        return np.diff(self._ends, prepend=0)

    def totals(self) -> Whole:
        """What each group weighs."""
        return self._so_far[self._ends] - self._so_far[self._starts()]

    def least(self) -> Whole:
        """Each group's least value."""
        return self._values[self._starts()]

    def quantiles(self, percent: int) -> Whole:
        """One of each group."""
        before = self._so_far[self._starts()]
        return self._values[
            np.searchsorted(self._so_far[1:], before + share(self.totals(), percent))
        ]

    def over(self, several: Whole, shift: Whole, chosen: Whole, percent: int) -> Whole:
        """A quantile of each set of groups.

        Args:
            several: Of each chosen group the number of its set: 0 to n - 1, none left out.
            shift: Of each group what is taken off its values.
            chosen: Numbers of groups.
            percent: Which quantile.
        """
        count = int(several.max(initial=-1)) + 1
        wanted = share(_added(several, self.totals()[chosen], count), percent)
        shift = shift[chosen]
        own = self.quantiles(percent)[chosen] - shift
        low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
        np.minimum.at(low, several, own)
        np.maximum.at(high, several, own)
        first, last = self._starts()[chosen], self._ends[chosen]
        start = self._so_far[first]
        while (low < high).any():
            middle = (low + high) // 2
            place = self._place(middle[several] + shift, first, last)
            enough = _added(several, self._so_far[place] - start, count) >= wanted
            low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
            first = np.where(enough[several], first, place)
            last = np.where(enough[several], place, last)
        return low

    def _slide_in(self, groups: Whole, values: Whole, weights: Whole) -> None:
        """Rows of known groups, each value of a group once, in order."""
        new = len(self._number) - len(self._ends)
        self._ends = np.append(self._ends, np.full(new, len(self._values), np.int64))
        first = self._starts()[groups]
        place = self._place(values, first, self._ends[groups])
        there = place > first
        there[there] = self._values[place[there] - 1] == values[there]
        self._weights[place[there] - 1] += weights[there]
        absent = ~there
        self._values = np.insert(self._values, place[absent], values[absent])
        self._weights = np.insert(self._weights, place[absent], weights[absent])
        self._ends += np.cumsum(np.bincount(groups[absent], minlength=len(self._ends)))
        self._so_far = np.append(0, np.cumsum(self._weights))

    def _place(self, values: Whole, first: Whole, last: Whole) -> Whole:
        """The first place in ``first`` to ``last`` that has a greater value, for each value."""
        low, high = first.copy(), last.copy()
        left = np.flatnonzero(low < high)
        while len(left):
            middle = (low[left] + high[left]) // 2
            up_to = self._values[middle] <= values[left]
            low[left] = np.where(up_to, middle + 1, low[left])
            high[left] = np.where(up_to, high[left], middle)
            left = left[low[left] < high[left]]
        return low

    def _starts(self) -> Whole:
        return np.append(0, self._ends[:-1])[: len(self._ends)]

    def _of_row(self) -> Whole:
        return np.repeat(np.arange(len(self._ends)), self.lengths())


def numbered(rows: pa.Table, keys: Sequence[str]) -> tuple[Whole, pa.Table]:
    """The number of each row's key, and the keys in the order of their numbers."""
    code = np.zeros(len(rows), np.int64)
    for key in keys:
        told = rows[key].combine_chunks().dictionary_encode(null_encoding="encode")
        code = code * len(told.dictionary) + told.indices.to_numpy(zero_copy_only=False)
    _, first, ids = np.unique(code, return_index=True, return_inverse=True)
    return ids.astype(np.int64), rows.select(list(keys)).take(pa.array(first))


def share(total: Whole, percent: int) -> Whole:
    """The least weight that is so many percent of the total."""
    return -(-total * percent // 100)


def _summed(groups: Whole, values: Whole, weights: Whole) -> tuple[Whole, Whole, Whole]:
    """The rows in order of group and value, each once."""
    order = np.lexsort((values, groups))
    groups, values, weights = groups[order], values[order], weights[order]
    new = (groups[1:] != groups[:-1]) | (values[1:] != values[:-1])
    first = np.flatnonzero(np.append(True, new)[: len(groups)])
    return groups[first], values[first], np.add.reduceat(weights, first) if len(first) else weights


def _added(several: Whole, weights: Whole, count: int) -> Whole:
    total = np.zeros(count, np.int64)
    np.add.at(total, several, weights)
    return total


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
    return _found(delays, PERCENTS, publications=delays.totals())


def by_link(round_trips: pa.Table) -> pa.Table:
    """What ``of_links`` takes, of the partial ``round_trips``."""
    known = round_trips.filter(pc.is_valid(round_trips["round_trip_us"]))
    ends = known["broker"], known["neighbour"]
    told = {"a": pc.min_element_wise(*ends), "b": pc.max_element_wise(*ends)}
    return pa.table(told | {name: known[name] for name in ("round_trip_us", "windows")})


def over_links(round_trips: Ranked) -> pa.Table:
    """What ``transforms.load.median_round_trips`` gives. ``round_trips``: as ``of_links``."""
    return _found(round_trips, MEDIAN)


def seen(windows: Ranked, least: pa.Table) -> dict[Pair, OneWay]:
    """What ``clocks.pair_facts`` takes of each pair. ``least``: LEAST."""
    pairs = zip(*(windows.groups[key].to_pylist() for key in LEAST.keys), strict=True)
    count = dict(zip(pairs, windows.lengths().tolist(), strict=True))
    rows = zip(*(least[name].to_pylist() for name in LEAST.columns), strict=True)
    return {(a, b): OneWay(least_us, count[a, b]) for a, b, least_us in rows}


def over_steps(steps: pa.Table) -> pa.Table:
    """What ``transforms.hop_times.step_quantiles`` gives. ``steps``: STEPS."""
    ranked = Ranked(hop_times.STEP, "step_us", "one")
    ranked.add(with_one(steps))
    beside = {"samples": ranked.totals(), "least_us": ranked.least()}
    return _found(ranked, hop_times.PERCENTS, **beside)


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


def with_one(rows: pa.Table) -> pa.Table:
    """The rows, each of which weighs ``one``: what ``of_pairs`` takes of ``pair_windows``."""
    return rows.append_column("one", pa.repeat(pa.scalar(1, pa.int64()), len(rows)))


def _found(ranked: Ranked, percents: Mapping[str, int], **beside: Whole) -> pa.Table:
    """What names each group, what stands ``beside`` it, and its quantiles."""
    keys = {name: ranked.groups[name] for name in ranked.groups.column_names}
    return pa.table(keys | beside | {name: ranked.quantiles(of) for name, of in percents.items()})
