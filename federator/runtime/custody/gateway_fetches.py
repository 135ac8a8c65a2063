"""Answers gateways about clients that came from a dead broker: what did they miss?

We search the origins' custody logs, ours included, for publications on their filters since then
that will no longer reach them, and send those to the gateway alone: it knows what its clients got.
Results are sent as they come, without an end marker.

A question costs a few bytes and its answer may cost many, on links too. So few are open at a time,
each looks back a minute at most, and its answer has a bound. In a signed federation only gateways
that sign are answered; in an open one, any client may ask, as it could also pose as a neighbour and
subscribe.

Source: docs/gateway.md, "What a client missed"; ``protocol.custody.retrieval`` defines the search.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mqtt5 import PublishPacket

from federator.errors import DecodeError
from federator.protocol.filters import validate_filter
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import RunChecker, topics_of
from federator.protocol.messages.gateways import Fetch, Fetched
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.topics import fetch_topic, fetched_topic
from federator.protocol.rate_limiter import WindowCounter
from federator.protocol.trust.words import is_signed
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us
from federator.runtime.process.notices import Complaints

LOOK_BACK_MS_MAX: Final = 60_000
ANSWER_BYTES_MAX: Final = 4_194_304
PAGE_BYTES_MAX: Final = 262_144
PACKET_BYTES_MAX: Final = 720_896
"""A longer packet does not fit into one message, as JSON."""

PAGE_DELAY_S: Final = 0.05
"""Results within this time share a page."""

WINDOW_MS: Final = 50
JUDGED_MAX: Final = 16
"""Proofs, 0.13 ms each, in one window."""

OWN_AT_ONCE: Final = 64

_PROOFS: Final = "proofs"


@dataclass(eq=False, repr=False)
class _Answer:
    """The results for one question."""

    question: Fetch
    signed: bool
    packets: list[bytes] = field(default_factory=list)  # of the page being filled
    page_bytes: int = 0
    bytes: int = 0  # sent so far, and on this page
    turning: asyncio.Handle | None = None  # sends the page in time


@dataclass(kw_only=True, eq=False, repr=False)
class GatewayFetches:
    """The questions that are open at one agent."""

    federation: str
    link: MqttLink  # the control connection to our broker, over which gateways are answered
    is_gateways: Callable[[PublishPacket, str], bool]  # whether that gateway sent it
    sign: Callable[[str, bytes], bytes]  # adds our proof to a message on a topic
    signed_only: bool  # whether questions without a proof are refused
    in_federation: Callable[[str], Iterable[str]]  # a local filter's names in the federation
    names_here: Callable[[bytes], bytes]  # a run with the names that hold at our broker
    # Waits until everything acknowledged by now is in custody.
    caught_up: Callable[[], Awaitable[None]]
    # Passes on what others published, and returns what our clients did until it is read; ``None``:
    # too much is being searched for.
    retrieve: Callable[[Sequence[str], int, Callable[[Frame], None]], Iterable[Frame] | None]

    def __post_init__(self) -> None:
        self.topic = fetch_topic(self.federation)
        self.malformed = 0
        self.refused = 0
        self._checker = RunChecker()
        self._signatures_checked: WindowCounter[str] = WindowCounter(window_ms=WINDOW_MS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._complain = Complaints().complain

    def part(self) -> Part:
        return Part(
            subscriptions=[live_filter(self.topic, no_local=True)],
            topics={self.topic: self.on_question},
            tasks={"gateways' fetches": self.run},
        )

    def on_question(self, packet: PublishPacket) -> None:
        """Search for what a gateway's clients missed."""
        signed = is_signed(packet.payload)
        try:
            asked = decode(Fetch, packet.payload)
            if self.signed_only and not signed:
                raise DecodeError(f"gateway {asked.gateway} does not sign, and payloads are asked")
            checked = self._signatures_checked.so_far(monotonic_ms())
            checked[_PROOFS] += signed
            if checked[_PROOFS] > JUDGED_MAX:
                self._refuse()
                return
            if not self.is_gateways(packet, asked.gateway):
                return
            for filter in asked.filters:
                validate_filter(filter)
        except (DecodeError, ValueError) as error:
            self.malformed += 1
            self._complain("fetch.malformed", reason=str(error)[:200], so_far=self.malformed)
            return
        names = sorted({name for pattern in asked.filters for name in self.in_federation(pattern)})
        since_us = wall_clock_us() - 1_000 * min(asked.oldest_ms, LOOK_BACK_MS_MAX)
        answer = _Answer(asked, signed)
        if not names:
            return
        own = self.retrieve(names, since_us, lambda frame: self._send(answer, frame))
        if own is None:
            self._refuse()
            return
        task = asyncio.create_task(self._send_own(answer, own), name="fetch our own")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def run(self) -> None:
        """Cancel open questions when cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            for task in self._tasks:
                task.cancel()

    async def _send_own(self, answer: _Answer, own: Iterable[Frame]) -> None:
        """Send what our own clients published before the question came."""
        await self.caught_up()
        for number, frame in enumerate(own, 1):
            self._send(answer, frame)
            if answer.bytes >= ANSWER_BYTES_MAX:
                break
            if number % OWN_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _send(self, answer: _Answer, frame: Frame) -> None:
        run = bytes(frame.body)
        try:
            self._checker.check(run, acknowledged=True, publications=frame.publications)
            here = self.names_here(run)
            packets = [here[start:end] for start, end, _ in topics_of(here)]
        except DecodeError:
            return  # whatever delivers it reports it
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
        """Count what is not searched for, or not sent."""
        self.refused += 1
        self._complain("fetch.refused", so_far=self.refused)
