"""Where broker and service containers run so that the network draws the least power.

    minimise    sum_d eps_d load_d  +  eps_N sum over flows of traffic * hops
    subject to  every container on one device,  load_d <= C_d

A flow joins a container to the clients at a device, or the broker of a topic to a service that uses
the topic. Flows of the second kind tie containers together, which makes the problem hard: without
them it is a generalised assignment problem. Containers are numbered topics first, then services.

Formulas (5), (6) and (11) are corrected: workloads follow the traffic of the container, not of the
device, and a service's flow is summed over the device it runs on and the device its users are at.

Source: Fawwaz 2022, 4; docs/placement.md 2.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lab.papers.placement.hops import Ints, Matrix, PlacementError

SLACK = 1e-6  # share of a capacity by which rounding may exceed it


class InfeasibleError(PlacementError):
    """Proven: no placement satisfies the capacities."""


@dataclass(frozen=True, eq=False)
class Instance:
    """One problem with D devices, T topics and S services. Traffic is in Mbps, power in mW."""

    capacity: Matrix  # shape (D,), workload
    device_power: Matrix  # shape (D,), mW per workload
    network_power: float  # mW per Mbps and hop
    hops: Matrix  # shape (D, D), between devices; zero on the diagonal
    # Shape (T, D), of the clients at a device with the broker of a topic (tau).
    topic_traffic: Matrix
    service_traffic: Matrix  # shape (S, D), of the users at a device with a service (delta_sd)
    shared_traffic: Matrix  # shape (T, S), of the broker of a topic with a service (delta_st)
    broker_work: float  # workload per Mbps of a broker container
    service_work: Matrix  # shape (S,), workload per Mbps of topics
    user_work: Matrix  # shape (S,), workload per Mbps of users

    def __post_init__(self) -> None:
        devices = len(self.capacity)
        topics, services = self.shared_traffic.shape
        wanted = {
            "capacity": (devices,),
            "device_power": (devices,),
            "hops": (devices, devices),
            "topic_traffic": (topics, devices),
            "service_traffic": (services, devices),
            "shared_traffic": (topics, services),
            "service_work": (services,),
            "user_work": (services,),
        }
        for name, shape in wanted.items():
            value: Matrix = getattr(self, name)
            if value.shape != shape:
                raise PlacementError(f"{name} must have shape {shape}, got {value.shape}")
            if not np.isfinite(value).all() or (value < 0).any():
                raise PlacementError(f"{name} must be finite and not negative")
        for name in ("network_power", "broker_work"):
            number: float = getattr(self, name)
            if not (np.isfinite(number) and number >= 0):
                raise PlacementError(f"{name} must be finite and not negative, got {number}")
        if not devices:
            raise PlacementError("at least one device is wanted, got 0")
        if np.diagonal(self.hops).any():
            raise PlacementError("hops from a device to itself must be 0")

    @property
    def devices(self) -> int:
        return len(self.capacity)

    @property
    def topics(self) -> int:
        return int(self.shared_traffic.shape[0])

    @property
    def containers(self) -> int:
        return sum(self.shared_traffic.shape)

    @cached_property
    def work(self) -> Matrix:
        """Workload of each container, shape (T + S,): (5) and (6)."""
        shared = self.shared_traffic
        brokers = self.broker_work * (self.topic_traffic.sum(axis=1) + shared.sum(axis=1))
        services = self.service_work * shared.sum(axis=0)
        services = services + self.user_work * self.service_traffic.sum(axis=1)
        return np.concatenate([brokers, services])

    @cached_property
    def alone(self) -> Matrix:
        """Power of a container on a device apart from flows to other containers, (T + S, D)."""
        clients = np.concatenate([self.topic_traffic, self.service_traffic])
        network = self.network_power * (clients @ self.hops)
        return np.outer(self.work, self.device_power) + network

    @cached_property
    def pairs(self) -> Ints:
        """Containers with flows between them, shape (P, 2): a broker and a service."""
        topic, service = np.nonzero(self.shared_traffic)
        return np.stack([topic, service + self.topics], axis=1)

    @cached_property
    def pair_power(self) -> Matrix:
        """mW per hop between the two containers of a pair, shape (P,)."""
        topic, container = self.pairs.T
        weights: Matrix = self.shared_traffic[topic, container - self.topics]
        return self.network_power * weights


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where everything runs, and what is known about it."""

    device_of: Ints  # per container, shape (T + S,)
    power: float  # recomputed from ``device_of``, mW
    lower_bound: float  # proven: no placement draws less
    method: str  # how it was found

    @property
    def gap(self) -> float:
        """What could still be saved at most, as a share of the power."""
        return max(0.0, (self.power - self.lower_bound) / self.power) if self.power else 0.0


def load(instance: Instance, device_of: Ints) -> Matrix:
    """Workload on each device, shape (D,)."""
    carried = np.bincount(device_of, weights=instance.work, minlength=instance.devices)
    return carried.astype(np.float64)


def traffic_hops(instance: Instance, device_of: Ints) -> float:
    """Mbps times hops, over all flows: (9) to (12)."""
    at = device_of[: instance.topics], device_of[instance.topics :]
    hops = instance.hops
    clients = (instance.topic_traffic * hops[at[0]]).sum()
    users = (instance.service_traffic * hops[at[1]]).sum()
    return float(clients + users + (instance.shared_traffic * hops[np.ix_(*at)]).sum())


def power(instance: Instance, device_of: Ints) -> float:
    """The objective (14), in mW, from its definition."""
    compute = float(instance.device_power @ load(instance, device_of))
    return compute + instance.network_power * traffic_hops(instance, device_of)


def room(instance: Instance) -> Matrix:
    """Capacities with the slack for rounding, shape (D,)."""
    return instance.capacity * (1 + SLACK)


def checked(
    instance: Instance, device_of: Ints, *, method: str, lower_bound: float = 0.0
) -> Placement:
    """``device_of`` as a placement, verified; raises ``PlacementError``: it overloads a device."""
    overloaded = np.flatnonzero(load(instance, device_of) > room(instance))
    if overloaded.size:
        raise PlacementError(f"devices {overloaded.tolist()} carry more than their capacity")
    drawn = power(instance, device_of)
    assert lower_bound <= drawn * (1 + SLACK) + SLACK, f"{lower_bound} bounds {drawn}"
    return Placement(device_of, drawn, min(lower_bound, drawn), method)
