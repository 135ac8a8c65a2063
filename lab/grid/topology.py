"""Which brokers there are, who neighbours whom, and the mesh: as the papers' rules give it, and as
agents say they agreed on it.

A grid is numbered row by row from ``first_id``. The expected mesh is worked out here from the graph
alone, without anything of the routing, so that what the agents agree on can be held against it.

Source: Spohn 2021, 3, 4 and 7; the fields are those of an agent's ``/status``.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from federator.protocol.topology.graph import hops_from
from federator.protocol.types import BrokerId


@dataclass(frozen=True, slots=True)
class Link:
    """Two neighbouring brokers, ``a < b``."""

    a: BrokerId
    b: BrokerId


LinkCosts = Mapping[Link, int]


def _link(one: BrokerId, other: BrokerId) -> Link:
    return Link(min(one, other), max(one, other))


class Linked:
    """What follows from brokers and links, whatever their arrangement."""

    __slots__ = ()

    @property
    def ids(self) -> tuple[BrokerId, ...]:
        raise NotImplementedError

    @property
    def links(self) -> tuple[Link, ...]:
        raise NotImplementedError

    @property
    def neighbours(self) -> dict[BrokerId, tuple[BrokerId, ...]]:
        found: dict[BrokerId, list[BrokerId]] = {here: [] for here in self.ids}
        for link in self.links:
            found[link.a].append(link.b)
            found[link.b].append(link.a)
        return {here: tuple(sorted(others)) for here, others in found.items()}

    def hops_from(self, start: BrokerId) -> dict[BrokerId, int]:
        return hops_from(self.neighbours, start)

    def path(self, start: BrokerId, end: BrokerId, costs: LinkCosts) -> tuple[BrokerId, ...]:
        """The cheapest path, where links cost 1 unless ``costs`` says otherwise.

        Each broker on it takes the smallest of the best next ones, as TBRouting does.
        """
        neighbours = self.neighbours
        to_end = {end: 0}
        frontier = [(0, end)]
        while frontier:
            cost, here = heapq.heappop(frontier)
            for other in neighbours[here]:
                total = cost + costs.get(_link(here, other), 1)
                if other not in to_end or total < to_end[other]:
                    to_end[other] = total
                    heapq.heappush(frontier, (total, other))
        path = [start]
        while path[-1] != end:
            here = path[-1]
            costs_by = {n: to_end[n] + costs.get(_link(here, n), 1) for n in neighbours[here]}
            path.append(min(costs_by, key=lambda n: (costs_by[n], n)))
        return tuple(path)


@dataclass(frozen=True, slots=True)
class Graph(Linked):
    """Brokers and links in any arrangement; every broker has a link."""

    pairs: tuple[tuple[int, int], ...]

    @property
    def ids(self) -> tuple[BrokerId, ...]:
        return tuple(sorted({BrokerId(id) for pair in self.pairs for id in pair}))

    @property
    def links(self) -> tuple[Link, ...]:
        each = (_link(BrokerId(a), BrokerId(b)) for a, b in self.pairs)
        return tuple(sorted(each, key=lambda link: (link.a, link.b)))


@dataclass(frozen=True, slots=True)
class Grid(Linked):
    """``rows`` x ``columns`` brokers, each linked to the ones beside, above and below it."""

    rows: int
    columns: int
    first_id: int = 0

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 1:
            raise ValueError(f"{self.rows} x {self.columns}: at least 1 x 1 wanted")

    @property
    def ids(self) -> tuple[BrokerId, ...]:
        return tuple(BrokerId(self.first_id + i) for i in range(self.rows * self.columns))

    @property
    def links(self) -> tuple[Link, ...]:
        found = []
        for here in self.ids:
            row, column = divmod(here - self.first_id, self.columns)
            if column + 1 < self.columns:
                found.append(Link(here, BrokerId(here + 1)))
            if row + 1 < self.rows:
                found.append(Link(here, BrokerId(here + self.columns)))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Mesh:
    """One filter's mesh."""

    core: BrokerId  # the broker it is built around
    members: frozenset[BrokerId]  # with subscribers, or connecting those; the core among them
    # Next hops towards the core, ascending, of every broker but the core.
    parents: Mapping[BrokerId, tuple[BrokerId, ...]]

    def children(self, here: BrokerId) -> tuple[BrokerId, ...]:
        return tuple(sorted(m for m in self.members if here in self.parents.get(m, ())))


def expected_mesh(grid: Linked, subscribers: Iterable[BrokerId], *, redundancy: int) -> Mesh:
    """The mesh that the paper's rules give: smallest subscriber as core, up to ``redundancy``
    equal-best parents with the smallest ids, members closed over their parents.

    Raises ``ValueError``: when nobody subscribes.
    """
    wanting = sorted(set(subscribers))
    if not wanting:
        raise ValueError("a mesh needs a subscriber")
    core = wanting[0]
    hops = grid.hops_from(core)
    parents = {
        here: tuple(other for other in others if hops[other] == hops[here] - 1)[:redundancy]
        for here, others in grid.neighbours.items()
        if here != core
    }
    members: set[BrokerId] = set()
    unvisited = list(wanting)
    while unvisited:
        here = unvisited.pop()
        if here not in members:
            members.add(here)
            unvisited.extend(parents.get(here, ()))
    return Mesh(core, frozenset(members), parents)


def announcement_bound(grid: Linked) -> int:
    """Theorem 1: publications per core announcement, at most."""
    return 2 * len(grid.links)


def announcement_flood(grid: Linked) -> int:
    """Publications of one flood when all links delay alike: everyone but towards the sender."""
    return announcement_bound(grid) - (len(grid.ids) - 1)


Statuses = Mapping[BrokerId, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Announced:
    """Core announcements so far."""

    made: int  # sequence numbers used, summed over all agents: each has its own as a core
    messages: int  # publications that carried them, summed over all agents
    heard: bool  # every agent has heard the latest of every core it knows


def announced(statuses: Statuses) -> Announced:
    latest: dict[int, int] = {here: s["own_core"]["seq"] for here, s in statuses.items()}
    return Announced(
        made=sum(latest.values()),
        messages=sum(control_sent(status).get("core_ann", 0) for status in statuses.values()),
        heard=all(
            core["seq"] == latest[core["core"]]
            for status in statuses.values()
            for core in status["cores"]
        ),
    )


def control_sent(status: Mapping[str, Any]) -> Mapping[str, int]:
    sent: Mapping[str, int] = status["counters"]["control_sent"]
    return sent


def total_control_sent(statuses: Statuses) -> dict[str, int]:
    total: Counter[str] = Counter()
    for status in statuses.values():
        total.update(control_sent(status))
    return dict(total)


def observed_mesh(statuses: Statuses, filter: str) -> Mesh:
    """The mesh of ``filter`` as its agents describe it. Agents that disagree about the core show
    as a difference of parents from what was expected.
    """
    entries = {here: _entry(status, filter) for here, status in statuses.items()}
    cores = [entry["core"] for entry in entries.values() if entry is not None]
    core = BrokerId(min(cores)) if cores else BrokerId(-1)
    members = frozenset(here for here, entry in entries.items() if entry and entry["member"])
    parents = {here: _parents(status, core) for here, status in statuses.items() if here != core}
    return Mesh(core, members, parents)


def mesh_fault(statuses: Statuses, filter: str, expected: Mesh) -> str | None:
    """What differs from ``expected``, as one line; ``None`` when nothing does.

    A non-member relays to one parent, and to one in the mesh when it has such a parent.
    """
    for here, status in statuses.items():
        entry = _entry(status, filter)
        if entry is None:
            return f"broker {here} does not know the mesh of {filter}"
        if entry["core"] != expected.core:
            return f"broker {here} takes {entry['core']} for the core, not {expected.core}"
        if entry["member"] != (here in expected.members):
            return f"broker {here} is {'a' if entry['member'] else 'no'} member"
        parents = expected.parents.get(here, ())
        if here != expected.core and _parents(status, expected.core) != parents:
            return f"broker {here} has parents {_parents(status, expected.core)}, not {parents}"
        hops = set(entry["next_hops"])
        children = set(expected.children(here))
        if entry["member"]:
            if hops != {*parents, *children}:
                return f"broker {here} sends to {sorted(hops)}, not {sorted({*parents, *children})}"
        else:
            wanted = tuple(p for p in parents if p in expected.members) or parents
            if len(hops) != 1 or not hops <= set(wanted):
                return f"broker {here} relays to {sorted(hops)}, not to one of {wanted}"
    return None


def destinations_fault(
    statuses: Statuses,
    filter: str,
    graph: Linked,
    subscribers: Collection[BrokerId],
    costs: LinkCosts,
) -> str | None:
    """What of the routing tables of ``filter`` is not as the graph gives it, as one line.

    Every broker knows every subscriber as a destination, and the path there.
    """
    for here, status in statuses.items():
        rows = [row for row in status["destinations"] if row["filter"] == filter]
        ways = {row["to"]: row["path/topic"] for row in rows}
        wanted = {}
        for there in subscribers:
            path = graph.path(here, there, costs)
            wanted[there] = f"{'-'.join(map(str, path[1:] or path))}/{filter}"
        if ways != wanted:
            return f"broker {here} has the ways {ways}, not {wanted}"
    return None


def next_hops(statuses: Statuses, filter: str, here: BrokerId) -> tuple[BrokerId, ...]:
    entry = _entry(statuses[here], filter)
    return tuple(entry["next_hops"]) if entry is not None else ()


def _entry(status: Mapping[str, Any], filter: str) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = next(
        (mesh for mesh in status["meshes"] if mesh["filter"] == filter), None
    )
    return found


def _parents(status: Mapping[str, Any], core: BrokerId) -> tuple[BrokerId, ...]:
    found = next((entry["parents"] for entry in status["cores"] if entry["core"] == core), ())
    return tuple(BrokerId(parent) for parent in found)
