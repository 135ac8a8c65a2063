"""What the agents say they agreed on, held against the mesh that the graph gives.

Source: Spohn 2021, 3 and 4; the fields are those of an agent's ``/status``.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from federator.protocol.types import BrokerId
from lab.grid.topology import LinkCosts, Linked, Mesh

Statuses = Mapping[BrokerId, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Announced:
    """Core announcements so far."""

    made: int  # sequence numbers used, summed over all agents: each has its own as a core
    messages: int  # publications that carried them, summed over all agents
    heard: bool  # every agent has heard the latest of every core it knows


def announced(statuses: Statuses) -> Announced:
    """Count core announcements and the publications that carried them."""
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
    """Control messages an agent sent since its start, by kind."""
    sent: Mapping[str, int] = status["counters"]["control_sent"]
    return sent


def total_control_sent(statuses: Statuses) -> dict[str, int]:
    """Control messages all agents sent since their starts, by kind."""
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
    """The neighbours to which ``here`` sends what its own clients publish."""
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
