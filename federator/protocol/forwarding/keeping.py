"""Topics that stay at the edge: what our clients publish there, and only collectors want.

A hub that collects wants everything, as an archive does, and most of it is of use only where it was
published. While a steerer's plan says so, the agent there **keeps** a topic: it sends the topic to
no other broker, as long as all brokers that want it only collect. The agent knows what every broker
wants, so it needs no list of topics, which might be out of date: when any other broker wants the
topic, it goes to all of them again, the collector included.

Source: Fawwaz 2022, 3.2; docs/placement.md 4; docs/protocol.md 18.8.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

from federator.protocol.effects import FilterRoute
from federator.protocol.filters import FilterTrie


class KeepPolicy(StrEnum):
    """Which of the topics that only collectors want may be kept."""

    NS = "ns"  # all of it
    LP = "lp"  # those that some client of the same broker subscribes to


POLICIES: Final = {policy.value: policy for policy in KeepPolicy}


class Keeping:
    """Decides which topics of our clients stay here.

    Attributes:
        policy: What is kept; ``None``: nothing.
    """

    def __init__(self) -> None:
        self.policy: KeepPolicy | None = None
        self._shared = FilterTrie()

    def share(self, added: Iterable[str], removed: Iterable[str]) -> None:
        """Record which filters shared groups of other brokers want, or no longer: no topic stays.

        Groups get publications one by one, and are no destination of any filter.
        """
        for filter in removed:
            self._shared.discard(filter)
        for filter in added:
            self._shared.add(filter)

    def keeps(
        self,
        topic: str,
        matching: Iterable[tuple[str, FilterRoute]],
        doubted: Collection[str] = (),
    ) -> bool:
        """Whether what our clients publish on ``topic`` stays here.

        Args:
            topic: By its name in the federation.
            matching: All filters that match it, of which other brokers want some.
            doubted: Filters that are local only because it is not known what our clients want.
        """
        if self.policy is None:
            return False
        local = False
        for filter, route in matching:
            if (route.wanted or route.next_hops) and not route.collected:
                return False
            local = local or (route.local and filter not in doubted)
        if self.policy is KeepPolicy.LP and not local:
            return False
        return not self._shared.match(topic)
