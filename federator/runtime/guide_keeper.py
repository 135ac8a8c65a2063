"""The guide on our broker, and what gateways and operators tell us there.

Our clients' guide stands retained on our own broker. When we die, our broker publishes our Will in
its place: a guide that says that nobody keeps it any more.

Source: docs/protocol.md section 15; the words are in ``protocol.guide``.
"""

import structlog
from mqtt5 import PublishPacket, QoS, RetainHandling, TopicFilter, Will

from federator.errors import DecodeError
from federator.protocol import guide as g
from federator.protocol.controller.session_reports import SessionReports
from federator.protocol.repeats import Repeats
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.mqtt_link import MqttLink

COMPLAINT_GAP_MS = Millis(60_000)

_log = structlog.get_logger()


class GuideKeeper:
    """Publishes guides; hears session reports and drain orders.

    Args:
        self_id: Our broker's id.
        federation: The federation's name.

    Attributes:
        reports: What gateways said.
        newest: The guide as it should stand; ``None`` before the first.
        published: Guides written so far.
        malformed: Words that could not be read.
    """

    def __init__(self, *, self_id: BrokerId, federation: str) -> None:
        self.reports = SessionReports()
        self.newest: g.Guide | None = None
        self.published = 0
        self.malformed = 0
        self.topic = g.guide_topic(federation)
        self._sessions = g.sessions_topic(federation)
        self._drain = g.drain_topic(federation)
        self._self_id = self_id
        self._federation = federation
        self._complaints: Repeats[str] = Repeats(gap_ms=COMPLAINT_GAP_MS, keys_max=4)

    def subscriptions(self) -> list[TopicFilter]:
        """What to subscribe on the control connection."""
        return [
            TopicFilter(
                topic,
                max_qos=QoS.AT_LEAST_ONCE,
                no_local=True,
                retain_handling=RetainHandling.SEND_NEVER,
            )
            for topic in (self._sessions, self._drain)
        ]

    def will(self) -> Will:
        """What our broker says in place of the guide when we vanish."""
        return Will(self.topic, payload=g.encode(self._gone()), retain=True)

    def publish(self, link: MqttLink, guide: g.Guide | None = None) -> None:
        """Let ``guide``, or the newest again, stand on our broker once it is connected."""
        if guide is not None:
            self.newest = guide
        if self.newest is not None and link.connected:
            self._write(link, self.newest)

    def withdraw(self, link: MqttLink) -> None:
        """We leave in order: say what the Will would."""
        if self.newest is not None and link.connected:
            self._write(link, self._gone())

    def on_publish(self, packet: PublishPacket, *, now_ms: Millis) -> g.Drain | None:
        """Hear a word, if ``packet`` is one. Returns an operator's order."""
        try:
            if packet.topic == self._sessions:
                self.reports.on_page(g.decode(g.SessionReport, packet.payload), now_ms=now_ms)
            elif packet.topic == self._drain:
                return g.decode(g.Drain, packet.payload)
        except DecodeError as error:
            self.malformed += 1
            if self._complaints.allow(packet.topic, now_ms):
                _log.warning("guide.malformed", reason=str(error)[:200], so_far=self.malformed)
        return None

    def _write(self, link: MqttLink, guide: g.Guide) -> None:
        payload = g.encode(guide)
        if len(payload) > g.GUIDE_BYTES_MAX:
            _log.error("guide.too_long", bytes=len(payload), limit=g.GUIDE_BYTES_MAX)
            return
        link.write_packets((PublishPacket(self.topic, payload, retain=True).write(),), 1)
        self.published += 1

    def _gone(self) -> g.Guide:
        return g.Guide(
            version=g.GUIDE_VERSION,
            federation=self._federation,
            broker=self._self_id,
            controller=self._self_id,
            epoch=Epoch(0),
            number=0,
            brokers=(g.GuideBroker(self._self_id, state="gone"),),
        )
