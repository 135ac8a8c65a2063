"""Fetching exactly the batches of one range from one agent, in order, once each.

Idea: a cursor. The agent is asked for what lies behind the cursor; an answer that begins there
moves it; one that begins later shows a hole, and the question is asked anew, or, if the agent holds
no such batches any more, the hole is what is lost. Copies and answers to older questions lie before
the cursor and are cut off. So the same range is the same lines, however often it is read.
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
from analytics.sources.live.words import (
    Again,
    Head,
    ask,
    batch_of,
    read_again,
    read_head,
    topic,
)

ASK_AGAIN_S = 5.0
"""Silence after which the question is repeated."""

HOLE_S = 1.0
"""After an answer that left something out: how long until that is asked for."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Batches ``first`` to ``last``: their records as the agent wrote them, each with its batch."""

    first: int
    last: int
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
        self._ask_again_s = ask_again_s
        self._token = secrets.token_hex(8)
        self._federation = federation
        self._answers: deque[Again] = deque()
        self._head: Head | None = None
        topics = [topic(federation, "metrics", "again", self._token)]
        topics.append(topic(federation, "metrics", "head"))
        self._link = Link(place, topics, self._came)

    def read(self) -> Iterator[Piece | Lost]:
        """The range in order, message by message; holes where batches are lost."""
        try:
            self._link.connect(self._answer_s)
            yield from self._follow()
        finally:
            self._link.close()

    def _follow(self) -> Iterator[Piece | Lost]:
        cursor, last = self._wanted.first, self._wanted.last
        heard_s, ask_s = time.monotonic(), 0.0
        while cursor <= last:
            now_s = time.monotonic()
            if now_s > heard_s + self._answer_s:
                raise UnavailableError(self._silence(cursor))
            if now_s >= ask_s:
                self._ask(cursor)
                ask_s = now_s + self._ask_again_s
            if not self._link.turn():
                self._link.connect(heard_s + self._answer_s - now_s)
                ask_s = 0.0
            while self._answers and cursor <= last:
                answer = self._answers.popleft()
                if answer.held_first <= cursor < answer.first:
                    ask_s = min(ask_s, now_s + min(HOLE_S, self._ask_again_s))
                for piece in self._pieces(answer, cursor):
                    cursor = piece.last + 1
                    yield piece
                    heard_s = time.monotonic()
                    ask_s = heard_s + self._ask_again_s

    def _pieces(self, answer: Again, cursor: int) -> Iterator[Piece | Lost]:
        """What ``answer`` says from ``cursor`` on."""
        last = self._wanted.last
        if answer.spool != self._wanted.spool or answer.held_last < cursor:
            yield self._lost(cursor, last)
            return
        if answer.held_first > cursor:
            yield self._lost(cursor, min(last, answer.held_first - 1))
            cursor = answer.held_first
        if answer.first <= cursor <= min(answer.last, last):
            end = min(answer.last, last)
            lines = [(batch_of(line, cursor), line) for line in answer.lines]
            yield Piece(cursor, end, [told for told in lines if cursor <= told[0] <= end])

    def _lost(self, first: int, last: int) -> Lost:
        at_us = self._head.at_us if self._head else time.time_ns() // 1_000
        return Lost(first, last, at_us)

    def _ask(self, cursor: int) -> None:
        question = ask(
            spool=self._wanted.spool, first=cursor, last=self._wanted.last, to=self._token
        )
        self._link.publish(topic(self._federation, "metrics", "ask"), question)

    def _silence(self, cursor: int) -> str:
        wanted = f"batches {cursor} to {self._wanted.last} of spool {self._wanted.spool}"
        agent = f"the agent of broker {self._wanted.broker} at {self._link.place.url}"
        return f"{agent} did not send {wanted} within {self._answer_s:g} s: is it running?"

    def _came(self, told: str, payload: bytes, retained: bool) -> None:
        if told.endswith("/head"):
            head = read_head(payload)
            if head is not None and head.broker == self._wanted.broker:
                self._head = head
        elif (answer := read_again(payload)) is not None:
            self._answers.append(answer)


def loss_text(wanted: Held, lost: Lost) -> str:
    """One line about ``lost``, and how to go on."""
    return (
        f"batches {lost.first} to {lost.last} of spool {wanted.spool} at broker {wanted.broker} "
        "were dropped before they were read: set failOnDataLoss to false to go on without them"
    )
