"""Publishes the guide on our broker, and receives reports and orders of gateways and operators.

Our own broker retains our clients' guide. When we die, it publishes our Will in its place: a guide
that marks itself as no longer maintained.

Source: docs/protocol.md 15; ``protocol.messages.guide`` defines the messages.
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
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.process.clocks import monotonic_ms, wall_clock_ms
from federator.runtime.trust.guarding import Trust

COMPLAINT_GAP_MS = Millis(60_000)
REFRESH_MS = 30_000

_log = structlog.get_logger()


def guide_will(settings: Settings, trust: Trust | None) -> Will:
    """The Will that replaces the guide when we vanish; make it anew for each connection."""
    topic, gone = topics.guide_topic(settings.federation), json_codec.encode(_gone(settings))
    if trust is not None:
        gone = trust.words.sign(topic, gone, is_will=True)
    return Will(topic, payload=gone, retain=True)


@dataclass(kw_only=True, eq=False, repr=False)
class GuidePublisher:
    """Publishes guides; receives session reports and drain orders."""

    settings: Settings
    link: MqttLink
    ordered: Callable[[DrainRequested], None]  # called with an operator's order to drain
    is_gateways: Callable[[PublishPacket, str], bool]  # whether that gateway sent it
    trust: Trust | None  # none in an open federation

    def __post_init__(self) -> None:
        federation = self.settings.federation
        self.reports = SessionReports()
        self.newest: g.Guide | None = None  # the guide that our broker should retain
        self.malformed = 0
        self._written_ms = monotonic_ms()
        self._roll = 0
        self.topic = topics.guide_topic(federation)
        self.sessions_topic = topics.sessions_topic(federation)
        self.drain_topic = topics.drain_topic(federation)
        self._complaints: RateLimiter[str] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=4)

    def publish(self, guide: g.Guide | None = None) -> None:
        """Publish ``guide``, or the newest again, once our broker is connected."""
        if guide is not None:
            self.newest = guide
        if self.newest is not None and self.link.connected:
            self._write(replace(self.newest, roll=self._roll))

    def call_roll(self) -> None:
        """Ask our own programs at our broker to subscribe again: see ``Guide.roll``."""
        self._roll = max(wall_clock_ms(), self._roll + 1)  # higher than in any earlier run
        self.publish()

    def refresh(self) -> None:
        """Publish the guide again now and then: a client may have replaced it by an old one."""
        if monotonic_ms() - self._written_ms >= REFRESH_MS:
            self.publish()

    def part(self) -> Part:
        topics = (self.sessions_topic, self.drain_topic)
        return Part(
            subscriptions=[live_filter(topic, no_local=True) for topic in topics],
            topics=dict.fromkeys(topics, self.on_publish),
            leave=self.withdraw,
        )

    def withdraw(self) -> None:
        """Publish, on an orderly exit, what the Will would."""
        if self.newest is not None and self.link.connected:
            self._write(_gone(self.settings))

    def on_publish(self, packet: PublishPacket) -> None:
        """Handle a page of a gateway's report, or an operator's order to drain."""
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
                # Addressed to this run of ours: orders must not be replayed.
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
