"""Connections to all brokers of a federation, beginning with some, for whoever reads them all.

Which brokers to connect to, and whom to believe to be which, is decided in ``directory``. What is
heard beside guides is handed to the owner: a collector, or a steerer.
"""

import asyncio
import itertools
import secrets
from collections.abc import Sequence
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
from federator.protocol.rate_limiter import RateLimiter, WindowCounter
from federator.protocol.types import BrokerId, Millis
from federator.runtime.mqtt.endpoint import endpoint_of
from federator.runtime.mqtt.inbox import Inbox
from federator.runtime.mqtt.link import Inbound, MqttLink
from federator.runtime.mqtt.secret_names import secret_name
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.trust.words import FollowedWords

COMPLAINT_GAP_MS: Final = Millis(60_000)
COMPLAINTS_MAX: Final = 64
"""Of one kind in that time: whoever invents brokers shall not fill our log with them."""

NAME_BYTES: Final = 4
FAILED_ATTEMPTS: Final = 3
"""Failed attempts after which another address is tried when a guide tells one."""

_log = structlog.get_logger()


class Owner(Protocol):
    """Whoever reads the brokers."""

    def on_readable(self, source: "Source") -> None:
        """A source is known to be a broker's, and its subscriptions stand."""

    def on_gone(self, source: "Source") -> None:
        """The connection to the broker of a source ended."""

    def on_word(self, source: "Source", packet: PublishPacket) -> None:
        """Something came on another topic than the guide's. Raises ``DecodeError``: malformed."""

    def on_found(self, broker: BrokerId, url: str) -> None:
        """A guide told of a broker, which is connected to."""

    def on_misled(self, broker: BrokerId, url: str) -> None:
        """What is at ``url`` says that it is ``broker``, and is not believed."""

    def on_not_dialled(self, broker: BrokerId, reason: str) -> None:
        """We may not, or cannot, go where a guide says that ``broker`` is."""

    def on_malformed(self, source: "Source", error: DecodeError) -> None:
        """What a source told does not decode."""


class Source:
    """One connection to a broker, which says itself who it is, in its guide or another word.

    The directory tells whether to believe it. Until then, and when it is not believed, it is only
    listened to.

    Args:
        heard: Topics beside the guide's.
        client_id: Unique among connections: two addresses may lead to one broker.
    """

    def __init__(
        self,
        sources: "Sources",
        connection: BrokerAddress,
        *,
        heard: Sequence[str],
        client_id: str,
        send_queue_bytes_max: int,
    ) -> None:
        self.url = connection.url
        self.broker: BrokerId | None = None  # once that is known and believed
        self._attempts_at_last = 0
        self._roll_call = RollCall()
        self._sources = sources
        self._guides = Inbox(self._take)  # to judge one takes long: no flood holds the loop
        self._guide = topics.guide_topic(sources.federation)
        self.link = MqttLink(
            endpoint_of(connection),
            self,
            client_id=client_id,
            send_queue_bytes_max=send_queue_bytes_max,
        )
        filters = (self._guide, *heard)
        self.link.subscribe([TopicFilter(topic, max_qos=QoS.AT_LEAST_ONCE) for topic in filters])

    @property
    def failing(self) -> bool:
        """Whether it was tried for a while in vain."""
        tried = self.link.counters.attempts - self._attempts_at_last
        return not self.link.connected and tried >= FAILED_ATTEMPTS

    # -- what the link tells ---------------------------------------------------------------------

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us."""
        self._attempts_at_last = link.counters.attempts
        self._roll_call.on_up()

    def on_subscribed(self, link: MqttLink) -> None:
        """What we asked for can come."""
        if self.broker is not None:
            self._sources.owner.on_readable(self)

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection ended."""
        self._sources.on_gone(self)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """The agent speaks, or somebody who pretends to be."""
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
            self._sources.malformed += 1
            self._sources.owner.on_malformed(self, error)


class Sources:
    """All connections.

    Args:
        words: Judges guides.
        kind: What we are, in our names at brokers.
        heard: Topics beside the guide's.

    Attributes:
        by_url: The connections.
        misled: Connections behind which somebody else was than expected.
        malformed: Words that are none.
    """

    def __init__(
        self,
        owner: Owner,
        settings: FollowingSettings,
        words: FollowedWords,
        tasks: asyncio.TaskGroup,
        *,
        kind: str,
        heard: Sequence[str],
        send_queue_bytes_max: int,
    ) -> None:
        self.owner, self.federation = owner, settings.federation
        self.misled = self.malformed = 0
        self.by_url: dict[str, Source] = {}
        named = [broker.url for broker in settings.brokers]
        self.directory = Directory(named, only=settings.only)
        self._settings, self._words, self._tasks = settings, words, tasks
        self._kind, self._heard = kind, heard
        self._send_queue_bytes_max = send_queue_bytes_max
        self._running: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)
        self._name = secrets.token_hex(NAME_BYTES)

    def start(self) -> None:
        """Connect to those that were named."""
        for broker in self._settings.brokers:
            self._connect(self._settings.connection(broker))

    def why_none(self) -> str | None:
        """Why nothing can be read anywhere; ``None``: something can."""
        sources = self.by_url.values()
        if any(source.link.subscribed for source in sources):
            return None
        errors = [f"{source.url}: {source.link.last_error}" for source in sources]
        return f"no broker: {'; '.join(errors)[:200]}"

    def of(self, broker: BrokerId) -> Source | None:
        """The connection to ``broker``."""
        found = (each for each in self.by_url.values() if each.broker == broker)
        return next(found, None)

    def _connect(self, connection: BrokerAddress) -> None:
        source = Source(
            self,
            connection,
            heard=self._heard,
            client_id=secret_name(f"{self._kind}-{self._name}-{next(self._numbers)}"),
            send_queue_bytes_max=self._send_queue_bytes_max,
        )
        self.by_url[source.url] = source
        name = f"connection to {source.url}"
        self._running[source.url] = self._tasks.create_task(source.link.run(), name=name)

    def on_gone(self, source: Source) -> None:
        """A source's connection ended; it may come back as another broker."""
        if source.broker is not None:
            self.owner.on_gone(source)
        source.broker = None
        self.directory.on_down(source.url)

    def on_guide(self, source: Source, topic: str, payload: bytes) -> Guide | None:
        """A guide came, or what does not decode as one; return it if it is believed."""
        guide = decode(Guide, payload)
        if guide.federation != self.federation:
            return None
        proven = self._words.is_agents(guide.broker, topic, payload, again=True)
        if not (proven and self.believe(source, guide.broker)):
            return None
        failing = {url for url, each in self.by_url.items() if each.failing}
        self._follow(self.directory.on_guide(guide, failing=failing))
        return guide

    def believe(self, source: Source, broker: BrokerId) -> bool:
        """Whether what is behind ``source`` is ``broker``, as it says."""
        believed, orders = self.directory.on_identity(source.url, broker)
        if not believed:
            self.misled += 1
            self.owner.on_misled(broker, source.url)
            return False
        self._follow(orders)  # before: who is hung up was this broker until now
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
                        self._connect(self._settings.found(url))
                    except (ValueError, OSError) as error:
                        self.directory.on_failed(broker)
                        self.owner.on_not_dialled(broker, str(error)[:200])
                    else:
                        self.owner.on_found(broker, url)

    def _hang_up(self, url: str) -> None:
        source, task = self.by_url.pop(url, None), self._running.pop(url, None)
        if source is not None:
            self.on_gone(source)  # its link will say so, too, when it is nobody any more
        if task is not None:
            task.cancel()


class Complaints:
    """What is said once a minute about each broker, and of so many brokers only."""

    def __init__(self) -> None:
        self._about: RateLimiter[str] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=1_024)
        self._said: WindowCounter[str] = WindowCounter(window_ms=COMPLAINT_GAP_MS)

    def complain(self, name: str, **details: int | str) -> None:
        """Log it as a warning, unless it was said."""
        about = f"{name} {details.get('url', '')} {details.get('broker', '')}"
        now_ms = monotonic_ms()
        said = self._said.so_far(now_ms)
        if said[name] < COMPLAINTS_MAX and self._about.allow(about, now_ms):
            said[name] += 1
            _log.warning(name, **details)
