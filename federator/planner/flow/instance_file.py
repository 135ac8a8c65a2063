"""The JSON form of an instance, version 1, checked before anything is computed.

A wrong file is reported in one line with the key, the value and what is expected. Source of the
form: docs/planner.md 2.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order

from federator.errors import InstanceError
from federator.planner.flow.instance import Capacity, Instance, Role, dear_penalty

VERSION = 1
FILE_BYTES_MAX = 64 * 2**20
"""Ten thousand nodes and a thousand topics take 2 MiB."""
NODES_MAX = 100_000
LINKS_MAX = 1_000_000
REQUESTS_MAX = 1_000_000
QUANTITY_MAX = 1e12
"""Limit of a rate, a capacity, a cost: beyond it, sums lose precision."""

_Read = TypeVar("_Read")
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class NodeEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A node; ``x`` and ``y`` are for drawing."""

    name: Name
    role: Literal["broker", "publisher", "subscriber"] = "broker"
    x: float | None = None
    y: float | None = None


class LinkEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A link from ``a`` to ``b``, and back if ``both``; ``*_back`` are for that direction."""

    a: Name
    b: Name
    capacity: float
    cost: float = 1.0
    both: bool = True
    cost_back: float | None = None
    capacity_back: float | None = None


class TopicEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A topic, its rate, its publisher and its subscribers."""

    name: Name
    rate: float
    publisher: Name
    subscribers: list[Name]


class InstanceFile(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The whole file."""

    version: int
    capacity: Literal["edge", "arc"]
    nodes: list[NodeEntry]
    links: list[LinkEntry]
    topics: list[TopicEntry]
    name: str = ""
    unmet_penalty: float | None = None


class _Version(msgspec.Struct):
    """Decoded first: all other keys may differ in another version."""

    version: int | None = None


def decode(data: bytes) -> Instance:
    """The instance that ``data`` describes. Raises ``InstanceError``: what to correct."""
    return build(read_version_1(data, InstanceFile, wanted=": an instance wanted"))


def read_version_1(data: bytes, kind: type[_Read], *, where: str = "", wanted: str = "") -> _Read:
    """Decode ``data`` as ``read_json`` does, if it says that it is of this version."""
    version = read_json(data, _Version, where=where, wanted=wanted).version
    if version != VERSION:
        raise InstanceError(f"{where}version: {version}: {VERSION} wanted")
    return read_json(data, kind, where=where, wanted=wanted)


def read_json(data: bytes, kind: type[_Read], *, where: str = "", wanted: str = "") -> _Read:
    """Decode ``data``; errors begin with ``where``; ``wanted`` ends an error without a key."""
    if len(data) > FILE_BYTES_MAX:
        raise InstanceError(f"{where}{len(data)} bytes: at most {FILE_BYTES_MAX} wanted")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InstanceError(f"{where}{_one_line(error)}") from None
    except RecursionError:
        raise InstanceError(f"{where}nested too deeply{wanted}") from None


def encode(instance: Instance) -> bytes:
    """``instance`` as a file that ``decode`` reads."""
    places: list[Any] = [(None, None)] * instance.nodes
    if instance.positions is not None:
        places = instance.positions.tolist()
    names, nodes = instance.names, instance.request_node
    file = InstanceFile(
        version=VERSION,
        name=instance.name,
        capacity=instance.capacity_kind.value,
        unmet_penalty=instance.unmet_penalty,
        nodes=[
            NodeEntry(name=name, role=role.value, x=x, y=y)
            for name, role, (x, y) in zip(names, instance.roles, places, strict=True)
        ],
        links=_links(instance),
        topics=[
            TopicEntry(
                name=name,
                rate=float(instance.rate[topic]),
                publisher=names[instance.publisher[topic]],
                subscribers=[names[node] for node in nodes[instance.requests_of(topic)]],
            )
            for topic, name in enumerate(instance.topic_names)
        ],
    )
    return msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n"


def build(file: InstanceFile) -> Instance:
    """Check every value and build the arrays. Raises ``InstanceError``: what to correct."""
    _check_counts(file)
    number: dict[str, int] = {}
    for position, node in enumerate(file.nodes):
        if number.setdefault(node.name, position) != position:
            raise InstanceError(f"nodes[{position}].name: {node.name!r} again: each once wanted")
    roles = [Role(node.role) for node in file.nodes]
    arcs, capacities = _arcs(file, number, roles)
    tail, head, costs, channel = zip(*arcs, strict=True) if arcs else ((), (), (), ())
    topics = _topics(file.topics, number, roles)
    cost = np.array(costs, dtype=np.float64)
    fan_out = [len(topic) for topic in topics]
    penalty = file.unmet_penalty
    if penalty is None:
        penalty = dear_penalty(cost, roles.count(Role.BROKER), sum(fan_out))
    _check_quantity("unmet_penalty", penalty, above_zero=True)
    positions = None
    if all(node.x is not None and node.y is not None for node in file.nodes):
        positions = np.array([(node.x, node.y) for node in file.nodes], dtype=np.float64)
        if not np.isfinite(positions).all():
            raise InstanceError("nodes: a position is not finite: numbers wanted")
    instance = Instance(
        name=file.name,
        names=tuple(node.name for node in file.nodes),
        roles=tuple(roles),
        relays=np.array([role is Role.BROKER for role in roles]),
        positions=positions,
        capacity_kind=Capacity(file.capacity),
        tail=np.array(tail, dtype=np.intp),
        head=np.array(head, dtype=np.intp),
        cost=cost,
        channel=np.array(channel, dtype=np.intp),
        capacity=np.array(capacities, dtype=np.float64),
        rate=np.array([topic.rate for topic in file.topics], dtype=np.float64),
        publisher=np.array([number[topic.publisher] for topic in file.topics], dtype=np.intp),
        request_topic=np.repeat(np.arange(len(topics)), fan_out).astype(np.intp),
        request_node=np.array([node for topic in topics for node in topic], dtype=np.intp),
        first_request=np.concatenate([[0], np.cumsum(fan_out)]).astype(np.intp),
        unmet_penalty=float(penalty),
        topic_names=tuple(topic.name for topic in file.topics),
    )
    _check_reachable(instance)
    return instance


def _links(instance: Instance) -> list[LinkEntry]:
    links: dict[tuple[int, int], LinkEntry] = {}
    for arc in range(instance.arcs):
        a, b = int(instance.tail[arc]), int(instance.head[arc])
        cost = float(instance.cost[arc])
        capacity = float(instance.capacity[instance.channel[arc]])
        there = links.get((b, a))
        if there is None:
            name_a, name_b = instance.names[a], instance.names[b]
            links[a, b] = LinkEntry(name_a, name_b, capacity, cost=cost, both=False)
            continue
        there.both = True
        there.cost_back = None if cost == there.cost else cost
        there.capacity_back = None if capacity == there.capacity else capacity
    return list(links.values())


_Arc = tuple[int, int, float, int]
"""Tail, head, cost and channel."""


def _arcs(
    file: InstanceFile, number: dict[str, int], roles: Sequence[Role]
) -> tuple[list[_Arc], list[float]]:
    """All arcs, and the capacities of the channels."""
    arcs: list[_Arc] = []
    capacities: list[float] = []
    seen: set[tuple[int, int]] = set()
    for position, link in enumerate(file.links):
        where = f"links[{position}]"
        a, b = _index_of(number, link.a, f"{where}.a"), _index_of(number, link.b, f"{where}.b")
        if a == b:
            raise InstanceError(f"{where}: {link.a!r} to itself: two nodes wanted")
        pair = (min(a, b), max(a, b))
        if pair in seen:
            raise InstanceError(f"{where}: {link.a!r} and {link.b!r} again: one link a pair wanted")
        seen.add(pair)
        _check_link(link, where, edge=file.capacity == "edge")
        ways = [(a, b, link.cost, link.capacity)]
        if link.both:
            back = link.cost if link.cost_back is None else link.cost_back
            room = link.capacity if link.capacity_back is None else link.capacity_back
            ways.append((b, a, back, room))
        ways = [
            way
            for way in ways
            if roles[way[0]] is not Role.SUBSCRIBER and roles[way[1]] is not Role.PUBLISHER
        ]
        for order, (tail, head, cost, capacity) in enumerate(ways):
            if order == 0 or file.capacity == "arc":
                capacities.append(capacity)
            arcs.append((tail, head, cost, len(capacities) - 1))
    return arcs, capacities


def _check_link(link: LinkEntry, where: str, *, edge: bool) -> None:
    _check_quantity(f"{where}.capacity", link.capacity, above_zero=True)
    _check_quantity(f"{where}.cost", link.cost)
    if link.cost_back is not None:
        _check_quantity(f"{where}.cost_back", link.cost_back)
    if link.capacity_back is not None:
        _check_quantity(f"{where}.capacity_back", link.capacity_back, above_zero=True)
        if edge:
            hint = 'none under capacity "edge" wanted'
            raise InstanceError(f"{where}.capacity_back: {link.capacity_back:g}: {hint}")


def _topics(
    entries: Sequence[TopicEntry], number: dict[str, int], roles: Sequence[Role]
) -> list[list[int]]:
    """Check the topics; return the subscribers of each."""
    names: set[str] = set()
    topics = []
    for position, topic in enumerate(entries):
        where = f"topics[{position}]"
        if topic.name in names:
            raise InstanceError(f"{where}.name: {topic.name!r} again: each topic once wanted")
        names.add(topic.name)
        _check_quantity(f"{where}.rate", topic.rate, above_zero=True)
        source = _index_of(number, topic.publisher, f"{where}.publisher")
        if roles[source] is Role.SUBSCRIBER:
            hint = "a publisher or broker wanted"
            raise InstanceError(f"{where}.publisher: {topic.publisher!r} is a subscriber: {hint}")
        if not topic.subscribers:
            raise InstanceError(f"{where}.subscribers: []: at least one wanted")
        nodes = []
        for order, name in enumerate(topic.subscribers):
            key = f"{where}.subscribers[{order}]"
            node = _index_of(number, name, key)
            if roles[node] is Role.PUBLISHER or node == source:
                hint = "a subscriber or broker other than its publisher wanted"
                raise InstanceError(f"{key}: {name!r}: {hint}")
            nodes.append(node)
        if len(set(nodes)) != len(nodes):
            raise InstanceError(f"{where}.subscribers: a name twice: each once wanted")
        topics.append(nodes)
    return topics


def _check_reachable(instance: Instance) -> None:
    """Check that every subscriber can be reached when nothing else is carried."""
    graph = csr_matrix(
        (np.ones(instance.arcs), (instance.tail, instance.head)),
        shape=(instance.nodes, instance.nodes),
    )
    source = instance.publisher[instance.request_topic]
    met = np.zeros(instance.requests, dtype=bool)
    for publisher in np.unique(source):
        reached = np.zeros(instance.nodes, dtype=bool)
        reached[breadth_first_order(graph, publisher, return_predecessors=False)] = True
        met |= (source == publisher) & reached[instance.request_node]
    if not met.all():
        request = int(np.flatnonzero(~met)[0])
        topic = int(instance.request_topic[request])
        order = request - int(instance.first_request[topic])
        raise InstanceError(
            f"topics[{topic}].subscribers[{order}]: no links join "
            f"{instance.names[source[request]]!r} to "
            f"{instance.names[instance.request_node[request]]!r}: a connected graph wanted"
        )


def _check_counts(file: InstanceFile) -> None:
    for key, count, most in (
        ("nodes", len(file.nodes), NODES_MAX),
        ("links", len(file.links), LINKS_MAX),
        ("topics", len(file.topics), REQUESTS_MAX),
    ):
        if not 1 <= count <= most:
            raise InstanceError(f"{key}: {count} of them: 1 to {most} wanted")
    requests = sum(len(topic.subscribers) for topic in file.topics)
    if requests > REQUESTS_MAX:
        raise InstanceError(f"topics: {requests} subscribers: at most {REQUESTS_MAX} wanted")


def _index_of(number: dict[str, int], name: str, where: str) -> int:
    if name not in number:
        shown = repr(name if len(name) <= 40 else name[:37] + "...")
        raise InstanceError(f"{where}: {shown}: a name listed in nodes wanted")
    return number[name]


def _check_quantity(where: str, value: float, *, above_zero: bool = False) -> None:
    least = "above 0" if above_zero else "0 or more"
    if not (0 <= value <= QUANTITY_MAX) or (above_zero and value == 0):
        hint = f"a number {least}, at most {QUANTITY_MAX:g} wanted"
        raise InstanceError(f"{where}: {value:g}: {hint}")


def _one_line(error: Exception) -> str:
    """Turn ``Expected `int`, got `str` - at `$.nodes[0].x``` into ``nodes[0].x: Expected ...``."""
    text = " ".join(str(error).split())
    if found := re.fullmatch(r"(.*) - at `\$\.?(.*)`", text):
        return f"{found[2] or 'file'}: {found[1]}"
    return text
