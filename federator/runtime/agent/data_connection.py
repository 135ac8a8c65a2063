"""The data connection to our own broker: what clients published, and frames of other agents.

What one socket read brings passes in this order: second copies while the cover changes, bridges'
loops, renames, the data path. Only then is our broker told that it is ours.

Source: docs/ARCHITECTURE.md, "Connections"; docs/protocol.md 8.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from federator.runtime.agent.presence import OwnBrokerPresence
from federator.runtime.custody.gateway_marks import GatewayMarks
from federator.runtime.data.busy_poll import BusyPoll
from federator.runtime.data.cover_subscriber import CoverSubscriber
from federator.runtime.data.data_path import DataPath
from federator.runtime.loops.watch import LoopWatch
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink
from federator.runtime.retained.retained import Retained


@dataclass(kw_only=True, eq=False, repr=False)
class DataConnection(LinkObserver):
    """Handles what comes over the data connection.

    Args:
        enter: Lets publications into the data path that are copies of none, and of no bridge's
            loop.
    """

    busy_poll: BusyPoll
    cover: CoverSubscriber
    data_path: DataPath
    enter: Callable[[memoryview, Sequence[Inbound]], None]
    loops: LoopWatch
    marks: GatewayMarks
    presence: OwnBrokerPresence
    retained: Retained | None

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us."""
        self.cover.on_up(session_present=session_present)
        self.data_path.on_data_up(session_present=session_present)

    def on_subscribed(self, link: MqttLink) -> None:
        """The broker granted our subscriptions."""
        self.presence.update()

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection ended."""
        self.cover.on_down()
        self.marks.on_down()
        self.data_path.on_data_down()
        if self.retained is not None:
            self.retained.on_data_down()
        self.presence.on_lost(link)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Take what one socket read brought."""
        packet_ids = [(p.packet_id, int(p.qos)) for p, _, _ in publishes if p.packet_id is not None]
        if packet_ids:
            self.marks.note(publishes)
        self.take(chunk, publishes)
        if packet_ids:
            self.data_path.acknowledge(link, packet_ids)

    def take(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        """Take what one socket read brought, without telling our broker that it is ours."""
        self.busy_poll.on_data()
        if self.cover.sorting:
            chunk, publishes = self.cover.once(chunk, publishes)
        if self.loops.watching:
            chunk, publishes = self.loops.sift(chunk, publishes)
        self.enter(chunk, publishes)
