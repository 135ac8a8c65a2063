"""What a large world is made of: hubs in a sparse random mesh, as many leaves at each, and clients.

A leaf is the gateway of one site: its client wants ``site/N/#`` and publishes below it. A hub's
client is a control room, which wants what all sites report (``WIDE``) and commands single ones. So
most of what is wanted is wanted at one place, and a little is wanted everywhere.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from federator.protocol.parameters import Parameters
from federator.protocol.types import BrokerId, Millis
from lab.sim.messages.brokers import BrokerPlan
from lab.sim.messages.clients import SubscriberPlan
from lab.sim.messages.hubs import Port
from lab.sim.messages.world import MessagePlan
from lab.sim.plan import Link, LinkPlan, WorldPlan, link_of
from lab.sim.topologies import tree

FIRST_LEAF, FIRST_PORT = 100_000, 1_000_000
HUBS_MAX = LEAVES_MAX = 1_000

MESH_DELAY_MS, LEAF_DELAY_MS = (1, 20), (5, 50)
"""One way, drawn for each link."""

START_MS = 2_000
"""A cold start: power comes back everywhere within so long."""

LEAF_GAP_MS = Millis(250)
"""``hub.leaf_ann_gap_ms``."""

WIDE = ("site/+/alarm", "site/+/meter/#")
"""What control rooms want of all sites."""

TOPICS_UP = ("site/{}/alarm", "site/{}/meter/kwh")
TOPIC_DOWN = "site/{}/command"
NEVER_MS = 1 << 40


@dataclass(frozen=True, slots=True)
class LargePlan:
    """Everything that is there before the first event."""

    seed: int
    plan: MessagePlan
    hubs: tuple[BrokerId, ...]
    ports: tuple[Port, ...]
    sites: Mapping[BrokerId, int]  # which site each leaf is at
    filters_max: int

    @property
    def mesh(self) -> list[Link]:
        """The links between hubs."""
        hubs = set(self.hubs)
        links = self.plan.world.links
        return [(link.a, link.b) for link in links if link.a in hubs and link.b in hubs]


def room_for(leaves: int) -> int:
    """``hub.filters_max``, a third of which holds a filter of each leaf, and what hubs want."""
    return 3 * (leaves + 2 * len(WIDE) + 2)


def draw(seed: int, *, hubs: int, leaves: int, filters_max: int) -> LargePlan:
    """So many hubs with so many leaves each; the mesh has about twice as many links as hubs."""
    rng = random.Random(f"large {seed} {hubs} {leaves}")
    ids = tuple(map(BrokerId, range(1, hubs + 1)))
    links = [_drawn(rng, ids[a], ids[b], MESH_DELAY_MS) for a, b in _sparse(hubs, rng)]
    ports = []
    for number in range(hubs * leaves):
        leaf, port = BrokerId(FIRST_LEAF + number), BrokerId(FIRST_PORT + number)
        ports.append(Port(port, ids[number // leaves], leaf))
        links.append(_drawn(rng, leaf, port, LEAF_DELAY_MS, dialler=leaf))
    sites = {port.leaf: number for number, port in enumerate(ports, 1)}
    everyone = (*ids, *(port.leaf for port in ports), *(port.id for port in ports))
    world = WorldPlan(
        ids=everyone,
        links=tuple(links),
        parameters=Parameters(solicit_timeout_ms=Millis(2_000)),
        gaps_ms=dict.fromkeys((port.id for port in ports), LEAF_GAP_MS),
        shortest=frozenset(everyone),
        start_ms_max=START_MS,
    )
    subscribers = [
        SubscriberPlan(f"room {hub}", hub, tuple((filter, 1) for filter in WIDE), start_ms=1)
        for hub in ids
    ]
    subscribers += [
        SubscriberPlan(f"site {site}", leaf, ((f"site/{site}/#", 1),), start_ms=1)
        for leaf, site in sites.items()
    ]
    quiet = BrokerPlan(sys_interval_ms=NEVER_MS)
    plan = MessagePlan(world, dict.fromkeys(everyone, quiet), tuple(subscribers))
    return LargePlan(seed, plan, ids, tuple(ports), sites, filters_max)


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
