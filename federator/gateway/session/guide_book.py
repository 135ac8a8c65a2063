"""What agents tell about brokers, as one gateway knows it.

Each agent keeps a guide on its own broker; a gateway reads all it reaches. Who steps in for whom is
told by the newest. Whether a broker is there is told by everybody: where the federation is split,
each side calls the other gone, and a gateway that reaches both moves nobody. So a broker is gone
when nobody else says that it is there. Its own guide may be the last word of an agent that died;
it counts only if it calls others gone, for then it was written in a side of its own.

Source: docs/protocol.md 15; docs/failover.md.
"""

from collections.abc import Iterable

from federator.protocol.messages.guide import Guide, GuideBroker, State
from federator.protocol.types import BrokerId

_NOBODY = GuideBroker(BrokerId(0))


class GuideBook:
    """The guides of all brokers that a gateway reaches; the ``newest`` is the one that holds."""

    def __init__(self) -> None:
        self._guides: dict[BrokerId, Guide] = {}
        self.newest: Guide | None = None
        self._brokers: dict[BrokerId, GuideBroker] = {}
        self._takeovers: dict[BrokerId, BrokerId] = {}
        self._states: dict[BrokerId, State] = {}

    def learn(self, guide: Guide) -> bool:
        """Read the guide of a broker; tell whether it is the one that holds now."""
        self._guides[guide.broker] = guide
        return self._choose()

    def forget(self, broker: BrokerId) -> None:
        """Drop the guide of a broker out of reach: it tells how things were."""
        if self._guides.pop(broker, None) is not None and self._guides:
            self._choose()

    def substitutes(self, broker: BrokerId) -> tuple[BrokerId, ...]:
        """The brokers that step in for ``broker``, best first: who has done so, then who would."""
        taken = self._takeovers.get(broker)
        would = self._brokers.get(broker, _NOBODY).substitutes
        return tuple(dict.fromkeys((*([taken] if taken is not None else []), *would)))

    def state(self, broker: BrokerId) -> State:
        """Whether ``broker`` is up, draining or gone; it is up if nobody mentions it."""
        return self._states.get(broker, "up")

    def clients(self, broker: BrokerId) -> int:
        """How many clients ``broker`` has, as far as its agent tells."""
        return self._brokers.get(broker, _NOBODY).clients

    def in_state(self, state: State) -> tuple[BrokerId, ...]:
        """The brokers in ``state``, ascending."""
        return tuple(sorted(id for id, each in self._states.items() if each == state))

    def _choose(self) -> bool:
        newest = max(self._guides.values(), key=_age)
        self._states = _states(sorted(self._guides.values(), key=_age))
        if newest == self.newest:
            return False
        self.newest = newest
        self._brokers = {each.id: each for each in newest.brokers}
        self._takeovers = {each.broker: each.substitute for each in newest.takeovers}
        return True


def _age(guide: Guide) -> tuple[int, int, int]:
    return guide.epoch, guide.number, -guide.broker


def _states(guides: Iterable[Guide]) -> dict[BrokerId, State]:
    """How brokers are, by all ``guides``, oldest first.

    Of two that are as old, the one that knows of a drain knows more.
    """
    states: dict[BrokerId, State] = {}
    drains: dict[BrokerId, tuple[int, int]] = {}
    for guide in guides:
        age = guide.epoch, guide.number
        alone = any(each.state == "gone" for each in guide.brokers)
        for each in guide.brokers:
            if each.id == guide.broker and not alone:
                continue
            if each.state == "gone":
                states.setdefault(each.id, "gone")
            elif drains.get(each.id) != age:
                states[each.id] = each.state
                if each.state == "draining":
                    drains[each.id] = age
    return states
