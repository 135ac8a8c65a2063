"""Agents that take part in failover, and brokers that keep the guide.

The guide is a retained message: it stays as it was while its agent is paused or deaf, it gives way
to the agent's Will when the agent dies, and a broker that was killed comes back with the one that
it had.
"""

from collections import Counter

from federator.protocol import events
from federator.protocol.effects import Effect, PublishGuide, SetDraining, StepBack, StepIn
from federator.protocol.messages.guide import Guide
from federator.protocol.messages.session_records import BrokerRecord, FlowRow, encode_record
from federator.protocol.types import BrokerId
from lab.sim.network import Agent
from lab.sim.parts import Part
from lab.sim.plan import address_of
from lab.sim.world import World


class Failover(Part):
    """Guides, rows and drains in a world whose plan has ``failover``."""

    def __init__(self, world: World) -> None:
        assert world.plan.failover is not None, "a world without failover has no guides"
        ids = world.plan.ids
        self.world = world
        # What each broker retains; ``None``: its agent's Will.
        self.guides: dict[BrokerId, Guide | None] = dict.fromkeys(ids)
        self.rows: dict[BrokerId, frozenset[FlowRow]] = dict.fromkeys(ids, frozenset())
        self.loads = dict.fromkeys(ids, 0)  # clients, as the agent says
        self.drains: Counter[BrokerId] = Counter()  # orders to drain that the agent obeyed
        self._newest: dict[BrokerId, Guide] = {}  # of the running agents

    def set_rows(self, id: BrokerId, rows: frozenset[FlowRow]) -> None:
        before, self.rows[id] = self.rows[id], rows
        if before != rows:
            added, removed = _texts(rows - before), _texts(before - rows)
            self._tell(id, events.RowsChanged(added, removed))

    def set_load(self, id: BrokerId, clients: int) -> None:
        self.loads[id] = clients
        self._tell(id, self._status_of(id))

    def order_drain(self, at: BrokerId, broker: BrokerId, drain: bool) -> None:
        self._tell(at, events.DrainRequested(broker, drain))

    def started(self, agent: Agent) -> None:
        self.world.handle(agent, self._status_of(agent.id))
        if rows := self.rows[agent.id]:
            self.world.handle(agent, events.RowsChanged(_texts(rows), frozenset()))

    def stopped(self, agent: Agent, *, orderly: bool) -> None:
        """The broker then retains the agent's Will."""
        self._newest.pop(agent.id, None)
        if self.world.brokers[agent.id].running:
            self.guides[agent.id] = None

    def local_up(self, agent: Agent) -> None:
        if agent.id in self._newest:
            self.guides[agent.id] = self._newest[agent.id]

    def perform(self, agent: Agent, effect: Effect) -> bool:
        world = self.world
        if not isinstance(effect, PublishGuide | StepIn | StepBack | SetDraining):
            return False
        match effect:
            case PublishGuide(guide):
                self._newest[agent.id] = guide
                if agent.subscribed and world.brokers[agent.id].running:
                    self.guides[agent.id] = guide
                for part in world.parts:
                    part.guided(agent, guide)
            case SetDraining(drain) if world.disks[agent.id].draining != drain:
                world.disks[agent.id].draining = drain
                self.drains[agent.id] += drain
                world.agenda.at(world.now_ms, world.tell, agent, self._status_of(agent.id))
            case _:
                pass
        return True

    def _tell(self, id: BrokerId, event: events.Event) -> None:
        agent = self.world.agents.get(id)
        if agent is not None:
            self.world.tell(agent, event)

    def _status_of(self, id: BrokerId) -> events.StatusChanged:
        draining = self.world.disks[id].draining
        return events.StatusChanged(BrokerRecord(draining, self.loads[id], 0, address_of(id)))


def _texts(rows: frozenset[FlowRow]) -> frozenset[str]:
    """The records that say ``rows``."""
    return frozenset(text for row in rows if (text := encode_record(row)) is not None)
