"""The data connection to our own broker: what clients published, and frames of other agents.

What one socket read brings passes in this order: second copies while the cover changes, bridges'
loops, renames, the data path. Only then is our broker told that it is ours.

Source: docs/ARCHITECTURE.md, "Connections"; docs/protocol.md 8.
"""

from collections.abc import Sequence

from mqtt5 import Will

from federator.runtime.agent.own_broker import OwnBroker
from federator.runtime.agent.presence import OwnBrokerPresence
from federator.runtime.custody.gateway_marks import GatewayMarks
from federator.runtime.data.busy_poll import BusyPoll
from federator.runtime.data.cover_subscriber import CoverSubscriber
from federator.runtime.data.data_path import DataPath
from federator.runtime.data.renaming import Renaming
from federator.runtime.loops.watch import LoopWatch
from federator.runtime.mqtt.link import Inbound, MqttLink
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.retained.retained import Retained


class DataConnection:
    """Makes the data connection, and handles what comes over it.

    The parts are made with the connection, so it gets to know them afterwards, by ``start``.

    Args:
        clean_start: What our broker keeps of an earlier session is not wanted.
        will: What our broker says when we vanish.
    """

    def __init__(
        self, own_broker: OwnBroker, *, clean_start: bool, will: Will, busy_poll: BusyPoll
    ) -> None:
        self.link = own_broker.link("data", self, clean_start=clean_start, will=will)
        self._busy_poll = busy_poll

    def start(
        self,
        data_path: DataPath,
        *,
        cover: CoverSubscriber,
        marks: GatewayMarks,
        loops: LoopWatch,
        renaming: Renaming | None,
        retained: Retained | None,
        presence: OwnBrokerPresence,
    ) -> None:
        """Subscribe frames and marks, and give these parts what comes. Before it runs."""
        self._data_path = data_path
        self._cover = cover
        self._marks = marks
        self._loops = loops
        self._renaming = renaming
        self._retained = retained
        self._presence = presence
        topics = (data_path.data_topic, marks.topic)
        self.link.subscribe(live_filter(topic, no_local=True) for topic in topics)

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us."""
        self._cover.on_up(session_present=session_present)
        self._data_path.on_data_up(session_present=session_present)

    def on_subscribed(self, link: MqttLink) -> None:
        """The broker granted our subscriptions."""
        self._presence.update()

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection ended."""
        self._cover.on_down()
        self._marks.on_down()
        self._data_path.on_data_down()
        if self._retained is not None:
            self._retained.on_data_down()
        self._presence.on_lost(link)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Take what one socket read brought."""
        packet_ids = [(p.packet_id, int(p.qos)) for p, _, _ in publishes if p.packet_id is not None]
        if packet_ids:
            self._marks.note(publishes)
        self.take(chunk, publishes)
        if packet_ids:
            self._data_path.acknowledge(link, packet_ids)

    def enter(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        """Let publications into the data path that are copies of none, and of no bridge's loop."""
        if self._renaming is not None:
            chunk, publishes = self._renaming.outgoing(chunk, publishes)
        if publishes:
            self._data_path.on_publishes(chunk, publishes)

    def take(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        """Take what one socket read brought, without telling our broker that it is ours."""
        self._busy_poll.on_data()
        if self._cover.sorting:
            chunk, publishes = self._cover.once(chunk, publishes)
        if self._loops.watching:
            chunk, publishes = self._loops.sift(chunk, publishes)
        self.enter(chunk, publishes)
