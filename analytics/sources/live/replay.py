"""A range of batches of one spool, fetched from its agent: whole, in order, once each.

What to ask and what of an answer to take is the reader's that the collector has, too. What Spark
planned may be asked, however much the spool holds by now; so the same range is the same lines,
however often it is read.

Source: docs/metrics.md, "Replay".
"""

import secrets
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from analytics.errors import UnavailableError
from analytics.sources.live.link import Link
from analytics.sources.live.options import Place
from analytics.sources.live.positions import Held
from federator.errors import DecodeError
from federator.protocol.messages.topics import (
    metrics_again_topic,
    metrics_ask_topic,
    metrics_head_topic,
)
from federator.protocol.telemetry.reader import SKIPPED, Batch, Pace, SpoolReader, read_again
from federator.protocol.telemetry.records import encode
from federator.protocol.telemetry.replay import Again, Ask, Head, decode_head
from federator.protocol.types import BrokerId, Millis

ASK_AGAIN_S = 5.0
"""Silence after which the question is repeated."""

HOLE_S = 1.0
"""The wait after an answer that left something out, until that is asked for."""

WINDOW = 1_024
"""Batches of one question."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Records as their agent wrote them, each with the number of its batch."""

    lines: list[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Lost:
    """Batches ``first`` to ``last`` were promised, and nobody holds them; known at ``at_us``."""

    first: int
    last: int
    at_us: int


class Replay:
    """Reads ``wanted`` at ``place``.

    Raises:
        UnavailableError: By ``read``: no connection, or no answer within ``answer_s``.
    """

    def __init__(
        self,
        place: Place,
        federation: str,
        wanted: Held,
        *,
        answer_s: float,
        ask_again_s: float = ASK_AGAIN_S,
    ) -> None:
        self._wanted = wanted
        self._answer_s = answer_s
        pace = Pace(
            window_first=WINDOW,
            window_max=WINDOW,
            answer_ms=_ms(ask_again_s),
            retry_ms=_ms(min(HOLE_S, ask_again_s)),
            refusals_max=None,  # ``answer_s`` says when to give up
        )
        self._reader = SpoolReader(BrokerId(wanted.broker), wanted.first - 1, pace)
        self._token = secrets.token_hex(8)
        self._ask = metrics_ask_topic(federation)
        self._answers: deque[tuple[Again, bytes]] = deque()
        self._away_s = 0.0
        self._head: Head | None = None
        self._head_topic = metrics_head_topic(federation)
        topics = [metrics_again_topic(federation, self._token), self._head_topic]
        self._link = Link(place, topics, self._on_message)

    def read(self) -> Iterator[Piece | Lost]:
        """The range in order, message by message; holes where batches are lost."""
        try:
            self._link.connect(self._answer_s)
            yield from self._follow()
        finally:
            self._link.close()

    def _follow(self) -> Iterator[Piece | Lost]:
        reader, wanted = self._reader, self._wanted
        heard_s = self._now_s()
        while reader.taken < wanted.last:
            now_s = self._now_s()
            if now_s > heard_s + self._answer_s:
                raise UnavailableError(self._silence())
            # What was planned is what may be asked, whatever answers say of newer batches.
            reader.on_head(wanted.first, wanted.last)
            question = reader.question(now_ms=_ms(now_s))
            if question is not None:
                self._publish(*question)
            if not self._link.turn():
                self._link.connect(heard_s + self._answer_s - now_s)
                reader.forget_question()
            while self._answers and reader.taken < wanted.last:
                for found in self._take(*self._answers.popleft()):
                    heard_s = self._now_s()
                    yield found
                    self._away_s += self._now_s() - heard_s

    def _take(self, again: Again, lines: bytes) -> Iterator[Piece | Lost]:
        """What an answer gives of the range; the rest is lost when the spool ends before it."""
        reader, last = self._reader, self._wanted.last
        taken: list[tuple[int, bytes]] = []
        for found in reader.on_answer(again, lines, now_ms=_ms(self._now_s())).found:
            if isinstance(found, Batch):
                taken += [(found.number, line) for line in found.lines.splitlines()]
            elif found.reason != SKIPPED:  # that comes before all that is taken of an answer
                yield self._lost(found.first, min(found.last, last))
        if taken:
            yield Piece(taken)
        if reader.head_last <= reader.taken < last:
            yield self._lost(reader.taken + 1, last)
            reader.taken = last

    def _now_s(self) -> float:
        """A clock that stands still while somebody works on what was read."""
        return time.monotonic() - self._away_s

    def _lost(self, first: int, last: int) -> Lost:
        at_us = self._head.at_us if self._head else time.time_ns() // 1_000
        return Lost(first, last, at_us)

    def _publish(self, first: int, last: int) -> None:
        ask = Ask(spool=self._wanted.spool, first=first, last=last, to=self._token)
        self._link.publish(self._ask, encode(ask))

    def _silence(self) -> str:
        cursor = self._reader.taken + 1
        wanted = f"batches {cursor} to {self._wanted.last} of spool {self._wanted.spool}"
        agent = f"the agent of broker {self._wanted.broker} at {self._link.place.url}"
        return f"{agent} did not send {wanted} within {self._answer_s:g} s: is it running?"

    def _on_message(self, topic: str, payload: bytes, retained: bool) -> None:
        try:
            if topic == self._head_topic:
                head = decode_head(payload)
                if head.broker == self._wanted.broker:
                    self._head = head
            else:
                again, lines = read_again(payload)
                if again.spool == self._wanted.spool:
                    self._answers.append((again, lines))
        except DecodeError:
            return  # anybody may publish there: what is no word of an agent is none


def _ms(seconds: float) -> Millis:
    return Millis(round(seconds * 1_000))


def loss_text(wanted: Held, lost: Lost) -> str:
    """One line about ``lost``, and how to go on."""
    return (
        f"batches {lost.first} to {lost.last} of spool {wanted.spool} at broker {wanted.broker} "
        "were dropped before they were read: set failOnDataLoss to false to go on without them"
    )
