"""An operator's own tree as JSON, version 1.

    {"version": 1, "share": 0.99, "charge": "link-load", "opening": 0,
     "nodes": [{"name": "hub"}, {"name": "mast", "parent": "hub", "plr": 0.05, "abl": 3},
               {"name": "hall", "parent": "mast", "lost": 2}]}

A node is a broker, and its ``parent`` who sends to it; one without is a root. Of the link from the
parent either ``lost`` is said, how many packets of one message it may eat, or its loss rate and
mean burst: planned for are then losses that ``share`` of messages do not exceed.
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

from federator.errors import InstanceError
from federator.planner.flow.instance_file import Name, read_json
from lab.papers.codecs.loss import Loss, lost_at_most
from lab.papers.codecs.plan import REPAIR_MAX, Charge, Problem
from lab.papers.codecs.tree import ROOT, CodecError, arranged

VERSION = 1
NODES_MAX = 10_000


class NodeEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A broker, who sends to it, and what the link between them loses."""

    name: Name
    parent: Name | None = None
    lost: Annotated[int, msgspec.Meta(ge=0, le=REPAIR_MAX)] | None = None
    plr: float | None = None
    abl: float = 1.0


class TreeFile(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    version: int
    nodes: Annotated[list[NodeEntry], msgspec.Meta(min_length=1, max_length=NODES_MAX)]
    share: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.99
    charge: Charge = Charge.LINK_LOAD
    opening: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0


@dataclass(frozen=True, slots=True)
class Named:
    """A problem, and its nodes by name."""

    problem: Problem
    names: tuple[str, ...]  # of the tree's nodes


def decode(data: bytes) -> Named:
    """The problem that ``data`` describes. Raises ``InstanceError``: what to mend."""
    file = read_json(data, TreeFile, wanted=": a tree wanted")
    if file.version != VERSION:
        raise InstanceError(f"version: {file.version}: {VERSION} wanted")
    number = {node.name: i for i, node in enumerate(file.nodes)}
    if len(number) < len(file.nodes):
        raise InstanceError("nodes: two of one name: names that differ wanted")
    parents = [_parent(node, number) for node in file.nodes]
    try:
        tree, order = arranged(parents)
    except CodecError as error:
        raise InstanceError(f"nodes: {error}") from None
    lost = np.array([_lost(file.nodes[at], file.share) for at in order], dtype=np.int64)
    problem = Problem(tree, lost, file.opening, file.charge)
    return Named(problem, tuple(file.nodes[at].name for at in order))


def _parent(node: NodeEntry, number: dict[str, int]) -> int:
    if node.parent is None:
        return ROOT
    if node.parent not in number:
        raise InstanceError(f"{node.name}: parent: {node.parent!r}: the name of a node wanted")
    return number[node.parent]


def _lost(node: NodeEntry, share: float) -> int:
    """Packets of one message to plan for on the link to ``node``."""
    told = (node.lost is not None) + (node.plr is not None)
    if told != (node.parent is not None):
        wanted = "either lost or plr" if node.parent is not None else "no loss without a parent"
        raise InstanceError(f"{node.name}: {told} of lost and plr: {wanted} wanted")
    if node.plr is None:
        return node.lost or 0
    try:
        return lost_at_most(Loss(node.plr, node.abl), share=share)
    except CodecError:
        text = f"{node.name}: plr {node.plr:g}, abl {node.abl:g}: a rate of 0 to below 1 wanted, "
        raise InstanceError(f"{text}and bursts of at least 1 that go with it") from None
