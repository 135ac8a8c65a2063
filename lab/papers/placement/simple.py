"""The paper's two simple methods: greedy and random.

Greedy "sorts distributed MQTT brokers and service containers in order of required workload, then
allocates them sequentially": brokers first, as they are started first (section 3.2.1), then
services, each by falling workload, to the device with room where it alone draws least power. Flows
to other containers are not looked at, which is what it is beaten for, and small brokers take room
that large services then miss. Random takes containers in any order and any device with room. Both
fail when something fits nowhere.

Source: Fawwaz 2022, 5.2.
"""

from collections.abc import Callable

import numpy as np

from lab.papers.placement.hops import Ints
from lab.papers.placement.instance import Instance, Placement, checked, room


def place_greedily(instance: Instance) -> Placement | None:
    """``None``: a container fitted nowhere."""
    kind = np.arange(instance.containers) >= instance.topics
    order = np.lexsort((-instance.work, kind))
    return _place(instance, order, "greedy", lambda c, fits: fits[instance.alone[c, fits].argmin()])


def place_randomly(instance: Instance, rng: np.random.Generator) -> Placement | None:
    """``None``: a container fitted nowhere."""
    order = rng.permutation(instance.containers)
    return _place(instance, order, "random", lambda c, fits: rng.choice(fits))


def _place(
    instance: Instance, order: Ints, method: str, choose: Callable[[int, Ints], int]
) -> Placement | None:
    free = room(instance)
    device_of: Ints = np.zeros(instance.containers, dtype=np.intp)
    for c in order:
        fits = np.flatnonzero(free >= instance.work[c])
        if not fits.size:
            return None
        device_of[c] = choose(c, fits)
        free[device_of[c]] -= instance.work[c]
    return checked(instance, device_of, method=method)
