"""Answers gateways whose clients came from a dead broker: what did they miss?

What was published on their filters since then, and will not come to them any more, is looked for in
the origins' custody logs, ours included, and told to the gateway alone: it knows what its clients
got. What is found is told as it comes, and nobody says that it was all.

A question costs a few bytes and its answer may cost many, on links too. So few are open at a time,
each looks back a minute at most, and its answer has a bound. In a signed federation only gateways
that sign are answered; in an open one, whoever may ask could as well be a neighbour and subscribe.

Source: docs/gateway.md, "What a client missed"; what is looked for is in
``protocol.custody.retrieval``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from mqtt5 import PublishPacket

from federator.errors import DecodeError
from federator.protocol.filters import validate_filter
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import RunChecker, topics_of
from federator.protocol.messages.gateways import Fetch, Fetched
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.topics import fetch_topic, fetched_topic
from federator.protocol.rate_limiter import RateLimiter, WindowCounter
from federator.protocol.trust.words import is_signed
from federator.protocol.types import Millis
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us

LOOK_BACK_MS_MAX: Final = 60_000
ANSWER_BYTES_MAX: Final = 4_194_304
PAGE_BYTES_MAX: Final = 262_144
PACKET_BYTES_MAX: Final = 720_896
"""A longer one finds no room in a word, as JSON."""

PAGE_DELAY_S: Final = 0.05
"""What is found within it shares a page."""

WINDOW_MS: Final = 50
JUDGED_MAX: Final = 16
"""Proofs, 0.13 ms each, in one window."""

COMPLAINT_GAP_MS: Final = Millis(60_000)
OWN_AT_ONCE: Final = 64

_PROOFS: Final = "proofs"

_log = structlog.get_logger()


@dataclass(eq=False, repr=False)
class _Answer:
    """What was found for one question."""

    question: Fetch
    signed: bool
    packets: list[bytes] = field(default_factory=list)  # of the page that is being filled
    page_bytes: int = 0
    bytes: int = 0  # told so far, and on this page
    turning: asyncio.Handle | None = None  # sends the page in time


@dataclass(kw_only=True, eq=False, repr=False)
class GatewayFetches:
    """The questions that are open at one agent."""

    federation: str
    link: MqttLink  # the control connection to our broker, by which gateways are answered
    is_gateways: Callable[[PublishPacket, str], bool]  # whether the gateway of that name said it
    sign: Callable[[str, bytes], bytes]  # adds our proof to what is said on a topic
    signed_only: bool  # whether questions without a proof are refused
    in_federation: Callable[[str], Iterable[str]]  # what it calls a filter of our clients'
    names_here: Callable[[bytes], bytes]  # a run with the names that hold at our broker
    caught_up: Callable[[], Awaitable[None]]  # until what is acknowledged by now is in custody
    retrieve: Callable[[Sequence[str], int, Callable[[Frame], None]], bool]
    own_since: Callable[[Sequence[str], int], Iterable[Frame]]

    def __post_init__(self) -> None:
        self.topic = fetch_topic(self.federation)
        self.malformed = 0
        self.refused = 0
        self._checker = RunChecker()
        self._judged: WindowCounter[str] = WindowCounter(window_ms=WINDOW_MS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._complaints: RateLimiter[str] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=4)

    def on_question(self, packet: PublishPacket) -> None:
        """Look for what a gateway's clients missed."""
        signed = is_signed(packet.payload)
        try:
            asked = decode(Fetch, packet.payload)
            if self.signed_only and not signed:
                raise DecodeError(f"gateway {asked.gateway} does not sign, and payloads are asked")
            judged = self._judged.so_far(monotonic_ms())
            judged[_PROOFS] += signed
            if judged[_PROOFS] > JUDGED_MAX:
                self._refuse()
                return
            if not self.is_gateways(packet, asked.gateway):
                return
            for filter in asked.filters:
                validate_filter(filter)
        except (DecodeError, ValueError) as error:
            self.malformed += 1
            if self._complaints.allow("malformed", monotonic_ms()):
                _log.warning("fetch.malformed", reason=str(error)[:200], so_far=self.malformed)
            return
        names = sorted({name for each in asked.filters for name in self.in_federation(each)})
        since_us = wall_clock_us() - 1_000 * min(asked.oldest_ms, LOOK_BACK_MS_MAX)
        answer = _Answer(asked, signed)
        if not names:
            return
        if not self.retrieve(names, since_us, lambda frame: self._tell(answer, frame)):
            self._refuse()
            return
        task = asyncio.create_task(self._tell_own(answer, names, since_us), name="fetch our own")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def run(self) -> None:
        """End what is open when cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            for task in self._tasks:
                task.cancel()

    async def _tell_own(self, answer: _Answer, names: Sequence[str], since_us: int) -> None:
        """Tell what our own clients published before the question came."""
        await self.caught_up()
        for number, frame in enumerate(self.own_since(names, since_us), 1):
            self._tell(answer, frame)
            if answer.bytes >= ANSWER_BYTES_MAX:
                break
            if number % OWN_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _tell(self, answer: _Answer, frame: Frame) -> None:
        run = bytes(frame.body)
        try:
            self._checker.check(run, acknowledged=True, publications=frame.publications)
            here = self.names_here(run)
            packets = [here[start:end] for start, end, _ in topics_of(here)]
        except DecodeError:
            return  # who delivers it says so
        for packet in packets:
            if answer.bytes + len(packet) > ANSWER_BYTES_MAX or len(packet) > PACKET_BYTES_MAX:
                answer.bytes = ANSWER_BYTES_MAX
                self._refuse()
                return
            answer.bytes += len(packet)
            if answer.page_bytes + len(packet) > PAGE_BYTES_MAX:
                self._turn(answer)
            answer.packets.append(packet)
            answer.page_bytes += len(packet)
            if answer.turning is None:
                loop = asyncio.get_running_loop()
                answer.turning = loop.call_later(PAGE_DELAY_S, self._turn, answer)

    def _turn(self, answer: _Answer) -> None:
        """Send the page, and begin another."""
        if answer.turning is not None:
            answer.turning.cancel()
            answer.turning = None
        if not answer.packets:
            return
        gateway, number = answer.question.gateway, answer.question.number
        topic = fetched_topic(self.federation, gateway)
        payload = encode(Fetched(number, tuple(answer.packets)))
        self.link.publish(topic, self.sign(topic, payload) if answer.signed else payload)
        answer.packets.clear()
        answer.page_bytes = 0

    def _refuse(self) -> None:
        """Count what is not looked for, or not told."""
        self.refused += 1
        if self._complaints.allow("refused", monotonic_ms()):
            _log.warning("fetch.refused", so_far=self.refused)
