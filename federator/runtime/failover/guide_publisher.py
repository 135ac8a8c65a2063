"""The guide on our broker, and what gateways and operators tell us there.

Our clients' guide stands retained on our own broker. When we die, our broker publishes our Will in
its place: a guide that says that nobody keeps it any more.

Source: docs/protocol.md 15; the words are in ``protocol.messages.guide``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog
from mqtt5 import PublishPacket, Will
from msgspec.structs import replace

from federator.config.settings import Settings
from federator.errors import DecodeError
from federator.protocol.controller.own_rows import SessionReports
from federator.protocol.events import DrainRequested
from federator.protocol.messages import gateways, json_codec, operators, topics
from federator.protocol.messages import guide as g
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.trust.words import NOBODY, Wanted
from federator.protocol.types import Epoch, Millis
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.process.clocks import monotonic_ms, wall_clock_ms
from federator.runtime.trust.guarding import Trust

COMPLAINT_GAP_MS = Millis(60_000)
REFRESH_MS = 30_000

_log = structlog.get_logger()


def guide_will(settings: Settings, trust: Trust | None) -> Will:
    """What our broker says in place of the guide when we vanish; to be made for each connection."""
    topic, gone = topics.guide_topic(settings.federation), json_codec.encode(_gone(settings))
    if trust is not None:
        gone = trust.words.sign(topic, gone, is_will=True)
    return Will(topic, payload=gone, retain=True)


@dataclass(kw_only=True, eq=False, repr=False)
class GuidePublisher:
    """Publishes guides; hears session reports and drain orders."""

    settings: Settings
    link: MqttLink
    ordered: Callable[[DrainRequested], None]  # told an operator's order to drain
    is_gateways: Callable[[PublishPacket, str], bool]  # whether the gateway of that name said it
    trust: Trust | None  # none in an open federation

    def __post_init__(self) -> None:
        federation = self.settings.federation
        self.reports = SessionReports()
        self.newest: g.Guide | None = None  # the guide as it should stand
        self.malformed = 0
        self._written_ms = monotonic_ms()
        self._roll = 0
        self.topic = topics.guide_topic(federation)
        self.sessions_topic = topics.sessions_topic(federation)
        self.drain_topic = topics.drain_topic(federation)
        self._complaints: RateLimiter[str] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=4)

    def publish(self, guide: g.Guide | None = None) -> None:
        """Let ``guide``, or the newest again, stand on our broker once it is connected."""
        if guide is not None:
            self.newest = guide
        if self.newest is not None and self.link.connected:
            self._write(replace(self.newest, roll=self._roll))

    def call_roll(self) -> None:
        """Ask our own programs at our broker to subscribe again: see ``Guide.roll``."""
        self._roll = max(wall_clock_ms(), self._roll + 1)  # others than any run before
        self.publish()

    def refresh(self) -> None:
        """Write the guide again now and then: somebody may have put an old one in its place."""
        if monotonic_ms() - self._written_ms >= REFRESH_MS:
            self.publish()

    def withdraw(self) -> None:
        """We leave in order: say what the Will would."""
        if self.newest is not None and self.link.connected:
            self._write(_gone(self.settings))

    def on_publish(self, packet: PublishPacket) -> None:
        """Take a page of a gateway's report, or an operator's order to drain."""
        now_ms = monotonic_ms()
        try:
            if packet.topic == self.sessions_topic:
                page = json_codec.decode(gateways.SessionReport, packet.payload)
                if not self.is_gateways(packet, page.gateway):
                    return
                refused, size = self.reports.refused, len(packet.payload)
                self.reports.on_page(page, size=size, now_ms=now_ms)
                if self.reports.refused > refused and self._complaints.allow("refused", now_ms):
                    _log.warning("sessions.refused", so_far=self.reports.refused)
            else:
                order = json_codec.decode(operators.Drain, packet.payload)
                # To this run of ours: orders are not for repeating.
                to = NOBODY if self.trust is None else self.trust.guard.ours.salt
                wanted, trust = Wanted("operator", to=to), self.trust
                if trust is None or trust.words.believes(packet.topic, packet.payload, wanted):
                    self.ordered(DrainRequested(order.broker, order.drain))
        except DecodeError as error:
            self.malformed += 1
            if self._complaints.allow(packet.topic, now_ms):
                _log.warning("guide.malformed", reason=str(error)[:200], so_far=self.malformed)

    def _write(self, guide: g.Guide) -> None:
        payload = json_codec.encode(guide)
        if self.trust is not None:
            payload = self.trust.words.sign(self.topic, payload)
        if len(payload) > json_codec.MESSAGE_BYTES_MAX:
            _log.error("guide.too_long", bytes=len(payload), limit=json_codec.MESSAGE_BYTES_MAX)
            return
        self.link.write_packets((PublishPacket(self.topic, payload, retain=True).write(),), 1)
        self._written_ms = monotonic_ms()


def _gone(settings: Settings) -> g.Guide:
    us = settings.broker_id
    return g.Guide(
        version=g.GUIDE_VERSION,
        federation=settings.federation,
        broker=us,
        controller=us,
        epoch=Epoch(0),
        number=0,
        brokers=(g.GuideBroker(us, state="gone"),),
    )
