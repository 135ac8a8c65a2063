"""The instance that a steerer measured, as a file for ``federator plan``.

Flows are topics, with rates in kbit/s. A link's capacity is its room for them, without its
background, if it may be ``FILL_MAX`` full.

Source: docs/steering.md, "What was measured, as an instance".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from federator.planner.flow.instance import Instance
from federator.planner.flow.routing import account, from_arcs
from federator.planner.steering.fitting import FILL_MAX, Problem
from federator.protocol.types import BrokerId

KBIT: Final = 1e-3
"""From bit/s."""

CAPACITY_MIN: Final = 1e-6
"""The capacity, in kbit/s, of a link without room: a file requires more than 0."""

NAME_CHARS_MAX: Final = 200


class Measured(NamedTuple):
    """An instance, and the ways that its flows take."""

    instance: Instance
    path_cost: float  # of those ways, as ``plan solve`` counts
    overloaded: int  # how many links are fuller than ``FILL_MAX``


def measured(problem: Problem, names: Mapping[BrokerId, str]) -> Measured:
    """``problem``, with flows on ordinary ways and on trees, and brokers named by ``names``."""
    bare = problem.instance(FILL_MAX, unit=KBIT)
    brokers = problem.network.brokers
    once = len({names.get(id, str(id)) for id in brokers}) == len(brokers)
    called = [names.get(id, str(id)) if once else str(id) for id in brokers]
    topics = [
        f"{', '.join(wish.filters)[:NAME_CHARS_MAX] or number} from {wish.origin}"
        for number, wish in enumerate(problem.wishes)
    ]
    if len(set(topics)) < len(topics):  # cut short
        topics = [f"{number}: {topic}" for number, topic in enumerate(topics)]
    instance = replace(
        bare,
        names=tuple(called),
        capacity=np.maximum(bare.capacity, CAPACITY_MIN),
        topic_names=tuple(topics),
    )
    ways = from_arcs([problem.arcs_of(wish.way) for wish in problem.wishes])
    counted = account(instance, ways, overloads=True)
    over = counted.load > instance.capacity * (1 + 1e-9) + CAPACITY_MIN
    return Measured(instance, counted.path_cost, int(over.sum()))
