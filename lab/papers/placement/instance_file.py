"""A placement instance as JSON, and back.

    {"devices": [{"capacity": 30000, "power": 0.2}, ...], "links": [[0, 1], ...],
     "network_power": 0.0137, "broker_work": 10,
     "topics": [{"clients": [1.5, 0, ...]}, ...],
     "services": [{"users": [0, 2, ...], "work": 20, "user_work": 5, "topics": {"0": 3.5}}, ...]}

Devices and topics are numbered from 0. Traffic is in Mbps, by device; ``topics`` of a service says
how much of which topic it uses.
"""

import json
import math
from typing import Any

import numpy as np

from federator.errors import ConfigError
from lab.papers.placement.hops import Matrix, PlacementError, hops_of
from lab.papers.placement.instance import Instance

BAD_DATA = 65  # exit code of ``sysexits.h``

_KEYS = {
    "devices": {"capacity", "power"},
    "topics": {"clients"},
    "services": {"users", "work", "user_work", "topics"},
}
_FILE_KEYS = {*_KEYS, "links", "network_power", "broker_work"}


def parse(text: str, *, name: str) -> Instance:
    """The instance in ``text``. Raises ``ConfigError``: what to mend in the file ``name``."""
    try:
        return _instance(json.loads(text))
    except (ValueError, OverflowError, PlacementError, RecursionError) as error:
        raise ConfigError(f"{name}: {error}: mend the file", exit_code=BAD_DATA) from None


def _instance(value: object) -> Instance:
    table = _object(value, "the file")
    _known(table, _FILE_KEYS, "the file")
    devices, topics, services = (
        [_object(e, f"{key}[{i}]") for i, e in enumerate(_list(table, key, "the file"))]
        for key in _KEYS
    )
    for rows, (key, known) in zip((devices, topics, services), _KEYS.items(), strict=True):
        for i, row in enumerate(rows):
            _known(row, known, f"{key}[{i}]")
    count = len(devices)
    shared = np.zeros((len(topics), len(services)))
    numbers = {str(t) for t in range(len(topics))}
    for s, service in enumerate(services):
        at = f"services[{s}].topics"
        for topic, mbps in _object(service.get("topics", {}), at).items():
            if topic not in numbers:
                raise ValueError(f"{at}: {topic!r} is no topic's number")
            shared[int(topic), s] = _number(mbps, at)
    return Instance(
        capacity=_column(devices, "capacity", "devices"),
        device_power=_column(devices, "power", "devices"),
        network_power=_number(table.get("network_power"), "network_power"),
        hops=_hops(_list(table, "links", "the file"), count),
        topic_traffic=_traffic(topics, "clients", "topics", count),
        service_traffic=_traffic(services, "users", "services", count),
        shared_traffic=shared,
        broker_work=_number(table.get("broker_work"), "broker_work"),
        service_work=_column(services, "work", "services"),
        user_work=_column(services, "user_work", "services"),
    )


def _hops(links: list[Any], devices: int) -> Matrix:
    linked = np.zeros((devices, devices), dtype=bool)
    for pair in links:
        named = isinstance(pair, list) and len(pair) == 2
        if not named or any(type(d) is not int or not 0 <= d < devices for d in pair):
            raise ValueError(f"links: {str(pair)[:60]} is no pair of devices 0 to {devices - 1}")
        linked[pair[0], pair[1]] = linked[pair[1], pair[0]] = True
    hops = hops_of(linked)
    if not np.isfinite(hops).all():
        apart = np.flatnonzero(~np.isfinite(hops[0])).tolist()
        raise ValueError(f"links: no way leads from device 0 to {apart}")
    return hops


def _known(table: dict[str, Any], known: set[str], at: str) -> None:
    if unknown := sorted(set(table) - known):
        raise ValueError(f"{at}: {unknown[0]!r} is unknown, one of {sorted(known)} wanted")


def _object(value: object, at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{at} must be an object, got {type(value).__name__}")
    return value


def _list(table: dict[str, Any], key: str, at: str) -> list[Any]:
    value = table.get(key)
    if not isinstance(value, list):
        raise ValueError(f"{key} of {at} must be a list")
    return value


def _number(value: object, at: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{at}: {value!r} is no number")
    return float(value)


def _column(rows: list[dict[str, Any]], key: str, at: str) -> Matrix:
    return np.array([_number(row.get(key), f"{at}[{i}].{key}") for i, row in enumerate(rows)])


def _traffic(rows: list[dict[str, Any]], key: str, at: str, devices: int) -> Matrix:
    traffic = np.zeros((len(rows), devices))
    for i, row in enumerate(rows):
        values = _list(row, key, f"{at}[{i}]")
        if len(values) != devices:
            raise ValueError(f"{at}[{i}].{key}: {devices} numbers wanted, got {len(values)}")
        traffic[i] = [_number(value, f"{at}[{i}].{key}") for value in values]
    return traffic
