"""A placement instance as JSON, and back.

    {"devices": [{"capacity": 30000, "power": 0.2}, ...], "links": [[0, 1], ...],
     "network_power": 0.0137, "broker_work": 10,
     "topics": [{"clients": [1.5, 0, ...]}, ...],
     "services": [{"users": [0, 2, ...], "work": 20, "user_work": 5, "topics": {"0": 3.5}}, ...]}

Devices and topics are numbered from 0. Traffic is in Mbps, by device; ``topics`` of a service says
how much of which topic it uses.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from federator.errors import InstanceError
from federator.planner.flow.instance_file import read_json
from lab.papers.placement.hops import Matrix, PlacementError, hops_of
from lab.papers.placement.instance import Instance


class DeviceEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A device: its capacity, and mW per workload."""

    capacity: float
    power: float


class TopicEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A topic: its clients' traffic."""

    clients: list[float]


class ServiceEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A service: its users' traffic, workload per Mbps, and what it uses of topics."""

    users: list[float]
    work: float
    user_work: float
    topics: dict[str, float] = {}


class InstanceFile(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    devices: list[DeviceEntry]
    topics: list[TopicEntry]
    services: list[ServiceEntry]
    links: list[tuple[int, int]]
    network_power: float
    broker_work: float


def parse(data: bytes, *, name: str) -> Instance:
    """The instance in ``data``. Raises ``InstanceError``: what to mend in the file ``name``."""
    try:
        return _instance(read_json(data, InstanceFile))
    except (ValueError, PlacementError, InstanceError) as error:
        raise InstanceError(f"{name}: {error}: mend the file") from None


def _instance(file: InstanceFile) -> Instance:
    count, services = len(file.devices), file.services
    shared = np.zeros((len(file.topics), len(services)))
    numbers = {str(topic): topic for topic in range(len(file.topics))}
    for s, service in enumerate(services):
        for topic, mbps in service.topics.items():
            if topic not in numbers:
                raise ValueError(f"services[{s}].topics: {topic!r} is no topic's number")
            shared[numbers[topic], s] = mbps
    return Instance(
        capacity=np.array([device.capacity for device in file.devices]),
        device_power=np.array([device.power for device in file.devices]),
        network_power=file.network_power,
        hops=_hops(file.links, count),
        topic_traffic=_traffic([topic.clients for topic in file.topics], "topics", count),
        service_traffic=_traffic([service.users for service in services], "services", count),
        shared_traffic=shared,
        broker_work=file.broker_work,
        service_work=np.array([service.work for service in services]),
        user_work=np.array([service.user_work for service in services]),
    )


def _hops(links: Sequence[tuple[int, int]], devices: int) -> Matrix:
    linked = np.zeros((devices, devices), dtype=bool)
    for a, b in links:
        if not (0 <= a < devices and 0 <= b < devices):
            raise ValueError(f"links: {[a, b]} is no pair of devices 0 to {devices - 1}")
        linked[a, b] = linked[b, a] = True
    hops = hops_of(linked)
    if not np.isfinite(hops).all():
        apart = np.flatnonzero(~np.isfinite(hops[0])).tolist()
        raise ValueError(f"links: no way leads from device 0 to {apart}")
    return hops


def _traffic(rows: Sequence[Sequence[float]], at: str, devices: int) -> Matrix:
    for i, row in enumerate(rows):
        if len(row) != devices:
            raise ValueError(f"{at}[{i}]: {devices} numbers wanted, got {len(row)}")
    return np.array(rows, dtype=np.float64).reshape(len(rows), devices)
