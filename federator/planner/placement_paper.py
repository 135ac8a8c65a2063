"""The placement paper's random instances: Table 3, and what the paper leaves out, as parameters.

Not given are the mesh, the traffic of clients, users and services, and how container sizes vary.
Here: a random tree with extra links; all traffic uniform between 0 and twice its mean; a service
uses each topic with probability ``utilisation``. Capacities are scaled so that the whole workload
is ``load`` of them, when a load is given.

Source: papers/distributed-broker-placement.txt, section 5.2, Table 3; docs/placement.md, section 3.
"""

from dataclasses import dataclass

import numpy as np

from federator.planner.placement import Instance, Matrix

BROKER_WORK = 10.0
SERVICE_WORK = (1.0, 50.0)
DEVICE_POWER = (0.13, 0.25)
NETWORK_POWER = 1.37e-2
CAPACITY = (20_000.0, 40_000.0)
"""Table 3."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a sweep.

    Attributes:
        devices: D.
        topics: T.
        services: S.
        utilisation: Share of topics that a service uses, 0 to 1.
        load: Workload as a share of all capacities; None leaves Table 3's capacities.
        links: Links beyond a tree, per device.
        topic_mbps: Mean traffic of all clients with one topic.
        user_mbps: Mean traffic of all users with one service.
        shared_mbps: Mean traffic of one topic with one service that uses it.
        network_scale: Factor on Table 3's power per traffic.
        service_work: Least and most workload per Mbps of a service.
    """

    devices: int = 6
    topics: int = 10
    services: int = 6
    utilisation: float = 0.2
    load: float | None = None
    links: float = 0.5
    topic_mbps: float = 100.0
    user_mbps: float = 100.0
    shared_mbps: float = 50.0
    network_scale: float = 1.0
    service_work: tuple[float, float] = SERVICE_WORK


def draw(setting: Setting, *, seed: int) -> Instance:
    """A random instance."""
    rng = np.random.default_rng(seed)
    devices, topics, services = setting.devices, setting.topics, setting.services
    uses = rng.random((topics, services)) < setting.utilisation
    shared = uses * rng.uniform(0, 2 * setting.shared_mbps, (topics, services))
    instance = Instance(
        capacity=rng.uniform(*CAPACITY, devices),
        device_power=rng.uniform(*DEVICE_POWER, devices),
        network_power=NETWORK_POWER * setting.network_scale,
        hops=hops_of(_mesh(rng, devices, setting.links)),
        topic_traffic=_spread(rng, setting.topic_mbps, topics, devices),
        service_traffic=_spread(rng, setting.user_mbps, services, devices),
        shared_traffic=shared,
        broker_work=BROKER_WORK,
        service_work=rng.uniform(*setting.service_work, services),
        user_work=rng.uniform(*setting.service_work, services),
    )
    if setting.load is None:
        return instance
    scale = instance.work.sum() / (setting.load * instance.capacity.sum())
    return Instance(
        capacity=instance.capacity * scale,
        device_power=instance.device_power,
        network_power=instance.network_power,
        hops=instance.hops,
        topic_traffic=instance.topic_traffic,
        service_traffic=instance.service_traffic,
        shared_traffic=instance.shared_traffic,
        broker_work=instance.broker_work,
        service_work=instance.service_work,
        user_work=instance.user_work,
    )


def hops_of(linked: "np.ndarray[tuple[int, int], np.dtype[np.bool_]]") -> Matrix:
    """Hops between all devices by breadth-first search, shape (D, D); inf where no way leads."""
    devices = len(linked)
    hops = np.where(np.eye(devices, dtype=bool), 0.0, np.inf)
    reached = np.eye(devices, dtype=bool)
    for distance in range(1, devices):
        further = (reached @ linked) & ~np.isfinite(hops)
        if not further.any():
            break
        hops[further] = distance
        reached |= further
    return hops


def _mesh(
    rng: np.random.Generator, devices: int, extra: float
) -> "np.ndarray[tuple[int, int], np.dtype[np.bool_]]":
    linked = np.zeros((devices, devices), dtype=bool)
    for device in range(1, devices):
        linked[device, rng.integers(device)] = True
    for _ in range(round(extra * devices) if devices > 1 else 0):
        a, b = rng.choice(devices, 2, replace=False)
        linked[a, b] = True
    return linked | linked.T


def _spread(rng: np.random.Generator, mean: float, rows: int, devices: int) -> Matrix:
    """Traffic at each device; a row sums to ``mean`` on average."""
    return rng.uniform(0, 2 * mean / devices, (rows, devices))
