"""What a large world is made of: hubs in a sparse random mesh, as many leaves at each, and clients.

A leaf is the gateway of one site: its client wants ``site/N/#`` and publishes below it. A hub's
client is a control room, which wants what all sites report (``WIDE``) and commands single ones. So
most of what is wanted is wanted at one place, and a little is wanted everywhere.

With areas the hubs of each are a mesh of their own, one of which, the border, hangs on a hub of a
mesh above, where nobody else is; and each site is named by its area, too.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from federator.protocol.parameters import Parameters
from federator.protocol.types import BrokerId, Millis
from lab.sim.plan import BrokerPlan, Link, LinkPlan, Port, SubscriberPlan, WorldPlan, link_of
from lab.sim.topologies import tree

FIRST_ABOVE, FIRST_LEAF, FIRST_PORT, FIRST_BORDER = 50_000, 100_000, 1_000_000, 3_000_000
HUBS_MAX = LEAVES_MAX = 1_000
AREAS_MAX = 100

MESH_DELAY_MS, LEAF_DELAY_MS = (1, 20), (5, 50)
"""One way, drawn for each link."""

START_MS = 2_000
"""A cold start: power comes back everywhere within so long."""

LEAF_GAP_MS = Millis(250)
"""``hub.leaf_ann_gap_ms``."""

WIDE = ("alarm", "meter/#")
"""What control rooms want of all sites."""

TOPICS_UP = ("alarm", "meter/kwh")
TOPIC_DOWN = "command"
NEVER_MS = 1 << 40

TURN_MS = 20
"""How long a hub gathers what it asks of a side, while leaves come by the hundred."""


@dataclass(frozen=True, slots=True)
class LargePlan:
    """Everything that is there before the first event."""

    seed: int
    plan: WorldPlan
    meshes: tuple[tuple[BrokerId, ...], ...]  # of hubs; with areas the one above is the first
    ports: tuple[Port, ...]
    borders: tuple[Port, ...]  # both ends of the links between meshes
    sites: Mapping[BrokerId, str]  # the site at which each leaf is, as topics name it

    @property
    def hubs(self) -> list[BrokerId]:
        return [hub for mesh in self.meshes for hub in mesh]

    @property
    def mesh(self) -> list[Link]:
        hubs = set(self.hubs)
        links = self.plan.links
        return [(link.a, link.b) for link in links if link.a in hubs and link.b in hubs]


def room_for(leaves: int) -> int:
    """``hub.filters_max``, a third of which holds a filter of each leaf, and what hubs want."""
    return 3 * (leaves + 2 * len(WIDE) + 2)


def draw(seed: int, *, hubs: int, leaves: int, filters_max: int, areas: int = 1) -> LargePlan:
    """So many hubs with so many leaves each; a mesh has about twice as many links as hubs.

    ``areas``: among so many the hubs are divided evenly.
    """
    rng = random.Random(f"large {seed} {hubs} {leaves}" + (f" {areas}" if areas > 1 else ""))
    ids = tuple(map(BrokerId, range(1, hubs + 1)))
    size = hubs // areas
    below = tuple(ids[at : at + size] for at in range(0, hubs, size))
    above = tuple(BrokerId(FIRST_ABOVE + at) for at in range(areas if areas > 1 else 0))
    meshes = (above, *below) if above else below
    links = [
        _drawn(rng, mesh[a], mesh[b], MESH_DELAY_MS)
        for mesh in meshes
        for a, b in _sparse(len(mesh), rng)
    ]
    borders: list[Port] = []
    for hub, (border, *_) in zip(above, below, strict=False):
        down, up = (BrokerId(FIRST_BORDER + len(borders) + at) for at in (0, 1))
        borders += [Port(down, hub, up), Port(up, border, down)]
        links.append(_drawn(rng, up, down, MESH_DELAY_MS, dialler=up))
    ports = []
    for number in range(hubs * leaves):
        leaf, port = BrokerId(FIRST_LEAF + number), BrokerId(FIRST_PORT + number)
        ports.append(Port(port, ids[number // leaves], leaf))
        links.append(_drawn(rng, leaf, port, LEAF_DELAY_MS, dialler=leaf))
    area_of = {hub: f"area/{at}/" for at, mesh in enumerate(below, 1) for hub in mesh if above}
    sites = {
        port.leaf: f"{area_of.get(port.hub, '')}site/{number}"
        for number, port in enumerate(ports, 1)
    }
    beside = tuple(port.id for port in (*ports, *borders))
    everyone = (*above, *ids, *(port.leaf for port in ports), *beside)
    any_site = "area/+/site/+" if above else "site/+"
    wide = tuple((f"{any_site}/{what}", 1) for what in WIDE)
    subscribers = [SubscriberPlan(f"room {hub}", hub, wide, start_ms=1) for hub in ids]
    subscribers += [
        SubscriberPlan(site, leaf, ((f"{site}/#", 1),), start_ms=1) for leaf, site in sites.items()
    ]
    quiet = BrokerPlan(sys_interval_ms=NEVER_MS, logs=False)
    plan = WorldPlan(
        ids=everyone,
        links=tuple(links),
        parameters=Parameters(solicit_timeout_ms=Millis(2_000)),
        gaps_ms=dict.fromkeys(beside, LEAF_GAP_MS),
        shortest=frozenset(everyone),
        start_ms_max=START_MS,
        brokers=dict.fromkeys(everyone, quiet),
        subscribers=tuple(subscribers),
        ports=(*ports, *borders),
        hub_filters_max=filters_max,
        turn_ms=TURN_MS,
    )
    return LargePlan(seed, plan, meshes, tuple(ports), tuple(borders), sites)


def _sparse(nodes: int, rng: random.Random) -> list[tuple[int, int]]:
    """A random tree, and as many links again."""
    links = dict.fromkeys(tree(nodes, rng))
    for _ in range(nodes if nodes > 2 else 0):
        a, b = rng.sample(range(nodes), 2)
        links[link_of(BrokerId(a), BrokerId(b))] = None
    return list(links)


def _drawn(
    rng: random.Random,
    a: BrokerId,
    b: BrokerId,
    delays_ms: tuple[int, int],
    *,
    dialler: BrokerId | None = None,
) -> LinkPlan:
    """A link; leaves dial, and are not dialled."""
    delay_ms = rng.randint(*delays_ms)
    return LinkPlan(
        a,
        b,
        configured=(a, b) if dialler is None else (dialler,),
        dialler=dialler,
        delay_ms_min=delay_ms,
        delay_ms_max=delay_ms,
    )
