"""An instance from what a federation measured: its traffic matrix and its link table.

Traffic, version 1: how much of what each filter matches flows from which broker to which.

    {"version": 1, "flows": [{"filter": "a/#", "origin": 3, "destination": 7, "rate": 12.5}, ...]}

Links, version 1: what joins brokers, in the same unit of rates.

    {"version": 1, "capacity": "edge", "links": [{"a": 3, "b": 7, "capacity": 50, "cost": 1}, ...]}

A topic of the instance is a filter at one origin; its rate is the largest that any destination
gets, because a copy that is passed on is the whole of what was sent.
"""

from typing import Literal

import msgspec

from federator.errors import InstanceError
from federator.planner.flow import instance_file
from federator.planner.flow.instance import Instance


class Flow(msgspec.Struct, forbid_unknown_fields=True):
    """What one destination gets of one filter from one origin."""

    filter: str
    origin: int
    destination: int
    rate: float


class TrafficFile(msgspec.Struct, forbid_unknown_fields=True):
    """The traffic matrix."""

    version: int
    flows: list[Flow]


class MeasuredLink(msgspec.Struct, forbid_unknown_fields=True):
    """A link between two brokers."""

    a: int
    b: int
    capacity: float
    cost: float = 1.0


class LinkFile(msgspec.Struct, forbid_unknown_fields=True):
    """The link table."""

    version: int
    links: list[MeasuredLink]
    capacity: Literal["edge", "arc"] = "edge"


def decode(traffic: bytes, links: bytes, *, name: str = "federation") -> Instance:
    """The instance of both files. Raises ``InstanceError``: what to correct, in which file."""
    flows = instance_file.read_version_1(traffic, TrafficFile, where="traffic: ").flows
    table = instance_file.read_version_1(links, LinkFile, where="links: ")
    brokers = {end for link in table.links for end in (link.a, link.b)}
    topics: dict[tuple[str, int], dict[int, float]] = {}
    for position, flow in enumerate(flows):
        for key, broker in (("origin", flow.origin), ("destination", flow.destination)):
            if broker not in brokers:
                hint = "a broker of the link table wanted"
                raise InstanceError(f"traffic: flows[{position}].{key}: {broker}: {hint}")
        if flow.origin == flow.destination:
            continue  # never crosses a link
        wants = topics.setdefault((flow.filter, flow.origin), {})
        wants[flow.destination] = wants.get(flow.destination, 0.0) + flow.rate
    return instance_file.build(
        instance_file.InstanceFile(
            version=instance_file.VERSION,
            name=name,
            capacity=table.capacity,
            nodes=[instance_file.NodeEntry(str(broker)) for broker in sorted(brokers)],
            links=[
                instance_file.LinkEntry(str(link.a), str(link.b), link.capacity, cost=link.cost)
                for link in table.links
            ],
            topics=[
                instance_file.TopicEntry(
                    name=f"{filter_}@{origin}",
                    rate=max(wants.values()),
                    publisher=str(origin),
                    subscribers=[str(broker) for broker in sorted(wants)],
                )
                for (filter_, origin), wants in sorted(topics.items())
            ],
        )
    )
