"""The collector: connections to all brokers, one collection, one folder.

Decisions are made in ``collection`` and ``directory``. Files are written in one thread, one at a
time, so the loop goes on while a disk is slow; each file is passed to it whole.
"""

import asyncio
import contextlib
import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Final

import structlog
from mqtt5 import PublishPacket

from federator.collector.collection import Collection, Question
from federator.collector.landing import Landing
from federator.collector.position import Piece, ReadingParameters
from federator.collector.sources import Source, Sources
from federator.config.all_brokers.collector import CollectorSettings
from federator.protocol.effects import Notice
from federator.protocol.messages import topics
from federator.protocol.telemetry.reader import Pace
from federator.protocol.telemetry.records import encode
from federator.protocol.telemetry.replay import Ask, decode_head
from federator.protocol.trust.words import at
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us
from federator.runtime.process.notices import Complaints, log_notice
from federator.runtime.trust.words import FollowedWords

TICK_S: Final = 0.1
"""The time between two checks for due work."""

PRUNE_S: Final = 60.0
TOKEN_BYTES: Final = 16
SEND_QUEUE_BYTES_MAX: Final = 65_536
"""We send only requests."""

_log = structlog.get_logger()


class Collector:
    """Reads a federation and lands it in an entered folder; ``app`` describes the counters."""

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
        self.land_failures = 0
        self._tasks = tasks
        self.words = FollowedWords(
            settings.federation,
            settings.keys,
            own_file=settings.keys.collector_file,
            read_own=settings.keys.own_keys,
            required=["agent"],
        )
        federation = settings.federation
        self._token = secrets.token_hex(TOKEN_BYTES)
        self._head = topics.metrics_head_topic(federation)
        self._ask_topic = topics.metrics_ask_topic(federation)
        self._again = topics.metrics_again_topic(federation, self._token)
        self.connections = Sources(
            self,
            settings,
            self.words,
            tasks,
            kind="collector",
            daemon="collector",
            extra_topics=(self._head, self._again),
            send_queue_bytes_max=SEND_QUEUE_BYTES_MAX,
        )
        self._leaving = False
        self._done = asyncio.Event()
        self._complain = Complaints().complain
        self._disk = ThreadPoolExecutor(1, "landing")

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        self.connections.start()
        self._tasks.create_task(self._tick(), name="what is due")
        self._tasks.create_task(self.words.run(), name="keys")
        if self.settings.files.keep_days or self.settings.files.keep_bytes:
            self._tasks.create_task(self._prune(), name="retention")

    async def leave(self, *, patience_s: float) -> None:
        """Stop asking and land what is in memory; on timeout the rest is asked for again later."""
        self._leaving = True
        self._do_what_is_due()
        self._check_done()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._done.wait()

    def _check_done(self) -> None:
        if self._leaving and self.collection.settled:
            self._done.set()

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

    # -- events of sources -----------------------------------------------------------------------

    def on_readable(self, source: Source) -> None:
        assert source.broker is not None
        self.collection.on_up(source.broker)

    def on_gone(self, source: Source) -> None:
        assert source.broker is not None
        self.collection.on_down(source.broker)

    def on_word(self, source: Source, packet: PublishPacket) -> None:
        topic, payload = packet.topic, bytes(packet.payload)
        if topic == self._again:
            self.on_answer(source, topic, payload)
        elif topic == self._head and payload:
            self.on_head(source, topic, payload)

    def on_head(self, source: Source, topic: str, payload: bytes) -> None:
        head = decode_head(payload)
        broker = BrokerId(head.broker)
        proven = self.words.is_agents(broker, topic, payload, again=True)
        if proven and self.connections.believe(source, broker):
            self._log_notices(self.collection.on_head(head))

    def on_answer(self, source: Source, topic: str, payload: bytes) -> None:
        """Handle an answer on our own topic, from the broker's agent or from a forger."""
        broker, now_ms, wall_us = source.broker, monotonic_ms(), wall_clock_us()
        if broker is None or self._leaving:
            return
        if not self.words.is_agents(broker, topic, payload.partition(b"\n")[0]):
            return
        try:
            self._log_notices(
                self.collection.on_answer(broker, payload, now_ms=now_ms, wall_us=wall_us)
            )
        finally:
            self._do_what_is_due()

    # -- what is due -----------------------------------------------------------------------------

    def _do_what_is_due(self) -> None:
        by_broker = {source.broker: source for source in self.connections.by_url.values()}
        for order in self.collection.due(now_ms=monotonic_ms(), all_=self._leaving):
            match order:
                case Piece():
                    self._tasks.create_task(self._land(order), name="landing")
                case Question():
                    self._request(by_broker[order.broker], order)

    def _request(self, source: Source, question: Question) -> None:
        """Send a request. Its token is secret: without it no other client can answer for the agent.
        Our client id must not contain it: brokers publish client ids on their log topics."""
        first, last = question.first, question.last
        ask = Ask(spool=question.spool, first=first, last=last, to=self._token)
        signed = self.words.sign(self._ask_topic, encode(ask), to=at(question.broker))
        source.link.publish(self._ask_topic, signed, urgent=True)

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
            self._log_notices(self.collection.on_landed(piece))
            self._check_done()

    # -- logging ---------------------------------------------------------------------------------

    def _log_notices(self, notices: list[Notice]) -> None:
        for notice in notices:
            log_notice(notice)
