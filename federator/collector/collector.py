"""The collector: connections to all brokers, one collection, one folder.

What is decided is decided in ``collection`` and ``directory``. Files are written in one thread, one
at a time, so the loop goes on while a disk is slow; what is written there is handed over whole.
"""

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Final

import structlog
from mqtt5 import PublishPacket, QoS, TopicFilter

from federator.collector.collection import Collection, Question
from federator.collector.directory import Dial, Directory, HangUp
from federator.collector.landing import Landing
from federator.collector.position import Piece, ReadingParameters
from federator.config.brokers import BrokerAddress
from federator.config.collector import CollectorSettings
from federator.errors import DecodeError
from federator.protocol.discovery import RollCall
from federator.protocol.effects import Notice
from federator.protocol.messages import topics
from federator.protocol.messages.guide import Guide
from federator.protocol.messages.json_codec import decode
from federator.protocol.rate_limiter import RateLimiter, WindowCounter
from federator.protocol.telemetry.reader import Pace
from federator.protocol.telemetry.records import encode
from federator.protocol.telemetry.replay import Ask, decode_head
from federator.protocol.trust.words import at
from federator.protocol.types import BrokerId, Millis
from federator.runtime.mqtt.endpoint import endpoint_of
from federator.runtime.mqtt.inbox import Inbox
from federator.runtime.mqtt.link import Inbound, MqttLink
from federator.runtime.mqtt.secret_names import secret_name
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us
from federator.runtime.process.notices import log_notice
from federator.runtime.trust.words import FollowedWords

TICK_S: Final = 0.1
"""The time between two checks whether something is due."""

PRUNE_S: Final = 60.0
COMPLAINT_GAP_MS: Final = Millis(60_000)
COMPLAINTS_MAX: Final = 64
"""Of one kind in that time: whoever invents brokers shall not fill our log with them."""

NAME_BYTES, TOKEN_BYTES = 4, 16

SEND_QUEUE_BYTES_MAX: Final = 65_536
"""Questions are all we send."""

FAILED_ATTEMPTS: Final = 3
"""Failed attempts after which another address is tried when a guide tells one."""

_log = structlog.get_logger()


class Source:
    """One connection to a broker, which says itself who it is, in its guide or its head.

    The directory tells whether to believe it. Until then, and when it is not believed, it is only
    listened to.

    Args:
        name: Ours, unique among connections: two addresses may lead to one broker.
        token: A secret: who does not know it cannot answer in the agent's place. Brokers tell
            client ids on their log topics, so it is not in the name.
    """

    def __init__(
        self, listener: "Collector", connection: BrokerAddress, *, name: str, token: str
    ) -> None:
        self.url = connection.url
        self.broker: BrokerId | None = None  # once that is known and believed
        self._attempts_at_last = 0
        self._roll_call = RollCall()
        self._listener = listener
        self._guides = Inbox(self._take)  # to judge one takes long: no flood holds the loop
        self._token = token
        federation = listener.settings.federation
        self._guide = topics.guide_topic(federation)
        self._head = topics.metrics_head_topic(federation)
        self._ask = topics.metrics_ask_topic(federation)
        self._again = topics.metrics_again_topic(federation, token)
        self.link = MqttLink(
            endpoint_of(connection),
            self,
            client_id=secret_name(f"collector-{name}"),
            send_queue_bytes_max=SEND_QUEUE_BYTES_MAX,
        )
        heard = (self._guide, self._head, self._again)
        self.link.subscribe([TopicFilter(topic, max_qos=QoS.AT_LEAST_ONCE) for topic in heard])

    @property
    def failing(self) -> bool:
        """Whether it was tried for a while in vain."""
        tried = self.link.counters.attempts - self._attempts_at_last
        return not self.link.connected and tried >= FAILED_ATTEMPTS

    def ask(self, question: Question) -> bool:
        """Ask; ``False`` when there is no connection."""
        first, last = question.first, question.last
        ask = Ask(spool=question.spool, first=first, last=last, to=self._token)
        words, to = self._listener.words, at(question.broker)
        return self.link.publish(self._ask, words.sign(self._ask, encode(ask), to=to), urgent=True)

    # -- what the link tells ---------------------------------------------------------------------

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us."""
        self._attempts_at_last = link.counters.attempts
        self._roll_call.on_up()

    def on_subscribed(self, link: MqttLink) -> None:
        """Answers can come."""
        self._listener.on_readable(self)

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection ended."""
        self._listener.on_gone(self)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """The agent speaks, or somebody who pretends to be."""
        for packet, _, _ in publishes:
            if packet.topic == self._guide:
                self._listener.malformed += not self._guides.put(packet)
            else:
                self._take(packet)
        self._guides.work()

    def _take(self, packet: PublishPacket) -> None:
        topic, payload = packet.topic, bytes(packet.payload)
        try:
            if topic == self._again:
                self._listener.on_answer(self, topic, payload)
            elif topic == self._head and payload:
                self._listener.on_head(self, topic, payload)
            elif topic == self._guide and payload and self.link.connected:
                guide = self._listener.on_guide(self, topic, payload)
                now_ms, roll = monotonic_ms(), 0 if guide is None else guide.roll
                if self._roll_call.asks(roll, retained=packet.retain, now_ms=now_ms):
                    self.link.subscribe_again()
        except DecodeError as error:
            self._listener.on_malformed(self, error)


class Collector:
    """Reads a federation and lands it in an entered folder; ``app`` says what the counters are."""

    def __init__(
        self, settings: CollectorSettings, landing: Landing, tasks: asyncio.TaskGroup
    ) -> None:
        self.settings = settings
        self.landing = landing
        reading, files = settings.reading, settings.files
        parameters = ReadingParameters(
            federation=settings.federation,
            pace=Pace(window_max=reading.window_max, answer_ms=Millis(reading.answer_ms)),
            rotate_bytes=files.rotate_bytes,
            rotate_ms=Millis(files.rotate_ms),
        )
        self.collection = Collection(landing.scan(), parameters, bytes_max=reading.memory_bytes_max)
        named = [broker.url for broker in settings.brokers]
        self.directory = Directory(named, only=settings.only)
        self.sources: dict[str, Source] = {}  # by URL
        self.malformed = self.misled = self.land_failures = 0
        self._tasks = tasks
        self.words = FollowedWords(
            settings.federation,
            settings.keys,
            own_file=settings.keys.collector_file,
            read_own=settings.keys.own_keys,
            required=["agent"],
        )
        self._running: dict[str, asyncio.Task[None]] = {}
        self._leaving = False
        self._done = asyncio.Event()
        self._numbers = itertools.count(1)
        self._name = secrets.token_hex(NAME_BYTES)
        self._token = secrets.token_hex(TOKEN_BYTES)
        self._complaints: RateLimiter[str] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=1_024)
        self._complained: WindowCounter[str] = WindowCounter(window_ms=COMPLAINT_GAP_MS)
        self._disk = ThreadPoolExecutor(1, "landing")

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, and go on until cancelled."""
        for broker in self.settings.brokers:
            self._connect(self.settings.connection(broker))
        self._tasks.create_task(self._tick(), name="what is due")
        self._tasks.create_task(self.words.run(), name="keys")
        if self.settings.files.keep_days or self.settings.files.keep_bytes:
            self._tasks.create_task(self._prune(), name="retention")

    async def leave(self, *, patience_s: float) -> None:
        """Ask no more and land what is in memory; gives up, what is not landed is asked again."""
        self._leaving = True
        self._do_what_is_due()
        self._check_done()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._done.wait()

    def _check_done(self) -> None:
        if self._leaving and self.collection.settled:
            self._done.set()

    def _connect(self, connection: BrokerAddress) -> None:
        name = f"{self._name}-{next(self._numbers)}"
        source = Source(self, connection, name=name, token=self._token)
        self.sources[source.url] = source
        name = f"connection to {source.url}"
        self._running[source.url] = self._tasks.create_task(source.link.run(), name=name)

    async def _tick(self) -> None:
        while True:
            self._do_what_is_due()
            await asyncio.sleep(TICK_S)

    async def _prune(self) -> None:
        files, loop = self.settings.files, asyncio.get_running_loop()
        prune = partial(self.landing.prune, keep_days=files.keep_days, keep_bytes=files.keep_bytes)
        while True:
            try:
                removed = await loop.run_in_executor(
                    self._disk, lambda: prune(now=datetime.now(UTC))
                )
            except OSError as error:
                self._complain("collector.prune_failed", reason=str(error)[:200])
            else:
                if removed:
                    _log.info("collector.pruned", files=removed)
            await asyncio.sleep(PRUNE_S)

    # -- what sources tell -----------------------------------------------------------------------

    def on_readable(self, source: Source) -> None:
        """A source's subscriptions stand: answers can come."""
        if source.broker is not None:
            self.collection.on_up(source.broker)

    def on_gone(self, source: Source) -> None:
        """A source's connection ended; it may come back as another broker."""
        if source.broker is not None:
            self.collection.on_down(source.broker)
        source.broker = None
        self.directory.on_down(source.url)

    def on_guide(self, source: Source, topic: str, payload: bytes) -> Guide | None:
        """A guide came, or what does not decode as one; return it if it is believed."""
        guide = decode(Guide, payload)
        if guide.federation != self.settings.federation:
            return None
        proven = self.words.is_agents(guide.broker, topic, payload, again=True)
        if not (proven and self._believe(source, guide.broker)):
            return None
        failing = {url for url, each in self.sources.items() if each.failing}
        self._follow(self.directory.on_guide(guide, failing=failing))
        return guide

    def on_head(self, source: Source, topic: str, payload: bytes) -> None:
        """A head came, or what does not decode as one."""
        head = decode_head(payload)
        broker = BrokerId(head.broker)
        proven = self.words.is_agents(broker, topic, payload, again=True)
        if proven and self._believe(source, broker):
            self._tell(self.collection.on_head(head))

    def on_answer(self, source: Source, topic: str, payload: bytes) -> None:
        """An agent, or somebody who pretends to be one, answers on our own topic."""
        broker, now_ms, wall_us = source.broker, monotonic_ms(), wall_clock_us()
        if broker is None or self._leaving:
            return
        if not self.words.is_agents(broker, topic, payload.partition(b"\n")[0]):
            return
        try:
            self._tell(self.collection.on_answer(broker, payload, now_ms=now_ms, wall_us=wall_us))
        finally:
            self._do_what_is_due()

    def _believe(self, source: Source, broker: BrokerId) -> bool:
        """Whether what is behind ``source`` is ``broker``, as it says."""
        believed, orders = self.directory.on_identity(source.url, broker)
        if not believed:
            self.misled += 1
            self._complain("collector.not_believed", broker=broker, url=source.url)
            return False
        self._follow(orders)  # before: who is hung up was this broker until now
        if source.broker is None:
            source.broker = broker
            if source.link.subscribed:
                self.collection.on_up(broker)
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
                        reason = str(error)[:200]
                        self.directory.on_failed(broker)
                        self._complain("collector.not_dialled", broker=broker, reason=reason)
                    else:
                        _log.info("collector.broker_found", broker=broker, url=url)

    def _hang_up(self, url: str) -> None:
        source, task = self.sources.pop(url, None), self._running.pop(url, None)
        if source is not None:
            self.on_gone(source)  # its link will say so, too, when it is nobody any more
        if task is not None:
            task.cancel()

    # -- what is due -----------------------------------------------------------------------------

    def _do_what_is_due(self) -> None:
        by_broker = {source.broker: source for source in self.sources.values()}
        for order in self.collection.due(now_ms=monotonic_ms(), all_=self._leaving):
            match order:
                case Piece():
                    self._tasks.create_task(self._land(order), name="landing")
                case Question():
                    by_broker[order.broker].ask(order)

    async def _land(self, piece: Piece) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._disk, self.landing.write, piece)
        except OSError as error:
            self.land_failures += 1
            self.collection.on_land_failed(piece, now_ms=monotonic_ms())
            reason = f"{error.strerror or error}"[:200]
            self._complain("collector.landing_failed", reason=reason, so_far=self.land_failures)
        else:
            self._tell(self.collection.on_landed(piece))
            self._check_done()

    # -- what we tell ----------------------------------------------------------------------------

    def on_malformed(self, source: Source, error: DecodeError) -> None:
        """Count what ``source`` told and does not decode."""
        self.malformed += 1
        reason = str(error)[:200]
        self._complain("collector.malformed", url=source.url, reason=reason, so_far=self.malformed)

    def _tell(self, notices: list[Notice]) -> None:
        for notice in notices:
            log_notice(notice)

    def _complain(self, name: str, **details: int | str) -> None:
        """Say it, once a minute about each broker, and of so many brokers only."""
        about = f"{name} {details.get('url', '')} {details.get('broker', '')}"
        now_ms = monotonic_ms()
        said = self._complained.so_far(now_ms)
        if said[name] < COMPLAINTS_MAX and self._complaints.allow(about, now_ms):
            said[name] += 1
            _log.warning(name, **details)
