"""Rows that tell the linear model what capacities mean to two containers at once.

The relaxation lets a container spread over all devices in equal parts, each part beside the same
part of whatever it has flows with: no hop is paid, and nothing seems overfull. But where a
container is, its partners find only the room that it leaves. For container c on device d, and every
device e, over the partners o of c:

    sum_o work_o psi(o on e, c on d)  <=  room x(c on d),     room = C_e, less work_c where e is d

which is the capacity of e times x (reformulation-linearisation, of the pairs that have flows). And
since partners are whole, of any set of them at most as many fit as its smallest do (extended
covers): sum_o psi(o on e, c on d) <= count x(c on d).

Source: Sherali and Adams 1990; Balas 1975; docs/placement.md, section 2.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from federator.planner.placement import Instance, Ints, Matrix, room

PRODUCTS_MAX: Final = 20_000
"""Products of two variables in a model; of larger ones the rows cost more than they save."""

Cut = tuple[list[tuple[int, float]], float]
"""Columns with their values, and the most they may sum to."""


def cuts(instance: Instance, *, first_product: int) -> Iterator[Cut]:
    """All of them, for a model in which the psi of pair p begin at ``first_product + p * D * D``.

    Args:
        instance: What is to be placed.
        first_product: The column of the first pair's first product; x stand before it.
    """
    devices, capacity = instance.devices, room(instance)
    for c in range(instance.containers):
        pairs, others = _partners(instance, c)
        order = np.argsort(instance.work[others], kind="stable")
        pairs, work = pairs[order], instance.work[others[order]]
        is_first = instance.pairs[pairs, 0] != c  # of the pair: its device counts rows of psi
        starts = first_product + pairs * devices**2
        for here in range(devices):
            for there in range(devices):
                left = float(capacity[there] - (instance.work[c] if here == there else 0.0))
                places = np.where(is_first, there * devices + here, here * devices + there)
                yield from _of_one(starts + places, work, left, c * devices + here)


def _of_one(columns: Ints, work: Matrix, left: float, own: int) -> Iterator[Cut]:
    """Cuts over partners by rising workload, of which ``left`` fits where ``own`` is chosen."""
    if work.sum() <= left:
        return
    weighted = zip(columns.tolist(), work.tolist(), strict=True)
    yield [*weighted, (own, -max(left, 0.0))], 0.0
    former = None
    for at in range(len(work)):
        fit = int(np.searchsorted(np.cumsum(work[at:]), left, side="right"))
        if fit == len(work) - at:
            return
        if fit != former:  # a smaller set of the same count says nothing new
            yield [*((column, 1.0) for column in columns[at:].tolist()), (own, -float(fit))], 0.0
        former = fit


def _partners(instance: Instance, c: int) -> tuple[Ints, Ints]:
    """Pairs of ``c``, and who the other one is."""
    pairs = np.flatnonzero((instance.pairs == c).any(axis=1))
    both = instance.pairs[pairs]
    return pairs, np.where(both[:, 0] == c, both[:, 1], both[:, 0])
