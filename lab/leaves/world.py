"""All the rest of a federation, as its nearest hub hears it: members, and what they want.

Each member is a hub that stands for 100 brokers, and announces what these want as hubs do, within
the product's own bound; it is one of the product's own nodes. One of them, the *gate*, is the
neighbour of a real hub and passes on what the others announce. They hang on it like the petals of a
flower: what the gate would tell them of each other is left out, for a hundred nodes that each hold
what a hundred announce are more than a machine has room for, and nobody looks at them.

Sans I/O: whoever drives it carries what the gate ``says``, and tells what it hears and the time.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from federator.protocol import effects as e
from federator.protocol import events
from federator.protocol.leaves.switch import Asked
from federator.protocol.messages import control as c
from federator.protocol.node import Identity, Node
from federator.protocol.parameters import Parameters, Strategy
from federator.protocol.types import BrokerId, ConnId, Cost, Epoch, Millis

GATE: Final = BrokerId(2)
FIRST_OTHER: Final = 100_000
BROKERS_PER_HUB: Final = 100
FIRST_SITE: Final = 100_000
"""Sites of the world have greater numbers than those of real leaves."""

VALUES: Final = 10
"""Of one device; a site has so many devices as its filters need."""

TO_HUB: Final = ConnId(1)
LEFT_OUT: Final = (c.CoreAnn, c.MeshMembAnn, c.FilterListPage)


@dataclass(eq=False)
class Member:
    """A simulated hub."""

    node: Node
    asked: Asked
    wishes: list[str] = field(default_factory=list)

    def want(
        self, added: Iterable[str], removed: Iterable[str], now_ms: Millis
    ) -> events.LocalFiltersChanged | None:
        change = self.asked.update(added, removed, now_ms)
        ended = self.asked.on_deadline(now_ms)
        gone = frozenset((*change.unsubscribe, *ended.unsubscribe))
        if not (change.subscribe or gone):
            return None
        return events.LocalFiltersChanged(frozenset(change.subscribe) - gone, gone)


class World:
    """Members with ``brokers`` brokers that want ``filters`` filters.

    Args:
        filters_max: How many filters one member announces, as ``hub.filters_max``.
        linger_ms: How long a member asks for what a wider filter replaced.
        epoch: Of all members; must be greater than of another world before.
        say: Told what the gate says to the real hub.
    """

    def __init__(
        self,
        *,
        brokers: int,
        filters: int,
        filters_max: int,
        linger_ms: int,
        hub: BrokerId,
        epoch: Epoch,
        say: Callable[[c.Message], None],
        now_ms: Millis,
    ) -> None:
        self._say = say
        self._rng = random.Random(brokers)
        self._renamed = 0
        self._waiting: deque[tuple[Member, c.NodeMessage]] = deque()
        count = max(1, brokers // BROKERS_PER_HUB)
        ids = [GATE, *(BrokerId(FIRST_OTHER + n) for n in range(1, count))]
        self.members = [_member(id, epoch, filters_max, linger_ms) for id in ids]
        for number, member in enumerate(self.members):
            sites = range(number * brokers // count, (number + 1) * brokers // count)
            each = filters // brokers
            member.wishes = [_name(site, at) for site in sites for at in range(each)]
            self._tell(member, events.LocalBrokerUp(), now_ms)
            wanted = member.want(member.wishes, (), now_ms)
            assert wanted is not None, "somebody wants something"
            self._tell(member, wanted, now_ms)
        gate, *others = self.members
        self._connect(gate, TO_HUB, hub, now_ms)
        for number, other in enumerate(others, 1):
            self._connect(gate, ConnId(TO_HUB + number), other.node.links.self_id, now_ms)
            self._connect(other, TO_HUB, GATE, now_ms)
        self._pass_on(now_ms)

    @property
    def announced(self) -> int:
        return sum(len(member.asked) for member in self.members)

    def hear(self, message: c.NodeMessage, now_ms: Millis) -> None:
        self._waiting.append((self.members[0], message))
        self._pass_on(now_ms)

    def on_time(self, now_ms: Millis) -> None:
        for member in self.members:
            due_ms = member.node.next_deadline_ms()
            if due_ms is not None and due_ms <= now_ms:
                self._tell(member, events.DeadlineReached(), now_ms)
        self._pass_on(now_ms)

    def change(self, now_ms: Millis) -> bool:
        """A client somewhere wants another filter instead of one; whether its hub says so."""
        member = self._rng.choice(self.members)
        at = self._rng.randrange(len(member.wishes))
        before = member.wishes[at]
        self._renamed += 1
        member.wishes[at] = f"{before.rpartition('/')[0]}/other-{self._renamed}"
        change = member.want([member.wishes[at]], [before], now_ms)
        if change is not None:
            self._tell(member, change, now_ms)
            self._pass_on(now_ms)
        return change is not None

    def _connect(self, member: Member, conn: ConnId, to: BrokerId, now_ms: Millis) -> None:
        event = events.NeighbourConnected(conn, f"simulated:{to}", to, Cost(1))
        self._tell(member, event, now_ms)

    def _tell(self, member: Member, event: events.Event, now_ms: Millis) -> None:
        for effect in member.node.handle(event, now_ms=now_ms):
            if isinstance(effect, e.Send):
                self._carry(member, effect)

    def _carry(self, member: Member, sent: e.Send) -> None:
        gate, message = self.members[0], sent.message
        if member is not gate:
            assert isinstance(message, c.NodeMessage)
            self._waiting.append((gate, message))
        elif sent.conn == TO_HUB:
            self._say(message)
        elif not isinstance(message, LEFT_OUT):
            assert isinstance(message, c.NodeMessage)
            self._waiting.append((self.members[sent.conn - TO_HUB], message))

    def _pass_on(self, now_ms: Millis) -> None:
        while self._waiting:
            member, message = self._waiting.popleft()
            self._tell(member, events.Received(message), now_ms)


def _member(id: BrokerId, epoch: Epoch, filters_max: int, linger_ms: int) -> Member:
    parameters = Parameters(strategy=Strategy.SHORTEST_PATH, dial_back=False)
    node = Node(Identity(id, epoch, f"simulated:{id}"), parameters)
    return Member(node, Asked(filters_max, linger_ms))


def _name(site: int, at: int) -> str:
    return f"site/{FIRST_SITE + site}/device/{at // VALUES}/value-{at % VALUES}"
