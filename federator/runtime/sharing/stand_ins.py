"""Connections of ours that stand in shared groups for members elsewhere.

Number ``i`` stands in every group that needs more than ``i`` stand-ins. Their sessions end with
their connections: what is dealt out while they are away goes to members.

Source: docs/protocol.md 12.
"""

from collections.abc import Callable, Mapping

from mqtt5 import QoS, RetainHandling, TopicFilter

from federator.protocol.sharing.membership import GroupKey
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink

Taken = Callable[[memoryview, list[Inbound]], None]


class StandIns:
    """All stand-ins of one broker.

    Args:
        make_link: Makes and runs stand-in number ``i``.
        taken: Gets what they take out of their groups.

    Attributes:
        links: The connections of all stand-ins there ever were.
    """

    def __init__(self, make_link: Callable[[int, LinkObserver], MqttLink], *, taken: Taken) -> None:
        self._make_link = make_link
        self._taken = taken
        self.links: list[MqttLink] = []

    def want(self, stand_ins: Mapping[GroupKey, int]) -> None:
        """Stand in these groups, so many in each."""
        for number in range(len(self.links), max(stand_ins.values(), default=0)):
            self.links.append(self._make_link(number, self))
        for number, link in enumerate(self.links):
            wanted = {
                f"$share/{group}/{filter}"
                for (group, filter), count in stand_ins.items()
                if count > number
            }
            before = set(link.wanted_filters)
            if wanted != before:
                link.unsubscribe(sorted(before - wanted))
                link.subscribe(_subscription(filter) for filter in sorted(wanted - before))

    @property
    def standing(self) -> int:
        """How many stand-ins have all their places."""
        return sum(1 for link in self.links if link.wanted_filters and link.subscribed)

    # As a LinkObserver

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """Do nothing: the link subscribes by itself."""

    def on_subscribed(self, link: MqttLink) -> None:
        """Do nothing: the stand-in has its places."""

    def on_down(self, link: MqttLink, reason: str) -> None:
        """Do nothing: members get its share until it is back."""

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Pass on publications that members elsewhere must get."""
        self._taken(chunk, publishes)


def _subscription(pattern: str) -> TopicFilter:
    return TopicFilter(
        pattern,
        max_qos=QoS.EXACTLY_ONCE,
        retain_as_published=True,
        retain_handling=RetainHandling.SEND_NEVER,
    )
