"""A federation as a graph, and the graph as text, DOT, Mermaid or JSON.

The reports of agents are merged into one picture: a link that both ends report is one link, and up
only if both say so. For each core the picture has a tree: the parents of each broker towards it.

All labels come from other machines, so they are quoted for each format.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from federator.cli.agent_pages import Names
from federator.cli.observe.status_page import StatusPage, TreeRow
from federator.cli.options import columns
from federator.protocol.messages.broker_names import named
from federator.protocol.telemetry.agent_status import LinkStatus


@dataclass(slots=True)
class Broker:
    """One broker. ``asked`` says whether its own agent contributed to the picture."""

    id: int
    name: str = ""
    url: str = ""
    asked: bool = False
    ready: bool | None = None
    core_of: int = 0


@dataclass(slots=True)
class Link:
    """Two neighbours, ``a < b``."""

    a: int
    b: int
    state: str
    cost: int | None
    rtt_ms: int | None


@dataclass(slots=True)
class Tree:
    """Parents of each broker towards one core, smallest id first."""

    core: int
    parents: dict[int, list[int]] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Topology:
    """The merged picture. ``filter`` is set when it shows one mesh only."""

    filter: str | None
    brokers: dict[int, Broker] = field(default_factory=dict)
    links: dict[tuple[int, int], Link] = field(default_factory=dict)
    trees: dict[int, Tree] = field(default_factory=dict)

    def broker(self, id: int) -> Broker:
        """The broker; added if it is new."""
        return self.brokers.setdefault(id, Broker(id))

    def shown(self, id: int) -> str:
        """The broker for people, with its name if it has one."""
        return named(id, self.brokers[id].name if id in self.brokers else "")

    def listed(self, ids: Iterable[int]) -> str:
        """Some brokers for people."""
        return " ".join(map(self.shown, ids)) or "none"

    def name(self, page_names: object) -> None:
        """Name the brokers as in an agent's ``names``."""
        names = Names(page_names)
        for broker in self.brokers.values():
            broker.name = broker.name or names.of(broker.id)


def merge(pages: Sequence[StatusPage], topic_filter: str | None = None) -> Topology:
    """One picture from the ``/status`` of one or more agents."""
    topology = Topology(topic_filter)
    for page in pages:
        if page.id is None:  # of a gateway, which has no broker
            continue
        own = topology.broker(page.id)
        own.asked, own.ready = True, page.ready
        own.url, own.core_of = page.broker.url, page.own_core.filters
        for link in page.links:
            if link.neighbour is not None:  # else never reached: only its address is known
                _add_link(topology, own.id, link.neighbour, link)
        for row in page.cores:
            if row.core is not None:
                core = topology.broker(row.core)
                core.core_of = max(core.core_of, row.filters)
        for row in page.cores if topic_filter is None else page.meshes:
            if topic_filter in (None, row.filter):
                _add_parents(topology, own.id, row)
        for way in page.destinations:
            if way.filter == topic_filter:
                parents = () if way.next_hop is None else (way.next_hop,)
                _add_parents(topology, own.id, TreeRow(core=way.to, parents=parents))
    for page in pages:
        topology.name(page.names)
    return topology


def add_announced(topology: Topology, page: Mapping[str, Any]) -> None:
    """Add brokers and links from announcements: the ``/topology`` of one agent."""
    for entry in page.get("brokers", []):
        broker = topology.broker(entry["broker"])
        broker.url = broker.url or str(entry.get("address", ""))
    for a, b in page.get("links", []):
        topology.links.setdefault((a, b), Link(a, b, "up", None, None))
    topology.name(page.get("names"))


def _add_link(topology: Topology, own: int, other: int, reported: LinkStatus) -> None:
    topology.broker(other)
    a, b = min(own, other), max(own, other)
    cost, rtt = (
        None if value is None else int(value) for value in (reported.cost, reported.rtt_ms)
    )
    link = topology.links.setdefault((a, b), Link(a, b, reported.state, cost, rtt))
    link.state = reported.state if link.state == "up" else link.state
    link.rtt_ms = rtt if link.rtt_ms is None else link.rtt_ms


def _add_parents(topology: Topology, own: int, row: TreeRow) -> None:
    if row.core is None:
        return
    tree = topology.trees.setdefault(row.core, Tree(row.core))
    if row.member or row.in_mesh or row.core == own:
        tree.members.append(own)
    pairs: list[tuple[int, int]] = [(own, parent) for parent in row.parents]
    pairs += [(child, own) for child in row.children]
    for child, parent in pairs:
        topology.broker(child)
        topology.broker(parent)
        listed = tree.parents.setdefault(child, [])
        if parent not in listed:
            listed.append(parent)
            listed.sort()


def as_text(topology: Topology) -> str:
    """The picture as aligned lists."""
    brokers = [topology.brokers[id] for id in sorted(topology.brokers)]
    lines = [f"brokers: {len(brokers)}"]
    lines += columns([_broker_cells(topology, broker) for broker in brokers], indent=2)
    links = [topology.links[pair] for pair in sorted(topology.links)]
    shown, listed = topology.shown, topology.listed
    rows = [(f"{shown(x.a)} -- {shown(x.b)}", x.state, _cost(x), _rtt(x)) for x in links]
    lines += ["", f"links: {len(links)}", *(columns(rows, indent=2) if rows else [])]
    for core in sorted(topology.trees):
        tree = topology.trees[core]
        name = f"mesh of {topology.filter!r}: " if topology.filter else ""
        lines += ["", f"{name}core {shown(core)}, members {listed(sorted(tree.members))}"]
        lines += [f"  {shown(n)} -> {listed(tree.parents[n])}" for n in sorted(tree.parents)]
    if topology.filter and not topology.trees:
        lines += ["", f"no mesh of {topology.filter!r}"]
    return "\n".join(lines)


def _broker_cells(topology: Topology, broker: Broker) -> tuple[str, str, str, str]:
    ready = {None: "not asked", True: "ready", False: "NOT READY"}[broker.ready]
    core = f"core of {broker.core_of}" if broker.core_of else ""
    return topology.shown(broker.id), broker.url, ready, core


def _cost(link: Link) -> str:
    return "" if link.cost is None else f"cost {link.cost}"


def _rtt(link: Link) -> str:
    return "" if link.rtt_ms is None else f"rtt {link.rtt_ms:.1f} ms"


def as_dot(topology: Topology) -> str:
    """Graphviz: links as plain lines, parents as arrows, cores as double circles."""
    lines = ["digraph federation {", "  node [shape=circle];"]
    for id in sorted(topology.brokers):
        attributes = ["shape=doublecircle"] if id in topology.trees else []
        if topology.brokers[id].name:
            attributes.append(f"label={_quoted(topology.shown(id))}")
        lines.append(f"  {id} [{', '.join(attributes)}];" if attributes else f"  {id};")
    for a, b in sorted(topology.links):
        style = "solid" if topology.links[a, b].state == "up" else "dashed"
        lines.append(f"  {a} -> {b} [dir=none, color=gray, style={style}];")
    for core, node, parent in _arrows(topology):
        lines.append(f'  {node} -> {parent} [label="{core}"];')
    if topology.filter:
        lines.append(f"  label={_quoted(topology.filter)};")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    """A text of Graphviz, whatever it holds."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def as_mermaid(topology: Topology) -> str:
    """Mermaid, as forges render it in Markdown."""
    brokers = sorted(topology.brokers)
    lines = ["graph LR"]
    for id in brokers:
        label = _entities(topology.shown(id)) if topology.brokers[id].name else str(id)
        lines.append(f"  b{id}(({label}))" if id in topology.trees else f"  b{id}[{label}]")
    for a, b in sorted(topology.links):
        line = "---" if topology.links[a, b].state == "up" else "-.-"
        lines.append(f"  b{a} {line} b{b}")
    lines += [f"  b{node} -->|{core}| b{parent}" for core, node, parent in _arrows(topology)]
    return "\n".join(lines)


def _entities(text: str) -> str:
    """A quoted text of Mermaid, which takes HTML for HTML: all but letters and digits by number."""
    return '"' + "".join(c if c.isalnum() or c == " " else f"#{ord(c)};" for c in text) + '"'


def as_json(topology: Topology) -> str:
    """The picture's data as JSON."""
    picture = {
        "filter": topology.filter,
        "brokers": [asdict(topology.brokers[id]) for id in sorted(topology.brokers)],
        "links": [asdict(topology.links[pair]) for pair in sorted(topology.links)],
        "trees": [asdict(topology.trees[core]) for core in sorted(topology.trees)],
    }
    return json.dumps(picture, indent=2)


def _arrows(topology: Topology) -> list[tuple[int, int, int]]:
    return sorted(
        (core, node, parent)
        for core, tree in topology.trees.items()
        for node, parents in tree.parents.items()
        for parent in parents
    )


DRAWINGS: dict[str, Callable[[Topology], str]] = {
    "text": as_text,
    "dot": as_dot,
    "json": as_json,
    "mermaid": as_mermaid,
}
"""Every form by its name."""
