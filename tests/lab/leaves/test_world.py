"""The simulated world: a hub that hears its gate learns of all that its members announce."""

from collections import deque

from federator.protocol import effects as e
from federator.protocol import events
from federator.protocol.filters import contains
from federator.protocol.messages import codec
from federator.protocol.messages import control as c
from federator.protocol.node import Identity, Node
from federator.protocol.parameters import Parameters
from federator.protocol.types import BrokerId, ConnId, Cost, Epoch, Millis
from lab.leaves.world import GATE, World

HUB = BrokerId(1)
STEP_MS = 50


class Hub:
    """A node that hears a world, and is heard by it, over the wire form of all that is said."""

    def __init__(self, **size):
        self.now_ms = Millis(1_000)
        self.node = Node(Identity(HUB, Epoch(7), "hub"), Parameters(dial_back=False))
        self.heard = deque()
        self.world = World(
            **size, linger_ms=0, hub=HUB, epoch=Epoch(5), say=self.heard.append, now_ms=self.now_ms
        )
        self.tell(events.LocalBrokerUp())
        self.tell(events.NeighbourConnected(ConnId(1), "gate", GATE, Cost(1)))

    def tell(self, event):
        for effect in self.node.handle(event, now_ms=self.now_ms):
            if isinstance(effect, e.Send):
                self.world.hear(over_the_wire(effect.message), self.now_ms)

    def run(self, ms):
        for _ in range(0, ms, STEP_MS):
            self.now_ms = Millis(self.now_ms + STEP_MS)
            self.world.on_time(self.now_ms)
            while self.heard:
                self.tell(events.Received(over_the_wire(self.heard.popleft())))
            due_ms = self.node.next_deadline_ms()
            if due_ms is not None and due_ms <= self.now_ms:
                self.tell(events.DeadlineReached())

    @property
    def wanted(self):
        return {f: s.brokers for f, s in self.node.topic_routing.states.items() if s.brokers}


def over_the_wire(message):
    assert isinstance(message, c.NodeMessage)
    return codec.decode(codec.kind_of(message), codec.encode(message))


def test_a_hub_learns_what_every_member_announces_and_each_change():
    hub = Hub(brokers=500, filters=5_000, filters_max=900)
    hub.run(20_000)

    members = {m.node.links.self_id: m for m in hub.world.members}
    assert len(members) == 5
    assert sum(map(len, hub.wanted.values())) == hub.world.announced <= 5 * 300

    announced = sum(hub.world.change(hub.now_ms) for _ in range(300))
    hub.run(10_000)

    assert announced > 0
    for id, member in members.items():
        told = {f for f, brokers in hub.wanted.items() if id in brokers}
        assert told == set(member.asked.filters)
        assert all(any(contains(wide, f) for wide in told) for f in member.wishes)


def test_members_keep_nothing_of_each_other():
    hub = Hub(brokers=300, filters=3_000, filters_max=900)
    hub.run(20_000)

    gate, *others = hub.world.members
    assert len(gate.node.topic_routing.states) > 100
    assert all(len(each.node.topic_routing.states) <= 300 for each in others)
