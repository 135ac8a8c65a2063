"""Random placement instances, and the stupid way to solve the small ones."""

from itertools import product

import numpy as np

from lab.papers.placement.instance import Instance, load, power, room
from lab.papers.placement.instances import Setting, draw


def tiny(seed):
    """Up to 3 devices and 5 containers; tight enough that some have no placement."""
    rng = np.random.default_rng(seed)
    setting = Setting(
        devices=int(rng.integers(1, 4)),
        topics=int(rng.integers(1, 4)),
        services=int(rng.integers(0, 3)),
        utilisation=float(rng.uniform(0.3, 1.0)),
        load=float(rng.uniform(0.3, 0.95)),
        network_scale=float(rng.choice([1.0, 100.0, 1000.0])),
    )
    return draw(setting, seed=seed)


def brute_force(instance):
    """The least power over all placements; infinite when none is allowed."""
    best = np.inf
    for choice in product(range(instance.devices), repeat=instance.containers):
        device_of = np.array(choice, dtype=np.intp)
        if (load(instance, device_of) <= room(instance)).all():
            best = min(best, power(instance, device_of))
    return best


def built(**changes):
    """Two devices one hop apart, one topic, one service that uses it; change what matters."""
    values = {
        "capacity": np.array([100.0, 100.0]),
        "device_power": np.array([1.0, 2.0]),
        "network_power": 3.0,
        "hops": np.array([[0.0, 1.0], [1.0, 0.0]]),
        "topic_traffic": np.array([[1.0, 2.0]]),
        "service_traffic": np.array([[4.0, 0.0]]),
        "shared_traffic": np.array([[5.0]]),
        "broker_work": 2.0,
        "service_work": np.array([3.0]),
        "user_work": np.array([7.0]),
    }
    return Instance(**{**values, **changes})
