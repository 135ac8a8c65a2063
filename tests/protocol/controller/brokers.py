"""Nodes wired by hand that take part in failover, and what they told their clients."""

from federator.protocol.effects import PublishGuide, SetDraining, StepBack, StepIn
from federator.protocol.events import (
    DrainRequested,
    LocalBrokerDown,
    LocalBrokerUp,
    RowsChanged,
    StatusChanged,
)
from federator.protocol.messages.session_records import BrokerRecord, FlowRow, encode_record
from federator.protocol.node import Identity, Node
from tests.protocol.network import PARAMETERS, Network

GONE_MS = 3_000
"""Far above what it takes until a death is known, decided and told."""


class Brokers(Network):
    """A network whose nodes announce their brokers.

    Attributes:
        guides: The newest of each node.
        steps: (node, effect) of each stepping in and back.
    """

    def __init__(self, links, **options):
        super().__init__(links, **options)
        self.guides = {}
        self.steps = []
        self.states = {i: BrokerRecord(address=f"b{i}") for i in self.nodes}
        for i in self.nodes:
            self.say(i)

    def say(self, node, **changes):
        old = self.states[node]
        fields = {"draining": old.draining, "clients": old.clients, "load": old.load} | changes
        self.states[node] = BrokerRecord(address=old.address, **fields)
        self.at(self.now_ms, node, StatusChanged(self.states[node]))

    def rows(self, node, *rows, gone=()):
        change = (frozenset(map(encode_record, each)) for each in (rows, gone))
        self.at(self.now_ms, node, RowsChanged(*change))

    def kill(self, node):
        """Its broker dies: its agent is deaf, and neighbours lose their connections."""
        self.at(self.now_ms, node, LocalBrokerDown())
        for a, b in self.links:
            if node in (a, b):
                self.cut(a, b)

    def revive(self, node, *, forgets=False):
        """Its broker is back; with ``forgets`` its agent is a new process."""
        if forgets:
            epoch = self.nodes[node].links.epoch + 1
            self.nodes[node] = Node(Identity(node, epoch, f"b{node}"), PARAMETERS)
            self.say(node)
        self.at(self.now_ms, node, LocalBrokerUp())
        for a, b in self.links:
            if node in (a, b):
                self.connect(a, b)
                self.connect(b, a)

    def drain(self, at, broker, drain=True):
        self.at(self.now_ms, at, DrainRequested(broker, drain))

    def controllers(self, *besides):
        return {g.controller for i, g in self.guides.items() if i not in besides}

    def takeovers(self, *besides):
        """What all nodes agree on, as {broker: substitute}."""
        told = [
            {t.broker: t.substitute for t in g.takeovers}
            for i, g in sorted(self.guides.items())
            if i not in besides
        ]
        assert all(each == told[0] for each in told), told
        return told[0]

    def state(self, node, broker):
        return next(b for b in self.guides[node].brokers if b.id == broker).state

    def _perform(self, node, effect):
        match effect:
            case PublishGuide(guide):
                self.guides[node] = guide
            case StepIn() | StepBack():
                self.steps.append((node, effect))
            case SetDraining(drain):
                self.say(node, draining=drain)
            case _:
                super()._perform(node, effect)


def kept(client, filter, **more):
    """A subscription of a session that lasts."""
    return FlowRow(client, "sub", filter, keeps=True, qos=1, **more)
