"""Clients that follow the guide, as behind a gateway: each has a broker, and is moved when it must.

A gateway reaches every broker, also those on the other side of a split. It believes the guide on a
client's own broker while an agent keeps it; of others' guides it believes the newest.

Each move must have a reason in the world: the client's broker died, its agent was gone for long, or
it drains. One event moves a client at most once: that is what "no flapping" means.

Source: issue "TBRouting, and failover", "Must show".
"""

from dataclasses import dataclass, field

from federator.protocol.messages.guide import Guide
from federator.protocol.messages.session_records import FlowRow
from federator.protocol.types import BrokerId
from lab.sim.failover.part import Failover
from lab.sim.parts import InvariantError

TICK_MS = 200

Reason = tuple[str, BrokerId, int]  # what happened, to which broker, the how manieth time


@dataclass(slots=True)
class Client:
    """One client."""

    name: str
    at: BrokerId  # its broker
    row: FlowRow
    moved_for: list[Reason] = field(default_factory=list)  # why it was moved, each time


class Clients:
    """All clients of one world."""

    def __init__(self, failover: Failover, clients: list[Client]) -> None:
        self.all = clients
        self._failover = failover
        self._world = failover.world
        for id in {client.at for client in clients}:
            self._tell_broker(id)

    def run(self, until_ms: int) -> None:
        self._world.agenda.at(self._world.now_ms + TICK_MS, self._tick, until_ms)

    def _tick(self, until_ms: int) -> None:
        for client in self.all:
            self._look_after(client)
        if self._world.now_ms < until_ms:
            self._world.agenda.at(self._world.now_ms + TICK_MS, self._tick, until_ms)

    def _look_after(self, client: Client) -> None:
        world, at = self._world, client.at
        broker = world.brokers[at]
        if not broker.running:
            self._move(
                client, self._elsewhere(at, newest(self._failover)), ("death", at, broker.life)
            )
            return
        guide = self._failover.guides[at]
        if guide is None:
            told = newest(self._failover)
            if told is not None and state_in(told, at) == "gone":
                reason = ("agent gone", at, world.lives[at])
                self._move(client, self._elsewhere(at, told), reason)
        elif state_in(guide, at) == "draining":
            substitute = takeover_in(guide, at)
            self._move(client, substitute, ("drain", at, self._failover.drains[at]))

    def _elsewhere(self, at: BrokerId, guide: Guide | None) -> BrokerId | None:
        """The substitute, or who comes next and answers."""
        if guide is None:
            return None
        entries = {entry.id: entry for entry in guide.brokers}
        substitute = takeover_in(guide, at)
        named = [substitute] if substitute is not None else []
        named += [*(entries[at].substitutes if at in entries else ()), *entries]
        brokers = self._world.brokers
        able = (id for id in named if id in entries and entries[id].state == "up")
        return next((id for id in able if brokers[id].running), None)

    def _move(self, client: Client, to: BrokerId | None, reason: Reason) -> None:
        world = self._world
        if to is None or to == client.at or not world.brokers[to].running:
            return  # the gateway tries again
        if reason in client.moved_for:
            raise InvariantError("moved_once", f"{client.name} is moved to {to} again for {reason}")
        client.moved_for.append(reason)
        world.fired[f"moved for {reason[0]}"] += 1
        before, client.at = client.at, to
        self._tell_broker(before)
        self._tell_broker(to)

    def _tell_broker(self, id: BrokerId) -> None:
        here = [client for client in self.all if client.at == id]
        self._failover.set_rows(id, frozenset(client.row for client in here))
        self._failover.set_load(id, len(here))


def newest(failover: Failover) -> Guide | None:
    """The newest guide that some broker has, of those that agents keep."""
    world = failover.world
    readable = [
        guide
        for id, guide in sorted(failover.guides.items())
        if guide is not None and world.brokers[id].running and id in world.agents
    ]
    return max(readable, key=lambda g: (g.epoch, g.number), default=None)


def state_in(guide: Guide, broker: BrokerId) -> str | None:
    return next((entry.state for entry in guide.brokers if entry.id == broker), None)


def takeover_in(guide: Guide, broker: BrokerId) -> BrokerId | None:
    return next((t.substitute for t in guide.takeovers if t.broker == broker), None)
