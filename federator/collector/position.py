"""How far one spool is: what is landed, what is taken, what to ask next.

Batches are taken strictly in order, like the offsets of a Kafka consumer. There is one question at
a time, for a window of batches; what does not continue where we are is dropped, for it will be
asked again. So three numbers tell everything: landed through, taken through, the end of the
question. A head says what may be asked; only an answer moves anything, for answers carry our token.

The window doubles with each question that is answered whole and halves with each that is not, down
to one batch. One batch that is answered wrongly again and again is lost, and landed as a gap; a
question without any answer is asked for ever, more and more slowly.

Source: docs/collector.md, "How it reads".
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from federator.collector.pieces import SKIPPED, OpenPiece, Piece, Reason, SpoolKey, gap
from federator.collector.words import Batch, read_batches
from federator.errors import DecodeError
from federator.protocol.metric_records import Again, Head
from federator.protocol.types import Millis

PIECES_MAX: Final = 4
"""Pieces that wait to be landed while more is asked: a disk that is slow or full stops asking."""

_DOUBLINGS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class ReadingParameters:
    """How to read and when to land.

    Attributes:
        federation: Its name, for the records of gaps.
        window_max: Batches of one question.
        answer_ms: Silence after which a question is asked again.
        retry_ms: The first wait before a question that was not answered well is asked again,
        retry_max_ms: and the longest, of those not answered at all.
        refusals_max: Wrong answers about one batch until it is given up.
        rotate_bytes: A file is landed when it has as many,
        rotate_ms: or has been open for so long.
        land_retry_ms: Wait after the disk failed.
    """

    federation: str
    window_max: int = 1_024
    answer_ms: Millis = Millis(5_000)
    retry_ms: Millis = Millis(200)
    retry_max_ms: Millis = Millis(10_000)
    refusals_max: int = 5
    rotate_bytes: int = 8_388_608
    rotate_ms: Millis = Millis(10_000)
    land_retry_ms: Millis = Millis(1_000)


@dataclass(slots=True)
class PositionCounters:
    """What happened to one spool.

    Attributes:
        asked: Questions.
        unanswered: Questions that were not answered to their end in time.
        stray: Answers that nobody asked for, or that came twice.
        landed_bytes: Of landed files,
        landed_files: and their number.
        lost: Batches landed as gaps.
        skipped: Numbers of no batch.
    """

    asked: int = 0
    unanswered: int = 0
    stray: int = 0
    landed_bytes: int = 0
    landed_files: int = 0
    lost: int = 0
    skipped: int = 0


@dataclass(slots=True)
class _Question:
    """``broken``: an answer was missing or wrong, so the rest of its answers is of no use."""

    first: int
    last: int
    heard_ms: Millis
    broken: Reason | None = None


class Position:
    """One spool.

    Args:
        key: Whose.
        landed: The last batch whose file is landed; 0 when none is.
        parameters: How to read.

    Attributes:
        landed: As the argument, now.
        taken: The last batch in memory or landed.
        head_first: The oldest batch it holds, by its agent's last word.
        head_last: The newest, likewise.
        bytes: In memory.
    """

    def __init__(self, key: SpoolKey, landed: int, parameters: ReadingParameters) -> None:
        self.key = key
        self.landed = self.taken = landed
        self.head_first, self.head_last = 1, 0
        self.bytes = 0
        self.counters = PositionCounters()
        self._parameters = parameters
        self._question: _Question | None = None
        self._ask_at_ms = Millis(0)
        self._window = 1
        self._failures = 0
        self._refusals = 0
        self._epoch = 0
        self._held_last = 0  # that an answer told of: proven, other than a head
        self._open: OpenPiece | None = None
        self._closed: deque[Piece] = deque()
        self._landing = False
        self._land_at_ms = Millis(0)

    # -- what is known ---------------------------------------------------------------------------

    @property
    def lag(self) -> int:
        """Batches that the spool has and we have not landed."""
        return max(0, self.head_last - max(self.landed, self.head_first - 1))

    @property
    def begun(self) -> bool:
        """Whether anything of it was ever taken."""
        return self.taken > 0

    @property
    def settled(self) -> bool:
        """Whether nothing is in memory."""
        return self._open is None and not self._closed

    # -- asking ----------------------------------------------------------------------------------

    def on_head(self, head: Head) -> None:
        """The agent says what it holds. Not proven: heads carry no token."""
        self.head_first, self.head_last = head.first, head.last

    def forget_question(self) -> None:
        """The connection ended: what was asked on it is not answered any more."""
        self._question = None
        self._ask_at_ms = Millis(0)

    def question(self, *, now_ms: Millis) -> tuple[int, int] | None:
        """What to ask now: the first and last batch wanted. It counts as asked."""
        if self._question is not None:
            if now_ms - self._question.heard_ms < self._parameters.answer_ms:
                return None
            self._go_unanswered(now_ms)
        if now_ms < self._ask_at_ms or self.head_last <= self.taken:
            return None
        if len(self._closed) >= PIECES_MAX:
            return None
        first = self.taken + 1
        # When the oldest are gone the question reaches what is there, so that there is an answer.
        last = min(self.head_last, max(first, self.head_first) + self._window - 1)
        self._question = _Question(first, last, now_ms)
        self.counters.asked += 1
        return first, last

    def break_off(self, *, now_ms: Millis) -> None:
        """There is no room for answers: ask again later."""
        self._question = None
        self._ask_at_ms = Millis(now_ms + self._parameters.retry_ms)

    def _go_unanswered(self, now_ms: Millis) -> None:
        self._question = None
        self.counters.unanswered += 1
        self._window = max(1, self._window // 2)
        wait_ms = self._parameters.retry_ms << min(self._failures, _DOUBLINGS_MAX)
        self._failures += 1
        self._ask_at_ms = Millis(now_ms + min(wait_ms, self._parameters.retry_max_ms))

    # -- hearing ---------------------------------------------------------------------------------

    def on_answer(self, again: Again, lines: bytes, *, now_ms: Millis, wall_us: int) -> None:
        """Take what continues where we are.

        Raises:
            DecodeError: The lines are not those of the spool; nothing of them counts.
        """
        question = self._question
        if question is None:
            self.counters.stray += 1
            return
        empty = again.batch_last < again.batch_first
        if not empty and not (self.taken < again.batch_last and again.batch_first <= question.last):
            self.counters.stray += 1
            return
        question.heard_ms = now_ms
        self._failures = 0
        self.head_first, self.head_last = again.held_first, again.held_last
        if again.held_first > self.taken + 1:
            self._pass_over(again.held_first - 1, "dropped by the spool", wall_us)
        if again.held_last < again.held_first and self._held_last > self.taken:
            self._pass_over(self._held_last, "spool replaced", wall_us)
        self._held_last = max(self._held_last, again.held_last)
        failure = None if empty else self._take(question, again, lines, now_ms, wall_us)
        if empty or again.batch_last >= min(question.last, again.held_last):
            self._end_question(question, again, now_ms=now_ms, wall_us=wall_us)
        if failure is not None:
            raise failure

    def _take(
        self, question: _Question, again: Again, lines: bytes, now_ms: Millis, wall_us: int
    ) -> DecodeError | None:
        if question.broken is not None or again.batch_first > self.taken + 1:
            question.broken = question.broken or "not given"
            return None
        try:
            batches = read_batches(lines, again, broker=self.key[0])
        except DecodeError as error:
            question.broken = "unreadable"
            return error
        through = min(again.batch_last, question.last)
        for batch in batches:
            if self.taken < batch.number <= through:
                if batch.number > self.taken + 1:
                    self._pass_over(batch.number - 1, SKIPPED, wall_us)
                self._add(batch, now_ms)
        if self.taken < through:
            self._pass_over(through, SKIPPED, wall_us)
        self._refusals = 0
        return None

    def _end_question(
        self, question: _Question, again: Again, *, now_ms: Millis, wall_us: int
    ) -> None:
        """The last answer to ``question`` came."""
        self._question = None
        if self.taken >= min(question.last, again.held_last):
            self._ask_at_ms = Millis(0)
            self._window = min(2 * self._window, self._parameters.window_max)
            return
        self._window = max(1, self._window // 2)
        self._ask_at_ms = Millis(now_ms + self._parameters.retry_ms)
        if question.first == question.last == self.taken + 1:
            self._refusals += 1
            if self._refusals >= self._parameters.refusals_max:
                self._refusals = 0
                self._pass_over(self.taken + 1, question.broken or "not given", wall_us)

    # -- collecting ------------------------------------------------------------------------------

    def _add(self, batch: Batch, now_ms: Millis) -> None:
        self.taken = batch.number
        self.bytes += len(batch.lines)
        self._epoch = batch.epoch
        if self._open is not None and self._open.takes(batch):
            self._open.add(batch)
        else:
            self._close()
            self._open = OpenPiece(batch, now_ms=now_ms)
        if self._open.bytes >= self._parameters.rotate_bytes:
            self._close()

    def _pass_over(self, last: int, reason: Reason, wall_us: int) -> None:
        self._close()
        first, self.taken = self.taken + 1, last
        piece = gap(
            self.key,
            first=first,
            last=last,
            reason=reason,
            federation=self._parameters.federation,
            epoch=self._epoch,
            wall_us=wall_us,
        )
        self.bytes += piece.bytes
        self._closed.append(piece)

    def _close(self) -> None:
        if self._open is not None:
            self._closed.append(self._open.close(self.key))
            self._open = None

    # -- landing ---------------------------------------------------------------------------------

    def to_land(self, *, now_ms: Millis, all_: bool = False) -> Piece | None:
        """The next piece to land, if one is due; then ``on_landed`` or ``on_land_failed`` follows.

        Args:
            now_ms: The time.
            all_: Due is everything in memory.
        """
        if self._open is not None:
            old = now_ms - self._open.opened_ms >= self._parameters.rotate_ms
            if all_ or old:
                self._close()
        if not self._closed or self._landing or now_ms < self._land_at_ms:
            return None
        self._landing = True
        return self._closed[0]

    def on_landed(self) -> None:
        """The piece that ``to_land`` gave is in its place."""
        self._landing = False
        piece = self._closed.popleft()
        self.bytes -= piece.bytes
        self.landed = piece.last
        self.counters.landed_bytes += piece.bytes
        self.counters.landed_files += 1
        if piece.gap == SKIPPED:
            self.counters.skipped += piece.batches
        elif piece.gap is not None:
            self.counters.lost += piece.batches

    def on_land_failed(self, *, now_ms: Millis) -> None:
        """It is not: it will be given again."""
        self._landing = False
        self._land_at_ms = Millis(now_ms + self._parameters.land_retry_ms)
