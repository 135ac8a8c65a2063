"""A whole grid of real processes: brokers, the relays between them, and an agent beside each.

Two relays make a link, one per dialling direction: agent ``a`` reaches ``b``'s broker through the
relay named ``a>b``, and what comes back on the same connection takes the same delay. Nothing
else connects two nodes, so a publication cannot arrive before the links' delays have passed.

In a ``JoinedGrid`` are no relays: brokers join through one of them and arrange their links among
themselves. Nothing is told to an agent but its broker and the seed; keys it has, too, so that what
it hears of others' addresses is signed. What the graph is, everybody must say alike
(docs/topology.md).
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from federator.protocol.topology.graph import Strength, near_of, strength_of
from federator.protocol.types import BrokerId
from lab.grid.processes import warm
from lab.grid.processes.agent import KeyFolder
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.children import Child, Spawn
from lab.grid.processes.ports import free_ports
from lab.grid.processes.relay import Way
from lab.grid.stage import Pages, Stage, unlinked, widened
from lab.grid.topology import Link, LinkCosts, Linked

STARTS_AT_ONCE: Final = 4
"""An agent's start costs a second of processor time; more at once only take turns."""

FEDERATION: Final = "grid"


def relay_name(here: BrokerId, there: BrokerId) -> str:
    """The relay by which agent ``here`` reaches ``there``'s broker."""
    return f"{here}>{there}"


def direct_relay_name(there: BrokerId) -> str:
    """The relay by which all neighbours' agents go straight to ``there``'s."""
    return f">{there}"


class RunningGrid(Stage):
    """Real brokers, relays and agents; an async context manager that starts and stops them.

    Args:
        folder: For configurations, state and logs; exists.
        link_delay_ms: Of every link, each way.
        redundancy: Parents per broker.
        link_costs: Of links that do not cost 1.
        agent_options: Further configuration of every agent, by section.
        broker_options: Further lines of every broker's configuration.
        persistent: Brokers that keep sessions and queues over a clean stop.
        signed: Agents have keys, and believe only who has.
        direct: Frames go straight from agent to agent. A fault of a link hits all that come
            straight to either of its ends.
        capacity: Of every link, bit/s each way, as agents are told; links are as wide as ever.
        with_agents: Otherwise brokers run alone, and nothing crosses a link.
        spawn: Starts the agents.
        progress: Told what was started.
    """

    def __init__(
        self,
        grid: Linked,
        folder: Path,
        *,
        link_delay_ms: float,
        redundancy: int = 2,
        link_costs: LinkCosts | None = None,
        agent_options: Mapping[str, Mapping[str, Any]] | None = None,
        broker_options: tuple[str, ...] = (),
        persistent: Container[BrokerId] = (),
        signed: bool = False,
        direct: bool = False,
        capacity: int | None = None,
        with_agents: bool = True,
        spawn: Spawn = warm.spawn,
        progress: Callable[[str], None] = lambda what: None,
    ) -> None:
        super().__init__(folder, spawn=spawn)
        self.brokers |= {
            i: BrokerProcess(
                folder / f"broker-{i}", extra_config=broker_options, persistence=i in persistent
            )
            for i in grid.ids
        }
        self.grid = grid
        self.link_delay_ms = link_delay_ms
        self.signed = signed
        self.direct = direct
        self._keys = KeyFolder(folder / "keys", FEDERATION) if signed else None
        self._costs = link_costs or {}
        self._capacity = capacity
        self._with_agents = with_agents
        self._progress = progress
        options = {name: dict(keys) for name, keys in (agent_options or {}).items()}
        self._options = {**options, "mesh": {"redundancy": redundancy, **options.get("mesh", {})}}

    async def start(self) -> None:
        """Start everything; returns when every agent is ready, knows what its broker's clients
        want, and has all its links.

        Raises ``LinkError``: something did not start in time.
        """
        await start_each("broker", self.brokers, self._progress)
        for here in self.grid.ids if self._with_agents else ():
            await self._plan(here)
        await start_each("agent", self.agents, self._progress)
        await self.until(self.links_up)
        await self.until(widened)

    async def _plan(self, here: BrokerId) -> None:
        urls = {
            there: await self.relayed(relay_name(here, there), there, delay_ms=self.link_delay_ms)
            for there in self.grid.neighbours[here]
        }
        costs = {
            other: cost
            for link, cost in self._costs.items()
            for one, other in ((link.a, link.b), (link.b, link.a))
            if one == here
        }
        more = self._options | (await self._direct_options(here) if self.direct else {})
        if self._keys is not None:
            more = more | {"keys": self._keys.section(here) | {"roles": "required"}}
        self.planned(
            here,
            self.brokers[here].url,
            urls,
            federation=FEDERATION,
            costs=costs,
            capacity=self._capacity,
            more=more,
            security="open" if self._keys is None else "signed",
        )

    async def _direct_options(self, here: BrokerId) -> dict[str, dict[str, Any]]:
        (port,) = free_ports(1)
        name, place = direct_relay_name(here), ("127.0.0.1", port)
        told = await self.relays.add(name, place, delay_ms=self.link_delay_ms)
        direct = {"listen": f"127.0.0.1:{port}", "advertise": f"127.0.0.1:{told}"}
        links = {**self._options.get("links", {}), "transport": "direct"}
        return {"links": links, "direct": direct}

    async def statuses(self) -> Pages:
        return await self.pages("/status")

    def links_up(self, statuses: Pages) -> str | None:
        def used(link: dict[str, Any]) -> bool:
            return not self.direct or link["direct"]["used"]

        return unlinked(statuses, self.grid.neighbours, used)

    async def order(self, act: str, *links: Link, **how: object) -> None:
        """Have the relays of each link do something: ``act`` is a method of ``Relay``."""
        for name in self._relays_of(links):
            await self.relays.order(act, name, **how)

    async def order_one_way(self, act: str, here: BrokerId, there: BrokerId) -> None:
        """``silence`` or ``swallow`` what goes from ``here`` to ``there``, not what comes back.

        It goes forth on the connection that ``here`` dialled, and back on the other one.
        """
        await self.relays.order(act, relay_name(here, there), ways=[Way.FORTH])
        await self.relays.order(act, relay_name(there, here), ways=[Way.BACK])
        if self.direct:
            await self.relays.order(act, direct_relay_name(there), ways=[Way.FORTH])

    async def count(self, counter: str, *links: Link) -> int:
        names = self._relays_of(links)
        return sum([(await self.relays.counters(name))[counter] for name in names])

    def _relays_of(self, links: Iterable[Link]) -> list[str]:
        names: list[str] = []
        for link in links:
            names += [relay_name(link.a, link.b), relay_name(link.b, link.a)]
            if self.direct:
                names += [direct_relay_name(link.a), direct_relay_name(link.b)]
        return list(dict.fromkeys(names))

    def state(self) -> dict[str, Any]:
        delay = {"delay_ms": self.link_delay_ms}
        return super().state() | {"links": [asdict(link) | delay for link in self.grid.links]}


async def start_each(
    what: str,
    processes: Mapping[BrokerId, Child],
    progress: Callable[[str], None] = lambda what: None,
) -> None:
    """Start all of ``processes``, a few at a time; the first failure cancels the rest."""
    room = asyncio.Semaphore(STARTS_AT_ONCE)

    async def one(here: BrokerId) -> None:
        async with room:
            await processes[here].start()
            progress(f"{what} {here}")

    async with asyncio.TaskGroup() as tasks:
        for here in processes:
            tasks.create_task(one(here), name=f"start {here}")


NEIGHBOURS: Final = 6
"""Links that each wants."""

SETTLE_TIMEOUT_S: Final = 180.0
SETTLE_POLL_S: Final = 0.5
QUICKLY: Final = {"settle_ms": 2_000, "patience_ms": 2_000, "measure_ms": 1_000}
"""A grid of an hour has other hurries than a federation of years."""


class JoinedGrid(Stage):
    """Brokers 0 to ``count - 1``, of which 0 is the seed; an async context manager.

    ``folder``, which exists, is for configurations, keys, state and logs.
    """

    def __init__(self, count: int, folder: Path) -> None:
        ids = map(BrokerId, range(count))
        super().__init__(folder)
        self.brokers |= {id: BrokerProcess(folder / f"broker-{id}") for id in ids}
        self._keys = KeyFolder(folder / "keys", FEDERATION)

    async def start(self) -> None:
        """Start all brokers, then all agents. Raises ``LinkError``: one did not start."""
        await start_each("broker", self.brokers)
        seeds = [self.brokers[BrokerId(0)].url]
        topology = {"mode": "auto", "seeds": seeds, "neighbours": NEIGHBOURS, **QUICKLY}
        for id, broker in self.brokers.items():
            more = {"topology": topology, "keys": self._keys.section(id)}
            self.planned(id, broker.url, more=more, security="signed")
        await start_each("agent", self.agents)

    def kill(self, id: BrokerId) -> None:
        """A broker and its agent die as in a power cut, for good."""
        super().kill(id)
        del self.agents[id], self.brokers[id]

    async def settled(self) -> Strength:
        """Wait until all agree on a graph of all that is as promised. Raises as ``until``."""
        how = {"within_s": SETTLE_TIMEOUT_S, "poll_s": SETTLE_POLL_S}
        (found,) = _strengths(await self.until(self._complaint, path="/topology", **how))
        return found

    def _complaint(self, pages: Pages) -> str | None:
        found, *others = _strengths(pages)
        if others:
            return f"{1 + len(others)} different graphs are told"
        if found.brokers != len(self.agents):
            return f"{found.brokers} of {len(self.agents)} brokers are known"
        if not found.survives_any_death:
            return f"{len(found.parts)} parts, held together by {found.weak.brokers}"
        least, most = min(NEIGHBOURS, found.brokers - 1) - 1, NEIGHBOURS + 1
        if not least <= found.degree_min <= found.degree_max <= most:
            return f"{found.degree_min} to {found.degree_max} links, {least} to {most} wanted"
        return None


def _strengths(pages: Pages) -> list[Strength]:
    graphs = {
        (
            tuple(BrokerId(broker["broker"]) for broker in page["brokers"]),
            tuple((BrokerId(a), BrokerId(b)) for a, b in page["links"]),
        )
        for page in pages.values()
    }
    return [strength_of(near_of(*graph)) for graph in graphs]
