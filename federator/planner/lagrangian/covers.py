"""Which topics leave full links, for the least loss: knapsack problems, all solved at once.

On each link some topics must give up at least ``need`` of rate together; each would lose something.
The cheapest choice is a 0/1 knapsack problem, solved by dynamic programming over the need: in whole
units if rates are whole and the need is at most ``EXACT_MAX``, so exactly; else in ``GRID`` parts
of the need, to which rates are rounded **up**, or in fractions of topics, whichever bounds better.
The result never exceeds the true least loss.
"""

from dataclasses import dataclass

import numpy as np

from federator.planner.flow.instance import TOLERANCE, BoolArray, FloatArray, IntArray

EXACT_MAX = 256
"""A need up to so many units is met exactly."""
GRID = 48
"""Steps of any other need."""


@dataclass(frozen=True, slots=True, eq=False)
class Cover:
    """Which items leave all full links, and the loss."""

    loss: float  # of all links together; no choice loses less
    leaves: BoolArray  # whether each item leaves


def cheapest(link: IntArray, rate: FloatArray, loss: FloatArray, capacity: FloatArray) -> Cover:
    """Make the items of every link fit.

    Each item has a ``link``, ascending, a ``rate``, and a ``loss`` when it leaves, not negative;
    ``capacity`` is that of all links.
    """
    leaves = np.zeros(len(link), dtype=bool)
    load = np.bincount(link, rate, minlength=len(capacity))
    need = load - capacity - TOLERANCE * np.maximum(1.0, capacity)
    tight = np.flatnonzero(need > TOLERANCE)
    if not len(tight):
        return Cover(0.0, leaves)
    row_of = np.full(len(capacity), -1)
    row_of[tight] = np.arange(len(tight))
    items = np.flatnonzero(row_of[link] >= 0)
    row = row_of[link[items]]
    units = np.ceil(need[tight] - TOLERANCE)
    exact = (units <= EXACT_MAX) & bool((rate % 1 == 0).all())
    goal = np.where(exact, units, GRID).astype(np.intp)  # in steps
    parts = np.floor(rate[items] * (GRID / need[tight][row])) + 1
    width = np.minimum(np.where(exact[row], rate[items], parts), goal[row]).astype(np.intp)
    useful = _useful(row, width, loss[items], goal)
    least, parted = _fractional(row, rate[items], loss[items], need[tight])
    total = np.zeros(len(tight))
    taken = np.zeros(len(items), dtype=bool)
    for low in (1 << k for k in range(EXACT_MAX.bit_length())):
        alike = (goal >= low) & (goal < 2 * low)
        mine = useful[alike[row[useful]]]
        if len(mine):
            among = np.cumsum(alike) - 1
            value, chosen = _choose_alike(
                among[row[mine]], width[mine], loss[items[mine]], goal[alike]
            )
            total[alike] = value
            taken[mine] = chosen
    loose = least > total
    leaves[items] = np.where(loose[row], parted, taken)
    return Cover(float(np.maximum(total, least).sum()), leaves)


def _fractional(
    row: IntArray, rate: FloatArray, loss: FloatArray, need: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Least loss of each row when items may leave in part, and which do so at least in part."""
    order = np.lexsort((loss / rate, row))
    left_of = np.cumsum(rate[order]) - rate[order]
    begins = np.searchsorted(row[order], np.arange(len(need)))
    left_of -= left_of[begins][row[order]]
    part = np.clip((need[row[order]] - left_of) / rate[order], 0.0, 1.0)
    least = np.bincount(row[order], part * loss[order], minlength=len(need)).astype(np.float64)
    leave = np.zeros(len(row), dtype=bool)
    leave[order] = part > 0
    return least, leave


def _useful(row: IntArray, width: IntArray, loss: FloatArray, goal: IntArray) -> IntArray:
    """Items that can be part of a cheapest choice: of one width no more than fill the goal."""
    order = np.lexsort((loss, width, row))
    group = row[order] * np.intp(EXACT_MAX + 1) + width[order]
    begins = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    rank = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    kept: IntArray = order[rank * width[order] < goal[row[order]]]
    return kept


def _choose_alike(
    row: IntArray, width: IntArray, loss: FloatArray, goal: IntArray
) -> tuple[FloatArray, BoolArray]:
    """Least loss of rows with similar goals, and which items leave."""
    order = np.argsort(row, kind="stable")
    row, width, loss = row[order], width[order], loss[order]
    count = np.bincount(row, minlength=len(goal))
    column = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    shape = (len(goal), int(count.max()))
    widths, prices = np.zeros(shape, dtype=np.intp), np.full(shape, np.inf)
    widths[row, column], prices[row, column] = width, loss
    total, taken = _choose(widths, prices, goal)
    chosen = np.zeros(len(row), dtype=bool)
    chosen[order] = taken[row, column]
    return total, chosen


def _choose(width: IntArray, price: FloatArray, goal: IntArray) -> tuple[FloatArray, BoolArray]:
    """Least price of items that are together as wide as ``goal``, row by row, and which they are.

    Shapes are (rows, items), and (rows,) of ``goal``; ``price`` is infinite where no item is.
    """
    rows, items = width.shape
    reached = np.arange(int(goal.max()) + 1)
    best = np.full((rows, len(reached)), np.inf)
    best[:, 0] = 0.0
    took = np.zeros((items, rows, len(reached)), dtype=bool)
    for item in range(items):
        rest = np.maximum(reached[None, :] - width[:, item, None], 0)
        with_it = np.take_along_axis(best, rest, axis=1) + price[:, item, None]
        took[item] = with_it < best
        best = np.where(took[item], with_it, best)
    every = np.arange(rows)
    taken = np.zeros((rows, items), dtype=bool)
    left = goal.copy()
    for item in reversed(range(items)):
        chosen = took[item][every, left]
        taken[chosen, item] = True
        left = np.where(chosen, np.maximum(left - width[:, item], 0), left)
    return best[every, goal], taken
