"""A routing as SVG: how full links are, which brokers copy or idle, which requests are unmet.

A link is as wide as its share of capacity in use, from grey over amber to red. A broker that copies
a topic shows the number of copies; one that carries nothing is hollow. An unmet request is a dashed
line from publisher to subscriber.

Nodes without positions are placed by classical scaling of their distances in hops.
"""

from xml.sax.saxutils import escape

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from federator.planner.flow.instance import FloatArray, Instance, Role
from federator.planner.flow.outcome import Outcome

SIZE = 1_000.0
MARGIN = 60.0
SCALED_NODES_MAX = 1_000
"""More nodes, without positions, are drawn on a circle: scaling takes their square in memory."""
NAMED_NODES_MAX = 150
FILLS = {Role.BROKER: "#2b6cb0", Role.PUBLISHER: "#2f855a", Role.SUBSCRIBER: "#805ad5"}


def svg(instance: Instance, outcome: Outcome) -> str:
    """The picture as one SVG document."""
    places = _places(instance)
    title = (
        f"{instance.name}: {outcome.method}, cost {outcome.cost:g}, "
        f"bound {outcome.lower_bound:g}, {outcome.unmet} unmet"
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE:g} {SIZE:g}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="20" y="24" font-size="16">{escape(title)}</text>',
        *_links(instance, outcome, places),
        *_unmet(instance, outcome, places),
        *_nodes(instance, outcome, places),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def copies(instance: Instance, outcome: Outcome) -> FloatArray:
    """Copies that each node makes beyond the one it received, over all topics, shape (N,)."""
    made = np.zeros(instance.nodes)
    for arcs in outcome.routing.arcs:
        sent = np.bincount(instance.tail[arcs], minlength=instance.nodes)
        made += np.maximum(0, sent - 1)
    return made


def idle(instance: Instance, outcome: Outcome) -> list[int]:
    """Brokers that carry nothing."""
    busy = np.zeros(instance.nodes, dtype=bool)
    for arcs in outcome.routing.arcs:
        busy[instance.tail[arcs]] = busy[instance.head[arcs]] = True
    return [int(node) for node in np.flatnonzero(instance.relays & ~busy)]


def _links(instance: Instance, outcome: Outcome, places: FloatArray) -> list[str]:
    used = outcome.account.load / instance.capacity
    drawn: dict[tuple[int, int], float] = {}
    for arc in range(instance.arcs):
        a, b = int(instance.tail[arc]), int(instance.head[arc])
        pair = (min(a, b), max(a, b))
        drawn[pair] = max(drawn.get(pair, 0.0), float(used[instance.channel[arc]]))
    lines = []
    for (a, b), share in sorted(drawn.items()):
        colour = "#c53030" if share > 0.95 else "#dd6b20" if share > 0.6 else "#a0aec0"
        style = f'stroke="{colour}" stroke-width="{1 + 6 * share:.1f}"'
        title = f"{instance.names[a]} - {instance.names[b]}: {share:.0%}"
        lines.append(_line("link", places[[a, b]], style, title))
    return lines


def _unmet(instance: Instance, outcome: Outcome, places: FloatArray) -> list[str]:
    lines = []
    for request in np.flatnonzero(~outcome.account.met):
        topic = int(instance.request_topic[request])
        ends = places[[instance.publisher[topic], instance.request_node[request]]]
        style, title = 'stroke="#c53030" stroke-dasharray="6 5"', instance.topic_names[topic]
        lines.append(_line("unmet", ends, style, f"unmet: {title}"))
    return lines


def _line(kind: str, ends: FloatArray, style: str, title: str) -> str:
    (x1, y1), (x2, y2) = ends
    where = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {where} {style}><title>{escape(title)}</title></line>'


def _nodes(instance: Instance, outcome: Outcome, places: FloatArray) -> list[str]:
    resting = set(idle(instance, outcome))
    made = copies(instance, outcome)
    lines = []
    for node, (x, y) in enumerate(places):
        colour = FILLS[instance.roles[node]]
        fill = "white" if node in resting else colour
        kind = "idle" if node in resting else instance.roles[node].value
        lines.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="8" fill="{fill}" '
            f'stroke="{colour}" stroke-width="2"/>'
        )
        if instance.nodes <= NAMED_NODES_MAX:
            name = escape(instance.names[node])
            lines.append(f'<text x="{x + 11:.1f}" y="{y - 6:.1f}">{name}</text>')
        if made[node]:
            lines.append(
                f'<text class="copies" x="{x:.1f}" y="{y + 4:.1f}" fill="white" font-size="10" '
                f'text-anchor="middle">{made[node]:.0f}</text>'
            )
    return lines


def _places(instance: Instance) -> FloatArray:
    """Positions of the nodes, within the picture, shape (N, 2)."""
    places = _scaled(instance) if instance.positions is None else instance.positions
    low, high = places.min(axis=0), places.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    placed: FloatArray = MARGIN + (places - low) / span * (SIZE - 2 * MARGIN)
    return placed


def _scaled(instance: Instance) -> FloatArray:
    count = instance.nodes
    if count > SCALED_NODES_MAX:
        angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
        return np.column_stack([np.cos(angle), np.sin(angle)])
    graph = csr_matrix(
        (np.ones(instance.arcs), (instance.tail, instance.head)), shape=(count, count)
    )
    hops = shortest_path(graph, directed=False, unweighted=True)
    hops[~np.isfinite(hops)] = count
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centre @ hops**2 @ centre)
    most = np.maximum(values[-2:], 1e-9)
    scaled: FloatArray = vectors[:, -2:] * np.sqrt(most)
    if count < 2 or scaled.shape[1] < 2:
        return np.zeros((count, 2))
    jitter = np.column_stack([np.sin(np.arange(count)), np.cos(np.arange(count))])
    return scaled + 0.12 * jitter  # nodes at equal distances would hide each other
