"""What agents report of their load, and what a steerer answers: trees for the heaviest flows.

A **flow** is what the clients of one broker publish that one set of filters matches. While a
steerer is at work, each agent measures its own flows and reports the heaviest, with the load of its
links. From this the steerer computes which link is full, and gives some flows a tree of their own.
Each broker in the tree forwards the flow to its children there; where the tree does not hold, the
flow uses the ordinary routes.

Both are JSON on a broker and stay there. A plan is retained, and published for each broker
separately: it has only the trees that pass that broker.

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
"""Flows in one agent's report."""

LINKS_MAX: Final = 1_024
TREES_MAX: Final = 4_096
"""Trees that pass one broker."""

FILTERS_MAX: Final = 64
"""Filters of a flow."""

BROKERS_MAX: Final = 256
"""Brokers of a tree."""

VALID_MS_MAX: Final = 600_000
"""For how long a plan may be valid."""

MESHES_MAX: Final = 256
"""Filters of meshes that a steerer may ask about."""

LOAD_EVERY_MS: Final = 2_000
"""How often an agent reports its load while a plan is valid."""

_Amount = Annotated[float, msgspec.Meta(ge=0)]
_Filters = Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=FILTERS_MAX)]
_Priority = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
_Asked = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MESHES_MAX)]
_Collected = Annotated[tuple[Name, ...], msgspec.Meta(max_length=COLLECTS_MAX)]
_Policy = Annotated[str, msgspec.Meta(max_length=16)]


class LinkLoad(msgspec.Struct, frozen=True):
    """One direction of a link: from the reporting agent to ``neighbour``."""

    neighbour: Id
    cost: Natural
    rate: _Amount  # bit/s of data sent there lately
    queue: Natural = 0  # bytes that wait to be sent there
    capacity: _Amount | None = None  # bit/s, as configured or learnt; None: unknown
    open: bool = True  # our rules let publications cross it
    learnt: bool = False  # the capacity is what the link carried while it was full


class FlowLoad(msgspec.Struct, frozen=True):
    """A flow of the reporting agent's clients."""

    filters: _Filters  # ascending
    # Brokers that want it over the shortest path, ascending. None of those that want it in a mesh.
    destinations: Annotated[tuple[Id, ...], msgspec.Meta(max_length=BROKERS_MAX)]
    rate: _Amount  # bit/s
    error: _Amount  # the standard error of ``rate``, bit/s
    publications: _Amount  # per second
    meshed: bool = False  # some broker also wants it in a mesh
    planned: bool = False  # a tree carries it now


class MeshFlow(msgspec.Struct, frozen=True):
    """What the reporting agent's clients publish that some broker wants in a mesh."""

    filters: _Filters  # ascending; also those that are wanted over the shortest path only
    publications: _Amount  # per second


class MeshLoad(msgspec.Struct, frozen=True):
    """The reporting agent's part in meshes, for a steerer that places cores."""

    priority: _Priority  # as configured: the smallest is preferred as core
    # The heaviest, heaviest first.
    flows: Annotated[tuple[MeshFlow, ...], msgspec.Meta(max_length=FLOWS_MAX)] = ()
    wanted: _Asked = ()  # those filters of the plan's question that own clients want in meshes


class KeptLoad(msgspec.Struct, frozen=True):
    """What the reporting agent keeps at the edge, or collects, as the valid plan says."""

    allowed: bool  # the operator lets a steerer do so
    publications: _Amount = 0.0  # per second, kept lately
    rate: _Amount = 0.0  # bit/s of them
    # Which of the filters that the plan wants collected are announced so; why not all, if so.
    collects: _Collected = ()
    why_not: Annotated[str, msgspec.Meta(max_length=256)] = ""


class Load(msgspec.Struct, frozen=True):
    """The load of the agent of ``broker``, published on its broker while a plan is valid there."""

    version: Natural  # ``STEERING_VERSION``
    federation: str
    broker: Id
    epoch: EpochField
    at_ms: Natural  # its wall clock
    links: Annotated[tuple[LinkLoad, ...], msgspec.Meta(max_length=LINKS_MAX)]  # that are up
    # The heaviest, heaviest first.
    flows: Annotated[tuple[FlowLoad, ...], msgspec.Meta(max_length=FLOWS_MAX)]
    rest: _Amount = 0.0  # bit/s of all flows that are not listed
    steerer: str = ""  # the steerer of the valid plan,
    number: Natural = 0  # and the number of that plan
    name: str = ""  # what operators call the broker
    placed: bool = False  # a plan's ``priority`` is in force here
    meshes: MeshLoad | None = None  # if the plan asks for it
    kept: KeptLoad | None = None  # if the plan says what to keep, or to collect


class Tree(msgspec.Struct, frozen=True):
    """The way of a flow: which broker forwards it to which."""

    origin: Id  # the root
    filters: _Filters  # ascending; with the origin they name the flow
    # (parent, child), ascending by child; every child has one parent.
    edges: Annotated[
        tuple[tuple[Id, Id], ...], msgspec.Meta(min_length=1, max_length=BROKERS_MAX - 1)
    ]


class Plan(msgspec.Struct, frozen=True):
    """What ``steerer`` orders ``broker`` to do, retained there until it expires."""

    version: Natural  # ``STEERING_VERSION``
    federation: str
    broker: Id  # the broker that this is for
    steerer: Token  # the steerer's name
    # When the steerer started, by its clock: of two steerers the older one goes on.
    since_ms: Natural
    number: Natural  # grows with each plan of this steerer's run
    made_ms: Natural  # by its clock
    valid_ms: Annotated[int, msgspec.Meta(ge=1, le=VALID_MS_MAX)]
    trees: Annotated[tuple[Tree, ...], msgspec.Meta(max_length=TREES_MAX)] = ()
    priority: _Priority | None = None  # as a core; ``None``: the broker's own
    # Report which of these own clients want; ``None``: report on no mesh.
    meshes: _Asked | None = None
    # Which of own clients' publications to keep: see ``KeepPolicy``; empty: none.
    keep: _Policy = ""
    collects: _Collected = ()  # own clients' subscriptions to these only collect


def tree_number(tree: Tree) -> int:
    """The number of ``tree`` in frames: 33 bits of a hash of its content, independent of the plan.

    So every agent that has the tree, from an older or a newer plan, understands a frame under way.
    """
    content = msgspec.msgpack.encode((tree.origin, tree.filters, tree.edges))
    digest = blake2b(content, digest_size=8, person=b"federator tree")
    return int.from_bytes(digest.digest(), "big") >> 31


def parents_of(tree: Tree) -> Mapping[BrokerId, BrokerId]:
    """The parent of each broker but the origin.

    Raises:
        ValueError: The edges are not a tree with the origin as its root.
    """
    parents = {child: parent for parent, child in tree.edges}
    if len(parents) != len(tree.edges) or tree.origin in parents:
        raise ValueError("a broker has two parents, or the origin has one")
    if len(below(children_of(tree), tree.origin)) != len(parents):
        raise ValueError("a broker is not below the origin")
    return parents


def passes(tree: Tree, broker: BrokerId) -> bool:
    """Whether ``broker`` is in ``tree``."""
    return broker == tree.origin or any(broker in edge for edge in tree.edges)


def children_of(tree: Tree) -> Mapping[BrokerId, Sequence[BrokerId]]:
    children: dict[BrokerId, list[BrokerId]] = {}
    for parent, child in tree.edges:
        children.setdefault(parent, []).append(child)
    return children


def below(children: Mapping[BrokerId, Sequence[BrokerId]], broker: BrokerId) -> frozenset[BrokerId]:
    """All brokers in the subtree of ``broker``, without itself."""
    subtree: set[BrokerId] = set()
    waiting = [broker]
    while waiting:
        new = [child for child in children.get(waiting.pop(), ()) if child not in subtree]
        subtree.update(new)
        waiting += new
    return frozenset(subtree)


def tree_of(origin: BrokerId, filters: Iterable[str], parents: Mapping[BrokerId, BrokerId]) -> Tree:
    edges = sorted(((parent, child) for child, parent in parents.items()), key=lambda edge: edge[1])
    return Tree(origin, tuple(sorted(filters)), tuple(edges))
