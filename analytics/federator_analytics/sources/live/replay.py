"""Which batches a query has read, and which come next; and a range of them, fetched from its agent:
whole, in order, once each.

A position says ``first`` and ``last`` of what the query takes from one spool, ``first`` being
where it once began. It stays in the offset for ever, so that two offsets alone say which batches
lie between them, also when a spool was met for the first time, also after a restart on which the
beginning is asked for anew. That is what makes re-reading a batch read the same again. Offsets are
nested dicts because Spark keeps them as JSON: ``{broker: {spool: {first, last}}}``.

What to ask and what of an answer to take is the reader's that the collector has, too. What Spark
planned may be asked, however much the spool holds by now; so the same range is the same lines,
however often it is read.

Source: docs/metrics.md, "Replay".
"""

import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
from federator_analytics.errors import UnavailableError
from federator_analytics.sources.live.keys import Keys, Words
from federator_analytics.sources.live.link import Link, Place

Position = dict[str, int]
Offsets = dict[str, dict[str, Position]]


@dataclass(frozen=True, slots=True)
class Held:
    """Batches ``first`` to ``last`` of a spool, both included; none when ``last < first``."""

    broker: int
    spool: str
    first: int
    last: int


def past(heads: Iterable[Held]) -> Offsets:
    """The offset behind everything that ``heads`` hold."""
    offsets: Offsets = {}
    for head in heads:
        _put(offsets, head, {"first": head.last + 1, "last": head.last})
    return offsets


def advance(start: Offsets, heads: Iterable[Held], *, batches_max: int | None) -> Offsets:
    """The offset after ``start``, at most ``batches_max`` held batches further in each spool.

    What is no longer held does not count: however much was lost, reading goes on behind it.
    """
    end: Offsets = {broker: dict(spools) for broker, spools in start.items()}
    for head in heads:
        before = start.get(str(head.broker), {}).get(head.spool)
        if before is None and head.last < head.first:
            continue  # an empty spool: where it begins is not known yet
        first = before["first"] if before else head.first
        read = before["last"] if before else head.first - 1
        last = head.last
        if batches_max is not None:
            last = min(last, max(read, head.first - 1) + batches_max)
        _put(end, head, {"first": first, "last": max(read, last)})
    return end


def between(start: Offsets, end: Offsets) -> list[Held]:
    """The batches after ``start`` up to ``end``, per spool, in a fixed order.

    A start that has read nothing of a spool (``last < first``) says nothing of where to begin:
    it may have been made anew after a restart, and ``end`` knows better.
    """
    found = []
    for broker, spools in sorted(end.items(), key=lambda item: int(item[0])):
        for spool, position in sorted(spools.items()):
            before = start.get(broker, {}).get(spool)
            first = position["first"]
            if before is not None and before["last"] >= before["first"]:
                first = before["last"] + 1
            if first <= position["last"]:
                found.append(Held(int(broker), spool, first, position["last"]))
    return found


def _put(offsets: Offsets, head: Held, position: Position) -> None:
    offsets.setdefault(str(head.broker), {})[head.spool] = position


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

    Raises ``UnavailableError``: by ``read``: no connection, or no answer within ``answer_s``.
    """

    def __init__(
        self,
        place: Place,
        federation: str,
        wanted: Held,
        *,
        answer_s: float,
        ask_again_s: float = ASK_AGAIN_S,
        keys: Keys | None = None,
    ) -> None:
        self._wanted = wanted
        self._words = Words(keys or Keys(federation))
        self._disbelief = ""  # why what came last was no answer of the agent's
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
        said = self._words.sign(self._ask, encode(ask), broker=self._wanted.broker)
        self._link.publish(self._ask, said)

    def _silence(self) -> str:
        cursor = self._reader.taken + 1
        wanted = f"batches {cursor} to {self._wanted.last} of spool {self._wanted.spool}"
        agent = f"the agent of broker {self._wanted.broker} at {self._link.place.url}"
        why = self._disbelief or "is it running, and need we a key (collectorFile)?"
        return f"{agent} did not send {wanted} within {self._answer_s:g} s: {why}"

    def _on_message(self, topic: str, payload: bytes, retained: bool) -> None:
        try:
            if topic == self._head_topic:
                head = decode_head(payload)
                if head.broker == self._wanted.broker:
                    self._words.check(topic, payload, broker=head.broker, again=True)
                    self._head = head
            else:
                first = payload.partition(b"\n")[0]
                self._words.check(topic, first, broker=self._wanted.broker)
                again, lines = read_again(payload)
                if again.spool == self._wanted.spool:
                    self._answers.append((again, lines))
        except DecodeError as error:  # anybody may publish there
            self._disbelief = str(error)


def _ms(seconds: float) -> Millis:
    return Millis(round(seconds * 1_000))


def loss_text(wanted: Held, lost: Lost) -> str:
    """One line about ``lost``, and how to go on."""
    return (
        f"batches {lost.first} to {lost.last} of spool {wanted.spool} at broker {wanted.broker} "
        "were dropped before they were read: set failOnDataLoss to false to go on without them"
    )
