"""A grid and one of its meshes as lines of text.

Every node stands in a box of its own width; every link shows the direction of parenthood, heavy
between members and light where a non-member would relay, or nothing but the link.
"""

from collections.abc import Collection
from itertools import pairwise

from federator.grid.topology import Grid, Mesh
from federator.protocol.types import BrokerId

LEGEND = "◉ core  ● has subscribers  ○ connects  · no member  S, P clients  ▶ parent"

_ACROSS = {True: ("━━━▶", "◀━━━"), False: ("───▷", "◁───")}
_DOWN = {True: ("▼", "▲"), False: ("▽", "△")}
_PLAIN_ACROSS = "────"
_PLAIN_DOWN = "│"


def draw(
    grid: Grid, mesh: Mesh, *, subscribers: Collection[BrokerId], publisher: BrokerId
) -> list[str]:
    """The picture, a line per row of brokers and one between rows."""

    def label(here: BrokerId) -> str:
        mark = "·"
        if here == mesh.core:
            mark = "◉"
        elif here in mesh.members:
            mark = "●" if here in subscribers else "○"
        clients = ("S" if here in subscribers else "") + ("P" if here == publisher else "")
        return f"{mark} {here} {clients}".rstrip()

    width = max(len(label(here)) for here in grid.ids)
    lines = []
    for row in range(grid.rows):
        ids = grid.ids[row * grid.columns : (row + 1) * grid.columns]
        line = label(ids[0]).ljust(width)
        for left, right in pairwise(ids):
            line += f" {_across(mesh, left, right)} {label(right).ljust(width)}"
        lines.append(line.rstrip())
        if row + 1 < grid.rows:
            below = [_down(mesh, here, BrokerId(here + grid.columns)) for here in ids]
            lines.append("".join(mark.ljust(width + 6) for mark in below).rstrip())
    return lines


def _across(mesh: Mesh, left: BrokerId, right: BrokerId) -> str:
    if right in mesh.parents.get(left, ()):
        return _ACROSS[left in mesh.members][0]
    if left in mesh.parents.get(right, ()):
        return _ACROSS[right in mesh.members][1]
    return _PLAIN_ACROSS


def _down(mesh: Mesh, upper: BrokerId, lower: BrokerId) -> str:
    if lower in mesh.parents.get(upper, ()):
        return _DOWN[upper in mesh.members][0]
    if upper in mesh.parents.get(lower, ()):
        return _DOWN[lower in mesh.members][1]
    return _PLAIN_DOWN
