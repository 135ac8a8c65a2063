"""A world whose agents take part in failover, and whose brokers keep the guide.

The guide is a retained message: it stays as it was while its agent is paused or deaf, it gives way
to the agent's Will when the agent dies, and a broker that was killed comes back with the one that
it had.
"""

from collections import Counter

from federator.protocol import events
from federator.protocol.effects import PublishGuide, SetDraining, StepBack, StepIn
from federator.protocol.messages.guide import Guide
from federator.protocol.messages.session_records import BrokerRecord, FlowRow, encode_record
from federator.protocol.types import BrokerId
from lab.sim.network import Agent
from lab.sim.plan import WorldPlan, address_of
from lab.sim.watcher import Watcher
from lab.sim.world import World


class FailoverWorld(World):
    """See ``World``; ``plan.failover`` must be set."""

    def __init__(self, plan: WorldPlan, *, seed: int, watcher: Watcher) -> None:
        assert plan.failover is not None, "a world without failover has no guides"
        # What each broker retains; ``None``: its agent's Will.
        self.guides: dict[BrokerId, Guide | None] = dict.fromkeys(plan.ids)
        self.rows: dict[BrokerId, frozenset[FlowRow]] = dict.fromkeys(plan.ids, frozenset())
        self.loads = dict.fromkeys(plan.ids, 0)  # clients, as the agent says
        self.drains: Counter[BrokerId] = Counter()  # orders to drain that the agent obeyed
        self._newest: dict[BrokerId, Guide] = {}  # of the running agents
        super().__init__(plan, seed=seed, watcher=watcher)

    def set_rows(self, id: BrokerId, rows: frozenset[FlowRow]) -> None:
        """The clients of a broker do other things now."""
        before, self.rows[id] = self.rows[id], rows
        agent = self.agents.get(id)
        if agent is not None and before != rows:
            self._tell(agent, events.RowsChanged(_texts(rows - before), _texts(before - rows)))

    def set_load(self, id: BrokerId, clients: int) -> None:
        """A broker has so many clients now."""
        self.loads[id] = clients
        agent = self.agents.get(id)
        if agent is not None:
            self._tell(agent, self._status_of(id))

    def order_drain(self, at: BrokerId, broker: BrokerId, drain: bool) -> None:
        """An operator tells the agent of ``at``."""
        agent = self.agents.get(at)
        if agent is not None:
            self._tell(agent, events.DrainRequested(broker, drain))

    def stop_agent(self, id: BrokerId, *, graceful: bool = False) -> None:
        """As in any world; the broker then retains the agent's Will."""
        ran = self.agents.get(id)
        super().stop_agent(id, graceful=graceful)
        if ran is not None and id not in self.agents:
            self._newest.pop(id, None)
            if self.brokers[id].running:
                self.guides[id] = None

    def _start(self, id: BrokerId) -> None:
        ran = self.agents.get(id)
        super()._start(id)
        agent = self.agents.get(id)
        if agent is None or agent is ran:
            return
        self.handle(agent, self._status_of(id))
        if self.rows[id]:
            self.handle(agent, events.RowsChanged(_texts(self.rows[id]), frozenset()))

    def _status_of(self, id: BrokerId) -> events.StatusChanged:
        draining = self.disks[id].draining
        return events.StatusChanged(BrokerRecord(draining, self.loads[id], 0, address_of(id)))

    def handle(self, agent: Agent, event: events.Event) -> None:
        super().handle(agent, event)
        if isinstance(event, events.LocalBrokerUp) and agent.id in self._newest:
            self.guides[agent.id] = self._newest[agent.id]

    def _on_failover(
        self, agent: Agent, effect: PublishGuide | StepIn | StepBack | SetDraining
    ) -> None:
        super()._on_failover(agent, effect)
        match effect:
            case PublishGuide(guide):
                self._newest[agent.id] = guide
                if agent.subscribed and self.brokers[agent.id].running:
                    self.guides[agent.id] = guide
                self.watcher.guided(agent, guide)
            case SetDraining(drain):
                disk = self.disks[agent.id]
                if disk.draining != drain:
                    disk.draining = drain
                    self.drains[agent.id] += drain
                    self.agenda.at(self.now_ms, self._tell, agent, self._status_of(agent.id))
            case StepIn() | StepBack():
                pass


def _texts(rows: frozenset[FlowRow]) -> frozenset[str]:
    """The records that say ``rows``."""
    return frozenset(text for row in rows if (text := encode_record(row)) is not None)
