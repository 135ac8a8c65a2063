"""Reads one agent's spool over MQTT: what to request next, and what of an answer to accept.

Batches are accepted strictly in order, like the offsets of a Kafka consumer. One request is open at
a time, for a window of batches; what does not continue the accepted batches is dropped, because it
will be requested again. A head tells which batches may be requested; only an answer advances the
reader, because answers carry the reader's token.

The window doubles with each request that is answered completely and halves with each that is not,
down to one batch. One batch that is answered wrongly again and again is missing; a request without
any answer is repeated for ever, more and more slowly.

The lines of records stay bytes, as received; only the fields that show their spool and position are
parsed. An unknown table, or a newer version of one, is accepted like any other.

Source: docs/metrics.md, "Replay"; docs/collector.md, "How it reads".
"""

from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from federator.errors import DecodeError
from federator.protocol.messages.fields import decoded
from federator.protocol.telemetry.records import LINE_BYTES_MAX, Id, Natural, Positive, Signed
from federator.protocol.telemetry.replay import Again, decode_again, digest_of
from federator.protocol.types import BrokerId, Millis

_DOUBLINGS_MAX: Final = 16

Reason = Literal[
    "dropped by the spool", "unreadable", "not given", "spool replaced", "not in the spool"
]
"""Why batches are missing. ``dropped by the spool``: it is bounded, and they were its oldest.
``unreadable``: the agent's answers are no records. ``not given``: the agent claims to have them,
but answers without. ``spool replaced``: the agent starts another, because its disk was lost. ``not
in the spool``: the agent has no batches with these numbers, but with others: it skips some numbers
when its machine restarted, so this alone is no loss."""

SKIPPED: Final[Reason] = "not in the spool"


class _Line(msgspec.Struct, frozen=True):
    """The parsed fields of a record."""

    broker: Id
    spool: str
    batch: Positive
    row: Natural
    at_us: Signed
    epoch: Natural = 0


_line: Final = msgspec.json.Decoder(_Line)


class Batch(msgspec.Struct, frozen=True):
    """The records of one flush, as bytes."""

    number: int  # its number in the spool
    at_us: int  # of its first record: wall clock, microseconds since 1970
    epoch: int  # of its first record
    lines: bytes  # whole lines, each with its newline


class Missing(msgspec.Struct, frozen=True):
    """Batches ``first`` to ``last`` are skipped: none of them can be read."""

    first: int
    last: int
    reason: Reason


@dataclass(slots=True)
class Taken:
    """The result of one answer."""

    # What follows the accepted batches, without a gap.
    found: list[Batch | Missing] = field(default_factory=list)
    # Why the answer's lines are not those of the spool; then none of them counts.
    fault: DecodeError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The pace of requests: how much is requested at once, and when again."""

    window_first: int = 1  # batches of the first request,
    window_max: int = 1_024  # and of any
    answer_ms: Millis = Millis(5_000)  # silence after which a request is repeated
    # The first wait before a request that failed is repeated,
    retry_ms: Millis = Millis(200)
    retry_max_ms: Millis = Millis(10_000)  # and the longest, without any answer
    # Wrong answers about one batch until it is given up; ``None``: never.
    refusals_max: int | None = 5


@dataclass(slots=True)
class _Question:
    """``broken``: an answer was missing or wrong, so the rest of the answers is useless."""

    first: int
    last: int
    heard_ms: Millis
    broken: Reason | None = None


@dataclass(eq=False)
class SpoolReader:
    """The reader of one spool."""

    broker: BrokerId
    taken: int  # the last batch accepted, skipped, or not wanted; 0 when all are wanted
    pace: Pace
    head_first: int = 1  # the oldest batch in the spool, as last reported by its agent
    head_last: int = 0  # the newest, likewise
    asked: int = 0  # requests
    unanswered: int = 0  # requests without a complete answer in time
    stray: int = 0  # answers without a request, or duplicates

    def __post_init__(self) -> None:
        self._question: _Question | None = None
        self._ask_at_ms = Millis(0)
        self._window = self.pace.window_first
        self._failures = 0
        self._refusals = 0
        self._held_last = 0  # reported by an answer: authenticated, other than a head

    # -- requests ---------------------------------------------------------------------------------

    def on_head(self, first: int, last: int) -> None:
        """Store which batches a head reports. Unless it is signed, any client can forge it."""
        self.head_first, self.head_last = first, last

    def forget_question(self) -> None:
        """Drop the open request: its connection ended, so no answer will come."""
        self._question = None
        self._ask_at_ms = Millis(0)

    def break_off(self, *, now_ms: Millis) -> None:
        """Drop the open request for lack of room; it is repeated later."""
        self._question = None
        self._ask_at_ms = Millis(now_ms + self.pace.retry_ms)

    def question(self, *, now_ms: Millis, room: bool = True) -> tuple[int, int] | None:
        """The first and last batch to request now, if any; the request counts as sent.

        Args:
            room: Whether there is room for more; without it no new request is made.
        """
        if self._question is not None:
            if now_ms - self._question.heard_ms < self.pace.answer_ms:
                return None
            self._go_unanswered(now_ms)
        if now_ms < self._ask_at_ms or self.head_last <= self.taken or not room:
            return None
        first = self.taken + 1
        # If the oldest are gone, the request reaches present ones, so that there is an answer.
        last = min(self.head_last, max(first, self.head_first) + self._window - 1)
        self._question = _Question(first, last, now_ms)
        self.asked += 1
        return first, last

    def _go_unanswered(self, now_ms: Millis) -> None:
        self._question = None
        self.unanswered += 1
        self._window = max(1, self._window // 2)
        wait_ms = self.pace.retry_ms << min(self._failures, _DOUBLINGS_MAX)
        self._failures += 1
        self._ask_at_ms = Millis(now_ms + min(wait_ms, self.pace.retry_max_ms))

    # -- answers ----------------------------------------------------------------------------------

    def on_answer(self, again: Again, lines: bytes, *, now_ms: Millis) -> Taken:
        """Accept what continues the accepted batches.

        Args:
            again: The first line of an answer about this spool.
        """
        result = Taken()
        question = self._question
        if question is None:
            self.stray += 1
            return result
        empty = again.batch_last < again.batch_first
        if not empty and not (self.taken < again.batch_last and again.batch_first <= question.last):
            self.stray += 1
            return result
        question.heard_ms = now_ms
        self._failures = 0
        self.head_first, self.head_last = again.held_first, again.held_last
        if again.held_first > self.taken + 1:
            self._pass_over(again.held_first - 1, "dropped by the spool", result)
        if again.held_last < again.held_first and self._held_last > self.taken:
            self._pass_over(self._held_last, "spool replaced", result)
        self._held_last = max(self._held_last, again.held_last)
        if not empty:
            self._take(question, again, lines, result)
        if empty or again.batch_last >= min(question.last, again.held_last):
            self._end_question(question, again, result, now_ms=now_ms)
        return result

    def _take(self, question: _Question, again: Again, lines: bytes, outcome: Taken) -> None:
        if question.broken is not None or again.batch_first > self.taken + 1:
            question.broken = question.broken or "not given"
            return
        try:
            batches = read_batches(lines, again, broker=self.broker)
        except DecodeError as error:
            question.broken = "unreadable"
            outcome.fault = error
            return
        through = min(again.batch_last, question.last)
        for batch in batches:
            if self.taken < batch.number <= through:
                if batch.number > self.taken + 1:
                    self._pass_over(batch.number - 1, SKIPPED, outcome)
                self.taken = batch.number
                outcome.found.append(batch)
        if self.taken < through:
            self._pass_over(through, SKIPPED, outcome)
        self._refusals = 0

    def _end_question(
        self, question: _Question, again: Again, outcome: Taken, *, now_ms: Millis
    ) -> None:
        """Finish the request after the last answer to it has come."""
        self._question = None
        if self.taken >= min(question.last, again.held_last):
            self._ask_at_ms = Millis(0)
            self._window = min(2 * self._window, self.pace.window_max)
            return
        self._window = max(1, self._window // 2)
        self._ask_at_ms = Millis(now_ms + self.pace.retry_ms)
        if question.first == question.last == self.taken + 1:
            self._refusals += 1
            if self.pace.refusals_max is not None and self._refusals >= self.pace.refusals_max:
                self._refusals = 0
                self._pass_over(self.taken + 1, question.broken or "not given", outcome)

    def _pass_over(self, last: int, reason: Reason, outcome: Taken) -> None:
        outcome.found.append(Missing(self.taken + 1, last, reason))
        self.taken = last


def read_again(payload: bytes) -> tuple[Again, bytes]:
    """The first line of an answer, and the rest.

    Raises:
        DecodeError: The first line is malformed or contradicts itself, or its digest is wrong.
    """
    first, _, rest = payload.partition(b"\n")
    again = decode_again(first)
    if again.held_first > again.held_last + 1:
        raise DecodeError(f"again: holds {again.held_first} to {again.held_last}")
    if again.batch_first <= again.batch_last and again.batch_last > again.held_last:
        span = f"{again.batch_first} to {again.batch_last}"
        raise DecodeError(f"again: {span}, of {again.held_first} to {again.held_last} held")
    if again.digest is not msgspec.UNSET and again.digest != digest_of(rest):
        raise DecodeError("again: the lines are not those that it was made for")
    return again, rest


def read_batches(lines: bytes, again: Again, *, broker: BrokerId) -> list[Batch]:
    """The batches that follow the first line of an answer, ascending.

    Raises:
        DecodeError: A line is no record of ``broker``, of the spool and of a batch that the first
            line names, or its number is not greater than that of the line before; then nothing
            counts.
    """
    groups: list[tuple[_Line, list[bytes]]] = []  # of each batch the first record, and all lines
    last_row = -1
    for line in lines.splitlines(keepends=True):
        record = decoded(_line, "record", line, LINE_BYTES_MAX)
        if record.broker != broker or record.spool != again.spool:
            whose = f"{record.broker}-{record.spool[:16]!r}"
            raise DecodeError(f"record: of {whose}, {broker}-{again.spool} wanted")
        if not groups or record.batch != groups[-1][0].batch:
            least = groups[-1][0].batch + 1 if groups else again.batch_first
            if not least <= record.batch <= again.batch_last:
                span = f"{least} to {again.batch_last}"
                raise DecodeError(f"record: of batch {record.batch}, {span} wanted")
            groups.append((record, []))
            last_row = -1
        if record.row <= last_row:
            raise DecodeError(f"record: row {record.row} after {last_row} in {record.batch}")
        last_row = record.row
        groups[-1][1].append(line)
    return [
        Batch(first.batch, first.at_us, first.epoch, b"".join(kept).removesuffix(b"\n") + b"\n")
        for first, kept in groups
    ]
