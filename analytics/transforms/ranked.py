"""Weighted values of many groups, in order: new ones slide in, and a quantile is looked up.

To sort all delays anew for each refresh of the tables takes longer the older the stream is. Here a
group's values stay sorted, as in an index, with the weight of all up to each. So new rows cost
what it takes to find their places, and to move up those behind; a quantile of a group is one look,
and one over several groups, each with its own shift, is found by bisection: it lies between the
least and the greatest of theirs, and how much weighs less than any value is one look per group.

The q-quantile is the least value whose cumulative weight is at least q times the total, decided in
whole numbers, as in ``transforms.quantiles``.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from analytics.transforms.folding import Whole, whole
from analytics.transforms.partials import arrow_type

_NONE = np.zeros(0, np.int64)


class Ranked:
    """The values of each group.

    Attributes:
        groups: What names each: the columns ``keys``, in the order of the groups' numbers.
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
