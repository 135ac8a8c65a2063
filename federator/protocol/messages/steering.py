"""What agents tell of their load, and what a steerer answers: trees for the flows that weigh.

A **flow** is what the clients of one broker publish that one set of filters matches. Each agent
measures its own and tells the heaviest, with the load of its links, while somebody steers. A
steerer knows from that which link is full, and gives some flows a tree of their own. Whoever is in
the tree passes the flow on to its children there; where the tree does not hold, the flow goes the
ordinary way.

Both are JSON on a broker and stay there. A plan is retained, and told to each broker separately:
it has the trees that pass it and no others.

Source: docs/protocol.md 18; docs/steering.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Final

import msgspec

from federator.protocol.messages.fields import EpochField, Id, Name, Natural, Token
from federator.protocol.messages.session_records import COLLECTS_MAX
from federator.protocol.types import BrokerId

STEERING_VERSION: Final = 1
FLOWS_MAX: Final = 1_024
"""Flows in one agent's word."""

LINKS_MAX: Final = 1_024
TREES_MAX: Final = 4_096
"""Trees that pass one broker."""

FILTERS_MAX: Final = 64
"""Filters of a flow."""

BROKERS_MAX: Final = 256
"""Brokers of a tree."""

VALID_MS_MAX: Final = 600_000
"""For how long a plan may hold."""

MESHES_MAX: Final = 256
"""Filters about whose meshes a steerer asks."""

LOAD_EVERY_MS: Final = 2_000
"""How often an agent tells its load while a plan holds."""

_Amount = Annotated[float, msgspec.Meta(ge=0)]
_Filters = Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=FILTERS_MAX)]
_Priority = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
_Asked = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MESHES_MAX)]
_Collected = Annotated[tuple[Name, ...], msgspec.Meta(max_length=COLLECTS_MAX)]
_Policy = Annotated[str, msgspec.Meta(max_length=16)]


class LinkLoad(msgspec.Struct, frozen=True):
    """One direction of a link: from who tells to ``neighbour``."""

    neighbour: Id
    cost: Natural
    rate: _Amount  # bit/s that data takes there, of late
    queue: Natural = 0  # bytes that wait to be sent there
    capacity: _Amount | None = None  # bit/s, as configured or learnt; None: nobody knows
    open: bool = True  # no rule of ours keeps publications from crossing it
    learnt: bool = False  # the capacity is what the link carried while it was full


class FlowLoad(msgspec.Struct, frozen=True):
    """A flow of the clients of who tells."""

    filters: _Filters  # ascending
    # Brokers that want it over the shortest path, ascending. None of those that want it in a mesh.
    destinations: Annotated[tuple[Id, ...], msgspec.Meta(max_length=BROKERS_MAX)]
    rate: _Amount  # bit/s
    error: _Amount  # the standard error of ``rate``, bit/s
    publications: _Amount  # per second
    meshed: bool = False  # somebody wants it in a mesh, too
    planned: bool = False  # it goes by a tree now


class MeshFlow(msgspec.Struct, frozen=True):
    """What the clients of who tells publish that somebody wants in a mesh."""

    filters: _Filters  # ascending; also those that are wanted over the shortest path only
    publications: _Amount  # per second


class MeshLoad(msgspec.Struct, frozen=True):
    """What meshes have to do with who tells, for whoever places cores."""

    priority: _Priority  # as configured: who has the smallest is preferred as core
    # The heaviest, heaviest first.
    flows: Annotated[tuple[MeshFlow, ...], msgspec.Meta(max_length=FLOWS_MAX)] = ()
    wanted: _Asked = ()  # of the filters that the plan asks about: own clients want them in meshes


class KeptLoad(msgspec.Struct, frozen=True):
    """What who tells keeps at the edge, or collects, as the plan that holds says."""

    allowed: bool  # the operator lets a steerer do so
    publications: _Amount = 0.0  # per second, kept of late
    rate: _Amount = 0.0  # bit/s of them
    # Of what the plan has it collect, what is announced so; why it is not all, if it is not.
    collects: _Collected = ()
    why_not: Annotated[str, msgspec.Meta(max_length=256)] = ""


class Load(msgspec.Struct, frozen=True):
    """What the agent of ``broker`` carries, told on its broker while a plan holds there."""

    version: Natural  # ``STEERING_VERSION``
    federation: str
    broker: Id
    epoch: EpochField
    at_ms: Natural  # its wall clock
    links: Annotated[tuple[LinkLoad, ...], msgspec.Meta(max_length=LINKS_MAX)]  # that are up
    # The heaviest, heaviest first.
    flows: Annotated[tuple[FlowLoad, ...], msgspec.Meta(max_length=FLOWS_MAX)]
    rest: _Amount = 0.0  # bit/s of all flows that are not listed
    steerer: str = ""  # whose plan holds here,
    number: Natural = 0  # and which
    name: str = ""  # what operators call the broker
    placed: bool = False  # a plan's ``priority`` is followed here
    meshes: MeshLoad | None = None  # where the plan asks
    kept: KeptLoad | None = None  # where the plan says what to keep, or to collect


class Tree(msgspec.Struct, frozen=True):
    """The way of a flow: who passes it on to whom."""

    origin: Id  # the root
    filters: _Filters  # ascending; with the origin they name the flow
    # (parent, child), ascending by child; every child has one parent.
    edges: Annotated[
        tuple[tuple[Id, Id], ...], msgspec.Meta(min_length=1, max_length=BROKERS_MAX - 1)
    ]


class Plan(msgspec.Struct, frozen=True):
    """What ``steerer`` wants of ``broker``, retained there until it expires."""

    version: Natural  # ``STEERING_VERSION``
    federation: str
    broker: Id  # where this is to be obeyed
    steerer: Token  # who steers
    since_ms: Natural  # when it began, by its clock: of two who steer the older one goes on
    number: Natural  # grows with each plan of this steerer's run
    made_ms: Natural  # by its clock
    valid_ms: Annotated[int, msgspec.Meta(ge=1, le=VALID_MS_MAX)]
    trees: Annotated[tuple[Tree, ...], msgspec.Meta(max_length=TREES_MAX)] = ()
    priority: _Priority | None = None  # as a core; ``None``: the broker's own
    meshes: _Asked | None = None  # which of these do own clients want? ``None``: tell of no mesh
    keep: _Policy = ""  # of own clients' publications: see ``KeepPolicy``; else nothing
    collects: _Collected = ()  # own clients' wishes for these only collect


def tree_number(tree: Tree) -> int:
    """What frames call ``tree``: 33 bits of its content, whoever planned it and when.

    So a frame under way is understood by whoever has the tree from an older or a newer plan.
    """
    content = msgspec.msgpack.encode((tree.origin, tree.filters, tree.edges))
    digest = blake2b(content, digest_size=8, person=b"federator tree")
    return int.from_bytes(digest.digest(), "big") >> 31


def parents_of(tree: Tree) -> Mapping[BrokerId, BrokerId]:
    """The parent of each broker but the origin.

    Raises:
        ValueError: It is no tree out of its origin.
    """
    parents = {child: parent for parent, child in tree.edges}
    if len(parents) != len(tree.edges) or tree.origin in parents:
        raise ValueError("a broker has two parents, or the origin has one")
    if len(below(children_of(tree), tree.origin)) != len(parents):
        raise ValueError("a broker is not below the origin")
    return parents


def passes(tree: Tree, broker: BrokerId) -> bool:
    """Whether ``broker`` has something to do with ``tree``."""
    return broker == tree.origin or any(broker in edge for edge in tree.edges)


def children_of(tree: Tree) -> Mapping[BrokerId, Sequence[BrokerId]]:
    children: dict[BrokerId, list[BrokerId]] = {}
    for parent, child in tree.edges:
        children.setdefault(parent, []).append(child)
    return children


def below(children: Mapping[BrokerId, Sequence[BrokerId]], broker: BrokerId) -> frozenset[BrokerId]:
    """All brokers in the subtree of ``broker``, without itself."""
    found: set[BrokerId] = set()
    waiting = [broker]
    while waiting:
        new = [child for child in children.get(waiting.pop(), ()) if child not in found]
        found.update(new)
        waiting += new
    return frozenset(found)


def tree_of(origin: BrokerId, filters: Iterable[str], parents: Mapping[BrokerId, BrokerId]) -> Tree:
    edges = sorted(((parent, child) for child, parent in parents.items()), key=lambda edge: edge[1])
    return Tree(origin, tuple(sorted(filters)), tuple(edges))
