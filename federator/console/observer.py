"""Watches a whole federation for a console: asks agents, receives their messages, sends orders.

Given one broker, it finds the others in guides, as a collector does. Each agent is asked for its
live page every ``ASK_MS``, and at once when something happened: our connection to its broker ended,
or one to a neighbour's, or a health message arrived. So the console shows what agents answer; what
any client may publish at a broker only triggers a question.

Source: docs/console.md; docs/protocol.md 15.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import structlog
from mqtt5 import PublishPacket

from federator.collector.sources import Source, Sources
from federator.config.all_brokers.console import ConsoleSettings
from federator.console.answers import read_answer
from federator.console.events import EventList
from federator.console.picture import Picture, read_live
from federator.errors import DecodeError, LinkError
from federator.protocol.messages import topics
from federator.protocol.messages.guide import Guide, Health
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.operators import (
    Drain,
    Page,
    PageAnswer,
    PageQuestion,
    Trace,
    Traced,
)
from federator.protocol.telemetry import records
from federator.protocol.telemetry.journey import Journey
from federator.protocol.trust.words import NOBODY, at
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.clocks import monotonic_ms, wall_clock_ms
from federator.runtime.process.notices import Complaints
from federator.runtime.trust.words import FollowedWords

TICK_S: Final = 0.1
ASK_MS: Final = 2_000
"""Between two questions to an agent while nothing happens."""
AGAIN_MS: Final = 250
"""Least time between two questions to an agent."""
ANSWER_S: Final = 6.0
AGAIN_S: Final = 2.0
"""After this time an agent that has not answered is asked once more."""
OBEYED_S: Final = 10.0
"""How long to wait for a drain to take effect."""
REPEAT_S: Final = 1.0
WAITING_MAX: Final = 2_048
"""Questions that wait for their answer."""
TRACES_MAX: Final = 16
TOKEN_BYTES: Final = 16
SEND_QUEUE_BYTES_MAX: Final = 65_536

Changed = Callable[[], None]
_T = TypeVar("_T")
_log = structlog.get_logger()


class GuidedSources(Sources):
    """Connections to all brokers; believed guides also go to ``heard_guide``."""

    heard_guide: Callable[[Guide], None]

    def on_guide(self, source: Source, topic: str, payload: bytes) -> Guide | None:
        """Handle a guide as the base class does, and pass it on if it is believed."""
        guide = super().on_guide(source, topic, payload)
        if guide is not None:
            self.heard_guide(guide)
        return guide


class Observer:
    """Keeps a picture of a federation, and asks and orders on behalf of viewers.

    Args:
        changed: Called when ``picture`` or ``events`` have changed; ten times a second at most.
    """

    def __init__(
        self, settings: ConsoleSettings, tasks: asyncio.TaskGroup, *, changed: Changed
    ) -> None:
        self.settings = settings
        self.picture = Picture()
        self.events = EventList()
        self.asked = self.unanswered = 0  # questions on behalf of viewers
        self.unclear = 0  # malformed answers
        self.orders = 0
        self._changed = changed
        self._tasks = tasks
        self.words = FollowedWords(
            settings.federation,
            settings.keys,
            own_file=settings.keys.operator_file,
            read_own=settings.keys.own_keys,
            required=["agent"],
        )
        federation = settings.federation
        self._token = secrets.token_hex(TOKEN_BYTES)
        self._page = topics.page_topic(federation)
        self._paged = topics.paged_topic(federation, self._token)
        self._health = topics.health_topic(federation)
        self._traced = topics.traced_topic(federation, "+").removesuffix("+")
        self._events = topics.metrics_table_topic(federation, "events")
        subscribed = [self._paged, self._health]
        if not self.words.judges:  # streams are not signed
            subscribed.append(self._events)
        self.connections = GuidedSources(
            self,
            settings,
            self.words,
            tasks,
            kind="console",
            daemon="console",
            extra_topics=(*subscribed, f"{self._traced}{self._token}"),
            send_queue_bytes_max=SEND_QUEUE_BYTES_MAX,
        )
        self.connections.heard_guide = self._on_guide
        self._asked_ms: dict[BrokerId, Millis] = {}
        self._hasty: set[BrokerId] = set()
        self._number = 0
        self._waiting: dict[tuple[BrokerId, int], asyncio.Future[Mapping[str, Any]]] = {}
        self._traces: dict[BrokerId, asyncio.Queue[Traced]] = {}
        self._reported_versions = 0, 0  # the versions last reported to ``changed``
        self._takeovers: set[tuple[BrokerId, BrokerId]] = set()
        self._complain = Complaints().complain

    def start(self) -> None:
        """Connect, and run until cancelled."""
        self.connections.start()
        self._tasks.create_task(self._tick(), name="what is due")
        self._tasks.create_task(self.words.run(), name="keys")

    async def _tick(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(TICK_S)

    def _look(self) -> None:
        now_ms, picture, events = monotonic_ms(), self.picture, self.events
        for broker in picture.overdue(now_ms=now_ms):
            picture.look(broker, now_ms=now_ms)
        for before, record in picture.changes():
            events.look(before, record, at_ms=wall_clock_ms())
        for source in self.connections.by_url.values():
            if source.broker is not None and source.link.subscribed:
                self._request_live_page(source, source.broker, now_ms)
        newest = picture.version, events.number
        if newest != self._reported_versions:
            self._reported_versions = newest
            self._changed()

    def _request_live_page(self, source: Source, broker: BrokerId, now_ms: Millis) -> None:
        gap_ms = AGAIN_MS if broker in self._hasty else ASK_MS
        if now_ms - self._asked_ms.get(broker, -ASK_MS) < gap_ms:
            return
        self._hasty.discard(broker)
        self._asked_ms[broker] = now_ms
        self._request_page(source, broker, 0, "live", "")

    def _request_page(
        self, source: Source, broker: BrokerId, number: int, page: Page, about: str
    ) -> None:
        question = PageQuestion(token=self._token, number=number, page=page, about=about)
        signed = self.words.sign(self._page, encode(question), to=at(broker))
        source.link.publish(self._page, signed, urgent=True)

    # -- events of sources -----------------------------------------------------------------------

    def on_readable(self, source: Source) -> None:
        """Note that a source's subscriptions are made: answers can arrive."""
        assert source.broker is not None
        self.picture.on_connected(source.broker, source.url, now_ms=monotonic_ms())
        self._hasten(source.broker)

    def on_gone(self, source: Source) -> None:
        """Note that a source's connection ended."""
        assert source.broker is not None
        self.picture.on_gone(source.broker, now_ms=monotonic_ms())
        self._hasten(source.broker)

    def on_word(self, source: Source, packet: PublishPacket) -> None:
        """Handle an answer, a health message, or records of a metrics stream."""
        topic, payload = packet.topic, bytes(packet.payload)
        if topic == self._health and payload:
            self._on_health(source, payload)
        elif source.broker is None:
            return
        elif topic == self._paged:
            self._on_answer(source.broker, topic, payload)
        elif topic.startswith(self._traced):
            self._on_traced(source.broker, payload)
        elif topic == self._events and not packet.retain:
            self._on_records(source.broker, payload)

    def _on_health(self, source: Source, payload: bytes) -> None:
        """Ask the broker's agent: the sender is unproven. Without keys it identifies the broker."""
        health = decode(Health, payload)
        if health.federation != self.settings.federation:
            return
        if not self.words.judges and source.broker is None:
            self.connections.believe(source, health.broker)
        if health.broker != source.broker:
            return
        if health.state == "down":
            self.picture.on_doubt(health.broker, now_ms=monotonic_ms())
        self._hasten(health.broker)

    def _on_guide(self, guide: Guide) -> None:
        now_ms = monotonic_ms()
        if not guide.epoch and not guide.number and len(guide.brokers) == 1:
            self.picture.on_doubt(guide.broker, now_ms=now_ms)
            self._hasten(guide.broker)
        self.picture.on_guide(guide, now_ms=now_ms)
        newest = self.picture.guide
        if newest is None:
            return
        takeovers = {(takeover.broker, takeover.substitute) for takeover in newest.takeovers}
        for broker, substitute in sorted(takeovers - self._takeovers):
            self._note("bad", "{} has stepped in for {}", substitute, broker)
        for broker, substitute in sorted(self._takeovers - takeovers):
            self._note("plain", "{} serves no more for {}", substitute, broker)
        self._takeovers = takeovers

    def _note(self, weight: Any, text: str, *brokers: BrokerId) -> None:  # noqa: ANN401
        self.events.add(weight, text, brokers, at_ms=wall_clock_ms())

    def _on_answer(self, broker: BrokerId, topic: str, payload: bytes) -> None:
        if not self.words.is_agents(broker, topic, payload):
            return
        answer = decode(PageAnswer, payload)
        if answer.broker != broker:
            raise DecodeError(f"an answer of broker {answer.broker} at broker {broker}")
        if answer.number == 0:
            page, now_ms = read_live(answer.body), monotonic_ms()
            self.picture.on_live(broker, page, at_us=answer.at_us, now_ms=now_ms)
            return
        waiting = self._waiting.pop((broker, answer.number), None)
        if waiting is not None and not waiting.done():
            body = {"error": answer.wrong} if answer.wrong else answer.body
            waiting.set_result(body)

    def _on_traced(self, broker: BrokerId, payload: bytes) -> None:
        hop = decode(Traced, payload)
        queue = self._traces.get(broker)
        if queue is not None and hop.path[0] == broker:
            with contextlib.suppress(asyncio.QueueFull):
                queue.put_nowait(hop)

    def _on_records(self, broker: BrokerId, payload: bytes) -> None:
        for line in payload.splitlines():
            record = records.decode(line)
            if isinstance(record, records.Events) and record.broker == broker:
                self.events.on_record(record, broker)

    def _hasten(self, broker: BrokerId) -> None:
        """Ask ``broker`` and its neighbours soon."""
        self._hasty.update((broker, *self.picture.neighbours(broker)))

    # -- on behalf of viewers --------------------------------------------------------------------

    async def ask(self, broker: BrokerId, page: Page, about: str) -> Mapping[str, Any]:
        """The page that the agent of ``broker`` answers with.

        Raises:
            LinkError: The agent cannot be asked, or does not answer.
        """
        source = self._source(broker)
        if len(self._waiting) >= WAITING_MAX:
            raise LinkError("too many questions are waiting: try again")
        self._number += 1
        self.asked += 1
        number = self._number
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[broker, number] = answer
        try:
            # an agent drops questions that come too fast
            for wait_s in (AGAIN_S, ANSWER_S - AGAIN_S):
                self._request_page(source, broker, number, page, about)
                if (await asyncio.wait((answer,), timeout=wait_s))[0]:
                    break
            else:
                self.unanswered += 1
                why = "does not answer: it may want keys.operator_file, or be of an older release"
                raise LinkError(f"broker {broker}: its agent {why}")
        finally:
            self._waiting.pop((broker, number), None)
        body = answer.result()
        if "error" in body:
            raise LinkError(f"broker {broker}: {body['error']}")
        return body

    async def ask_all(self, page: Page, about: str) -> dict[BrokerId, Mapping[str, Any]]:
        """The page of every agent that answers."""
        brokers = [
            broker
            for broker in self.picture.brokers()
            if self.picture.state(broker) in ("ready", "not_ready", "draining")
        ]
        asked = [self.ask(broker, page, about) for broker in brokers]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return {
            broker: answer
            for broker, answer in zip(brokers, answers, strict=True)
            if isinstance(answer, Mapping)
        }

    async def read_all(self, kind: type[_T], page: Page, about: str) -> dict[BrokerId, _T]:
        """The answers, each decoded as a ``kind``; malformed ones are left out, and logged."""
        answers = {}
        for broker, body in (await self.ask_all(page, about)).items():
            try:
                answers[broker] = read_answer(kind, body)
            except DecodeError as error:
                self._on_unclear(broker, error)
        return answers

    async def trace(self, broker: BrokerId, topic: str, *, wait_s: float) -> Journey:
        """Send a probe along the way of ``topic`` from ``broker``, and gather the echoes.

        Raises:
            LinkError: The agent cannot be asked, does not answer, or is traced from already.
        """
        source = self._source(broker)
        if broker in self._traces or len(self._traces) >= TRACES_MAX:
            raise LinkError(f"broker {broker}: a trace is under way: try again")
        queue = self._traces[broker] = asyncio.Queue[Traced](4_096)
        journey = Journey()
        try:
            trace = encode(Trace(self._token, topic))
            source.link.publish(topics.trace_topic(self.settings.federation), trace, urgent=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while journey.start is None or journey.waited_for:
                        hop = await queue.get()
                        begun = journey.start if len(hop.path) > 1 else hop
                        # Ignore an echo of an earlier trace from there.
                        if begun is not None and hop.times_us[:1] == begun.times_us[:1]:
                            journey.take(hop)
        finally:
            del self._traces[broker]
        if journey.start is None:
            raise LinkError(f"broker {broker}: its agent does not answer")
        return journey

    async def drain(self, broker: BrokerId, *, draining: bool) -> None:
        """Order that the clients of ``broker`` leave, or may return; wait until it takes effect.

        Raises:
            LinkError: The order has no effect, or the broker cannot be reached.
        """
        source = self._source(broker)
        self.orders += 1
        topic = topics.drain_topic(self.settings.federation)
        end_s = asyncio.get_running_loop().time() + OBEYED_S
        while asyncio.get_running_loop().time() < end_s:
            page = self.picture.page(broker)
            run = bytes.fromhex(page.run) if page is not None and page.run else NOBODY
            word = self.words.sign(topic, encode(Drain(broker, draining)), to=run)
            source.link.publish(topic, word, urgent=True)
            again_s = asyncio.get_running_loop().time() + REPEAT_S
            while asyncio.get_running_loop().time() < again_s:
                page = self.picture.page(broker)
                if page is not None and page.draining == draining:
                    return
                self._hasty.add(broker)
                await asyncio.sleep(TICK_S)
        hint = "" if self.words.signs else ", and does its agent want keys.operator_file?"
        raise LinkError(f"broker {broker}: not obeyed in {OBEYED_S:.0f} s{hint}")

    def _source(self, broker: BrokerId) -> Source:
        source = self.connections.of(broker)
        if source is None or not source.link.subscribed:
            raise LinkError(f"broker {broker}: we have no connection to it")
        return source

    # -- what is logged --------------------------------------------------------------------------

    def _on_unclear(self, broker: BrokerId, error: DecodeError) -> None:
        """Count and log a malformed answer of the agent of ``broker``."""
        self.unclear += 1
        self._complain("console.answer_unclear", broker=broker, reason=str(error)[:200])
