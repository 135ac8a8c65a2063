"""The paper's two simple methods: greedy and random.

Greedy takes containers by falling workload and puts each where it alone draws least power, among
devices with room; flows to other containers are not looked at, which is what it is beaten for.
Random takes them in any order and any device with room. Both fail when something fits nowhere.

Source: papers/distributed-broker-placement.txt, section 5.2.
"""

import numpy as np

from federator.planner.placement import Instance, Ints, Placement, checked, room


def place_greedily(instance: Instance) -> Placement | None:
    """``None``: a container fitted nowhere."""
    free = room(instance)
    device_of: Ints = np.zeros(instance.containers, dtype=np.intp)
    for c in np.argsort(-instance.work, kind="stable"):
        fits = free >= instance.work[c]
        if not fits.any():
            return None
        device_of[c] = np.where(fits, instance.alone[c], np.inf).argmin()
        free[device_of[c]] -= instance.work[c]
    return checked(instance, device_of, method="greedy")


def place_randomly(instance: Instance, rng: np.random.Generator) -> Placement | None:
    """``None``: a container fitted nowhere."""
    free = room(instance)
    device_of: Ints = np.zeros(instance.containers, dtype=np.intp)
    for c in rng.permutation(instance.containers):
        fits = np.flatnonzero(free >= instance.work[c])
        if not fits.size:
            return None
        device_of[c] = rng.choice(fits)
        free[device_of[c]] -= instance.work[c]
    return checked(instance, device_of, method="random")
