"""Connections to all brokers of a federation, starting from some, for an owner that reads them all.

``directory`` decides which brokers to connect to, and which claims to be a broker are believed.
Other messages than guides go to the owner: a collector, a steerer or a console.
"""

import asyncio
import itertools
import secrets
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, Protocol

import structlog
from mqtt5 import PublishPacket, QoS, TopicFilter

from federator.collector.directory import Dial, Directory, HangUp
from federator.config.all_brokers.collector import FollowingSettings
from federator.config.brokers import BrokerAddress
from federator.errors import DecodeError
from federator.protocol.discovery import RollCall
from federator.protocol.messages import topics
from federator.protocol.messages.guide import Guide
from federator.protocol.messages.json_codec import decode
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.endpoint import endpoint_of
from federator.runtime.mqtt.inbox import Inbox
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink
from federator.runtime.mqtt.secret_names import secret_name
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.process.notices import Complaints
from federator.runtime.trust.words import FollowedWords

NAME_BYTES: Final = 4
FAILED_ATTEMPTS: Final = 3
"""Failed attempts after which another address from a guide replaces this one."""

_log = structlog.get_logger()


class Owner(Protocol):
    """The reader of the brokers."""

    def on_readable(self, source: "Source") -> None:
        """Note that a source's broker is known, and its subscriptions are made."""

    def on_gone(self, source: "Source") -> None:
        """Note that the connection to a source's broker ended."""

    def on_word(self, source: "Source", packet: PublishPacket) -> None:
        """Handle a message on another topic than the guide's. Raises ``DecodeError``: malformed."""


class Source(LinkObserver):
    """One connection to a broker, which identifies itself in its guide or another message.

    The directory decides whether to believe that. Until then we only receive.

    Args:
        client_id: Unique among connections: two addresses may lead to one broker.
    """

    def __init__(self, sources: "Sources", connection: BrokerAddress, *, client_id: str) -> None:
        self.url = connection.url
        self.broker: BrokerId | None = None  # once that is known and believed
        self._attempts_at_last = 0
        self._roll_call = RollCall()
        self._sources = sources
        # checking signatures takes long: a flood must not hold the loop
        self._guides = Inbox(self._take)
        self._guide = topics.guide_topic(sources.federation)
        self.link = MqttLink(
            endpoint_of(connection),
            self,
            client_id=client_id,
            send_queue_bytes_max=sources.send_queue_bytes_max,
        )
        filters = (self._guide, *sources.extra_topics)
        self.link.subscribe([TopicFilter(topic, max_qos=QoS.AT_LEAST_ONCE) for topic in filters])

    @property
    def failing(self) -> bool:
        """Whether several attempts to connect failed."""
        tried = self.link.counters.attempts - self._attempts_at_last
        return not self.link.connected and tried >= FAILED_ATTEMPTS

    # -- events of the link ----------------------------------------------------------------------

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        self._attempts_at_last = link.counters.attempts
        self._roll_call.on_up()

    def on_subscribed(self, link: MqttLink) -> None:
        if self.broker is not None:
            self._sources.owner.on_readable(self)

    def on_down(self, link: MqttLink, reason: str) -> None:
        self._sources.on_gone(self)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        for packet, _, _ in publishes:
            if packet.topic == self._guide:
                self._sources.malformed += not self._guides.put(packet)
            else:
                self._take(packet)
        self._guides.work()

    def _take(self, packet: PublishPacket) -> None:
        try:
            if packet.topic != self._guide:
                self._sources.owner.on_word(self, packet)
            elif packet.payload and self.link.connected:
                guide = self._sources.on_guide(self, packet.topic, bytes(packet.payload))
                now_ms, roll = monotonic_ms(), 0 if guide is None else guide.roll
                if self._roll_call.asks(roll, retained=packet.retain, now_ms=now_ms):
                    self.link.subscribe_again()
        except DecodeError as error:
            self._sources.on_malformed(self, error)


@dataclass(eq=False, repr=False)
class Sources:
    """All connections.

    Attributes:
        by_url: The connections.
        misled: Connections behind which another broker was than expected.
        malformed: Messages that do not decode.
    """

    owner: Owner
    settings: FollowingSettings
    words: FollowedWords  # checks the signatures of guides
    tasks: asyncio.TaskGroup
    _: KW_ONLY
    kind: str  # our role, for our client ids
    daemon: str  # our name in the log's events: ``DAEMON.broker_found`` and the like
    extra_topics: Sequence[str]  # topics besides the guide's
    send_queue_bytes_max: int

    def __post_init__(self) -> None:
        self.federation = self.settings.federation
        self.misled = self.malformed = 0
        self.by_url: dict[str, Source] = {}
        named = [broker.url for broker in self.settings.brokers]
        self.directory = Directory(named, only=self.settings.only)
        self._complain = Complaints().complain
        self._running: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)
        self._name = secrets.token_hex(NAME_BYTES)

    def start(self) -> None:
        for broker in self.settings.brokers:
            self._connect(self.settings.connection(broker))

    def why_none(self) -> str | None:
        """Why no broker can be read; ``None`` if one can."""
        sources = self.by_url.values()
        if any(source.link.subscribed for source in sources):
            return None
        errors = [f"{source.url}: {source.link.last_error}" for source in sources]
        return f"no broker: {'; '.join(errors)[:200]}"

    def of(self, broker: BrokerId) -> Source | None:
        matching = (source for source in self.by_url.values() if source.broker == broker)
        return next(matching, None)

    def _connect(self, connection: BrokerAddress) -> None:
        name = f"{self.kind}-{self._name}-{next(self._numbers)}"
        source = Source(self, connection, client_id=secret_name(name))
        self.by_url[source.url] = source
        name = f"connection to {source.url}"
        self._running[source.url] = self.tasks.create_task(source.link.run(), name=name)

    def on_gone(self, source: Source) -> None:
        """Report that a source's connection ended; it may return as another broker."""
        if source.broker is not None:
            self.owner.on_gone(source)
        source.broker = None
        self.directory.on_down(source.url)

    def on_guide(self, source: Source, topic: str, payload: bytes) -> Guide | None:
        """Decode and check a guide; return it if it is believed."""
        guide = decode(Guide, payload)
        if guide.federation != self.federation:
            return None
        proven = self.words.is_agents(guide.broker, topic, payload, again=True)
        if not (proven and self.believe(source, guide.broker)):
            return None
        failing = {url for url, known_source in self.by_url.items() if known_source.failing}
        self._follow(self.directory.on_guide(guide, failing=failing))
        return guide

    def believe(self, source: Source, broker: BrokerId) -> bool:
        """Whether what is behind ``source`` is ``broker``, as it claims."""
        accepted, orders = self.directory.on_identity(source.url, broker)
        if not accepted:
            self.misled += 1
            self._complain(f"{self.daemon}.not_believed", broker=broker, url=source.url)
            return False
        self._follow(orders)  # first: a source that is closed was this broker until now
        if source.broker is None:
            source.broker = broker
            if source.link.subscribed:
                self.owner.on_readable(source)
        return True

    def _follow(self, orders: Sequence[Dial | HangUp]) -> None:
        for order in orders:
            match order:
                case HangUp(url):
                    self._hang_up(url)
                case Dial(broker, url):
                    try:
                        self._connect(self.settings.found(url))
                    except (ValueError, OSError) as error:
                        self.directory.on_failed(broker)
                        reason = str(error)[:200]
                        self._complain(f"{self.daemon}.not_dialled", broker=broker, reason=reason)
                    else:
                        _log.info(f"{self.daemon}.broker_found", broker=broker, url=url)

    def on_malformed(self, source: Source, error: DecodeError) -> None:
        """Count and log a message of ``source`` that does not decode."""
        self.malformed += 1
        reason, so_far = str(error)[:200], self.malformed
        self._complain(f"{self.daemon}.malformed", url=source.url, reason=reason, so_far=so_far)

    def _hang_up(self, url: str) -> None:
        source, task = self.by_url.pop(url, None), self._running.pop(url, None)
        if source is not None:
            self.on_gone(source)  # its link reports this, too, but then its broker is reset
        if task is not None:
            task.cancel()
