"""What the agents' guides say about brokers, combined by one gateway.

Each agent keeps a guide on its own broker; a gateway reads all it reaches. The newest names the
substitutes. Whether a broker is up depends on all guides: where the federation is split, each side
calls the other gone, and a gateway that reaches both must move no client. So a broker is gone when
no other agent's guide lists it as present. Its own guide may be a leftover of a dead agent; it
counts only if it calls others gone, for then it was written in a side of its own.

Source: docs/protocol.md 15; docs/failover.md.
"""

from collections.abc import Iterable

from federator.protocol.messages.guide import Guide, GuideBroker, State
from federator.protocol.types import BrokerId

_NOBODY = GuideBroker(BrokerId(0))


class GuideBook:
    """The guides of all brokers that a gateway reaches; the ``newest`` names substitutes."""

    def __init__(self) -> None:
        self._guides: dict[BrokerId, Guide] = {}
        self.newest: Guide | None = None
        self._brokers: dict[BrokerId, GuideBroker] = {}
        self._states: dict[BrokerId, State] = {}

    def learn(self, guide: Guide) -> None:
        """Learn the guide of a broker."""
        self._guides[guide.broker] = guide
        self._combine()

    def forget(self, broker: BrokerId) -> None:
        """Drop the guide of a broker out of reach: it is out of date, but better than none."""
        if self._guides.pop(broker, None) is not None and self._guides:
            self._combine()

    def substitutes(self, broker: BrokerId) -> tuple[BrokerId, ...]:
        """The substitutes of ``broker``, best first: the one that took over, then the plan."""
        takeovers = self.newest.takeovers if self.newest is not None else ()
        taken = [order.substitute for order in takeovers if order.broker == broker]
        would = self._brokers.get(broker, _NOBODY).substitutes
        return tuple(dict.fromkeys((*taken, *would)))

    def state(self, broker: BrokerId) -> State:
        """Whether ``broker`` is up, draining or gone; up if no guide mentions it."""
        return self._states.get(broker, "up")

    def clients(self, broker: BrokerId) -> int:
        """How many clients ``broker`` has, according to its agent."""
        return self._brokers.get(broker, _NOBODY).clients

    def in_state(self, state: State) -> tuple[BrokerId, ...]:
        """The brokers in ``state``, ascending."""
        return tuple(sorted(id for id, s in self._states.items() if s == state))

    def _combine(self) -> None:
        guides = sorted(self._guides.values(), key=_age)
        self._states = _states(guides)
        self.newest = guides[-1]
        self._brokers = {entry.id: entry for entry in self.newest.brokers}


def _age(guide: Guide) -> tuple[int, int, int]:
    return guide.epoch, guide.number, -guide.broker


def _states(guides: Iterable[Guide]) -> dict[BrokerId, State]:
    """The state of each broker, from all ``guides``, oldest first.

    Of two guides of the same age, the one that lists a broker as draining wins.
    """
    states: dict[BrokerId, State] = {}
    drains: dict[BrokerId, tuple[int, int]] = {}
    for guide in guides:
        age = guide.epoch, guide.number
        alone = any(b.state == "gone" for b in guide.brokers)
        for b in guide.brokers:
            if b.id == guide.broker and not alone:
                continue
            if b.state == "gone":
                states.setdefault(b.id, "gone")
            elif drains.get(b.id) != age:
                states[b.id] = b.state
                if b.state == "draining":
                    drains[b.id] = age
    return states
