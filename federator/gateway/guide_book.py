"""What agents tell about brokers, as one gateway knows it.

Each agent keeps a guide on its own broker; a gateway reads all it reaches and goes by the newest.
Where the federation is split, guides of different controllers stand side by side; the greater
number wins here too, for a gateway that reaches both sides serves clients best by the word of the
side that decided last.

Source: design section 6; protocol/guide.
"""

from collections.abc import Iterable

from federator.protocol.guide import Guide, GuideBroker
from federator.protocol.types import BrokerId

_NOBODY = GuideBroker(BrokerId(0))


class GuideBook:
    """The guides of all brokers that a gateway reaches."""

    def __init__(self) -> None:
        self._guides: dict[BrokerId, Guide] = {}
        self._newest: Guide | None = None
        self._brokers: dict[BrokerId, GuideBroker] = {}
        self._takeovers: dict[BrokerId, BrokerId] = {}

    @property
    def newest(self) -> Guide | None:
        """The guide that holds."""
        return self._newest

    def learn(self, guide: Guide) -> bool:
        """Read the guide of a broker; tell whether it is the one that holds now."""
        self._guides[guide.broker] = guide
        return self._choose()

    def forget(self, broker: BrokerId) -> None:
        """``broker`` is out of reach: its guide tells how things were."""
        if self._guides.pop(broker, None) is not None and self._guides:
            self._choose()

    def substitutes(self, broker: BrokerId) -> tuple[BrokerId, ...]:
        """Who steps in for ``broker``, best first: who has done so already, then who would."""
        taken = self._takeovers.get(broker)
        would = self._brokers.get(broker, _NOBODY).substitutes
        return tuple(dict.fromkeys((*([taken] if taken is not None else []), *would)))

    def state(self, broker: BrokerId) -> str:
        """``up``, ``draining`` or ``gone``; ``up`` of one that nobody mentions."""
        entry = self._brokers.get(broker)
        return entry.state if entry is not None else "up"

    def clients(self, broker: BrokerId) -> int:
        """How many clients it has, as far as its agent tells."""
        return self._brokers.get(broker, _NOBODY).clients

    def in_state(self, state: str) -> tuple[BrokerId, ...]:
        """The brokers in ``state``, ascending."""
        return tuple(sorted(id for id, each in self._brokers.items() if each.state == state))

    def _choose(self) -> bool:
        newest = max(self._guides.values(), key=_age)
        if newest == self._newest:
            return False
        self._newest = newest
        self._brokers = _by_id(newest.brokers)
        self._takeovers = {each.broker: each.substitute for each in newest.takeovers}
        return True


def _age(guide: Guide) -> tuple[int, int, int]:
    return guide.epoch, guide.number, -guide.broker


def _by_id(brokers: Iterable[GuideBroker]) -> dict[BrokerId, GuideBroker]:
    return {each.id: each for each in brokers}
