"""A few nodes wired by hand: every control message arrives ``delay_ms`` later, in order.

Small on purpose: faults, clocks and invariants are the simulator's (``lab.sim``).
"""

import heapq
import math
from itertools import count

from federator.protocol.effects import Notice, Send, SetRoute
from federator.protocol.events import (
    DeadlineReached,
    LocalBrokerUp,
    LocalFiltersChanged,
    NeighbourConnected,
    NeighbourDisconnected,
    Received,
)
from federator.protocol.messages.codec import decode, encode, kind_of
from federator.protocol.messages.control import CoreAnn
from federator.protocol.node import Identity, Node
from federator.protocol.parameters import Parameters

PARAMETERS = Parameters()


class Network:
    """Nodes, the links between them, and what they did.

    Args:
        links: Pairs of broker ids.
        delay_ms: One way, by pair in either order; 5 when absent.
        costs: Of links, by pair; 1 when absent.
        parameters: Of every node.
    """

    def __init__(self, links, *, delay_ms=None, costs=None, parameters=PARAMETERS):
        self.links = [tuple(pair) for pair in links]
        self.delay_ms = delay_ms or {}
        self.costs = costs or {}
        self.now_ms = 0
        self.sent = []  # (at_ms, sender, receiver, message)
        self.notices = []  # (at_ms, node, Notice)
        self.routes = {}  # (node, filter) -> FilterRoute
        self.lost = []  # (node, filter) whose route went while others wanted it
        self._queue = []
        self._order = count()
        self._conns = {}  # (node, conn) -> neighbour
        self._paused_until_ms = {}
        ids = sorted({i for pair in self.links for i in pair})
        self.nodes = {i: Node(Identity(i, 1_000 + i, f"b{i}"), parameters) for i in ids}
        for i in ids:
            self.at(0, i, LocalBrokerUp())
        for a, b in self.links:
            self.connect(a, b)
            self.connect(b, a)

    def connect(self, a, b):
        conn = 1 + max((c for n, c in self._conns if n == a), default=0)
        self._conns[a, conn] = b
        cost = self.costs.get((a, b), self.costs.get((b, a)))
        self.at(self.now_ms, a, NeighbourConnected(conn, f"b{b}", b, cost))

    def cut(self, a, b):
        for (node, conn), neighbour in list(self._conns.items()):
            if {node, neighbour} == {a, b}:
                del self._conns[node, conn]
                self.at(self.now_ms, node, NeighbourDisconnected(conn))

    def restart(self, node, *, epoch):
        """A new process under ``epoch``, which knows nothing; its links are made anew."""
        around = sorted({a + b - node for a, b in self.links if node in (a, b)})
        for neighbour in around:
            self.cut(node, neighbour)
        self.run(0)
        parameters = self.nodes[node].links.parameters
        self.nodes[node] = Node(Identity(node, epoch, f"b{node}"), parameters)
        self.at(self.now_ms, node, LocalBrokerUp())
        for neighbour in around:
            self.connect(node, neighbour)
            self.connect(neighbour, node)

    def pause(self, node, for_ms):
        """Let it do nothing, and then first what waits for it."""
        until_ms = self._paused_until_ms[node] = self.now_ms + for_ms
        heapq.heappush(self._queue, (until_ms, math.inf, node, DeadlineReached()))

    def at(self, at_ms, node, event):
        heapq.heappush(self._queue, (at_ms, next(self._order), node, event))

    def subscribe(self, node, *filters):
        self.at(self.now_ms, node, LocalFiltersChanged(frozenset(filters), frozenset()))

    def unsubscribe(self, node, *filters):
        self.at(self.now_ms, node, LocalFiltersChanged(frozenset(), frozenset(filters)))

    def run(self, for_ms):
        end_ms = self.now_ms + for_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, node, event = heapq.heappop(self._queue)
            resumes_ms = self._paused_until_ms.get(node, 0)
            if self.now_ms < resumes_ms:
                if not isinstance(event, DeadlineReached):
                    self.at(resumes_ms, node, event)
                continue
            due_ms = self.nodes[node].next_deadline_ms()
            if isinstance(event, DeadlineReached) and (due_ms is None or due_ms > self.now_ms):
                continue
            for effect in self.nodes[node].handle(event, now_ms=self.now_ms):
                self._perform(node, effect)
            due_ms = self.nodes[node].next_deadline_ms()
            if due_ms is not None:
                self.at(max(due_ms, self.now_ms), node, DeadlineReached())
        self.now_ms = end_ms

    def announcements(self, core, seq):
        return sum(isinstance(m, CoreAnn) and (m.core, m.seq) == (core, seq) for *_, m in self.sent)

    def _perform(self, node, effect):
        match effect:
            case Send(conn, message):
                neighbour = self._conns.get((node, conn))
                if neighbour is None:
                    return
                self.sent.append((self.now_ms, node, neighbour, message))
                wire = decode(kind_of(message), encode(message))
                pair = (node, neighbour)
                delay_ms = self.delay_ms.get(pair, self.delay_ms.get(pair[::-1], 5))
                self.at(self.now_ms + delay_ms, neighbour, Received(wire))
            case SetRoute(filter_, route, lost):
                self.routes[node, filter_] = route
                if lost:
                    self.lost.append((node, filter_))
            case Notice():
                self.notices.append((self.now_ms, node, effect))


def network_with(links, *subscribers, **options):
    """A network at rest, with clients at these brokers that subscribed to f one after the other."""
    network = Network(links, **options)
    network.run(1_000)
    for subscriber in subscribers:
        network.subscribe(subscriber, "f")
        network.run(200)
    network.run(PARAMETERS.core_ann_interval_ms)
    return network


def grid_links(rows, cols):
    for i in range(rows * cols):
        if i % cols < cols - 1:
            yield i, i + 1
        if i < (rows - 1) * cols:
            yield i, i + cols
