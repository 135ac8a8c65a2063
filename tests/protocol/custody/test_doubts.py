"""A chain that a lie moved is put right by its origin's own word."""

from pathlib import Path

import pytest

from federator.protocol.custody.doubts import (
    ASK_GAP_MS,
    BURST,
    CHAINS_MAX,
    ORIGINS_MAX,
    TRIES_MAX,
    Doubted,
    Doubts,
)
from federator.protocol.custody.receiver import Receiver
from federator.protocol.types import BrokerId, Millis, Now
from tests.protocol.custody.frames import placed, tail
from tests.transcripts import play, scenes

ORIGIN, HONEST, LIAR = BrokerId(1), BrokerId(2), BrokerId(9)
EPOCH, KEY, OTHER = 7, b"aaaaaaaa", b"bbbbbbbb"
KEYS = {"a": KEY, "b": OTHER}
ABSURD = 2**62


class Stage:
    """An origin with one chain without holes, and a receiver that hears it and a liar.

    ``arrive 13:0``: number 13 with 0 before it on the chain a; ``12:b11,a0`` on two chains;
    ``--liar`` brings it, ``--repeated`` is a copy, ``--epoch=99``. Prints what is delivered
    (``!`` from the liar), what the origin calls lies and who brought them, and how many gaps are
    left. ``answer`` answers all questions, ``settle`` all requests, too.
    """

    def __init__(self):
        self.receiver = Receiver(keep_ms=60_000)
        self.receiver.want(KEY, since_us=0)
        self.made = self.gone = 0
        self.delivered = []
        self.lies = []
        self.now = Now(Millis(1_000_000), 100_000_000)

    def do(self, command, *words):
        gaps = self.receiver.gaps
        self.delivered.clear()
        self.lies.clear()
        yield from getattr(self, f"_{command}")(*words) or ()
        if self.delivered:
            yield "delivers " + " ".join(_ranges(self.delivered))
        yield from (f"lie {lie.number} by {lie.brought_by}" for lie in self.lies)
        if self.receiver.gaps != gaps:
            yield f"gaps {self.receiver.gaps}"

    def _arrive(self, which, *how):
        number, _, rest = which.partition(":")
        links = {KEYS.get(each[0], KEY): int(each.lstrip("ab")) for each in rest.split(",")}
        epoch = next((int(each[8:]) for each in how if each.startswith("--epoch=")), EPOCH)
        by = LIAR if "--liar" in how else HONEST
        came = placed(ORIGIN, epoch, int(number), links, made_us=self.now.us, by=by)
        first = "--repeated" not in how
        self.delivered += self.receiver.arrive(came, self.now, first=first)

    def _skip(self, through, *how):
        by = LIAR if "--liar" in how else HONEST
        gone = placed(ORIGIN, EPOCH, int(through), {KEY: 0}, made_us=0, by=by)
        self.delivered += self.receiver.skip(gone.frame, self.now.ms)

    def _make(self, count):
        for _ in range(int(count)):
            self.made += 1
            self._arrive(f"{self.made}:{self.made - 1}")

    def _made(self, number):
        """The origin made these, and nothing of them came."""
        self.made = int(number)

    def _gone(self, number):
        self.made = self.gone = int(number)

    def _tail(self, head):
        self.receiver.tail(tail(ORIGIN, EPOCH, {KEY: int(head)}, made_us=1), self.now)

    def _restore(self, number):
        """What the journal of an earlier life says of the chain."""
        self.receiver.restore({(ORIGIN, KEY): (EPOCH, int(number))}, now_ms=self.now.ms)

    def _wants(self, key):
        self.receiver.want(KEYS[key], since_us=0)

    def _unwants(self, key):
        self.receiver.unwant(KEYS[key])

    def _hasten(self):
        self.receiver.hasten(self.now.ms)

    def _answer(self, number=None):
        """``number``: what the origin says comes before what is doubted."""
        for question in self.receiver.doubts.questions(self.now):
            upto = self.made if number is None else int(number)
            through = {k: max(min(after, upto), self.gone) for k, after, _ in question.chains}
            word = placed(ORIGIN, EPOCH, self.made, through, made_us=self.now.us)
            self.lies += self.receiver.on_word(word, self.now)

    def _asks(self):
        for ask in self.receiver.asks(self.now.ms):
            for _, after, since_us in ask.chains:
                back_us = self.now.us - since_us
                yield f"asked after {after}" + (f", {back_us / 1e6:g} s back" if since_us else "")

    def _settle(self):
        for _ in range(20):
            self._later(ASK_GAP_MS)
            self._answer()
            for ask in self.receiver.asks(self.now.ms):
                if ask.chains[0].not_before_us:
                    self._skip(0)
                for seq in range(ask.chains[0].after + 1, self.made + 1):
                    self._arrive(f"{seq}:{seq - 1}", "--repeated")

    def _later(self, ms):
        self.now = Now(Millis(self.now.ms + int(ms)), self.now.us + int(ms) * 1_000)


def _ranges(delivered):
    """``1-3 5!``: numbers in the order of their delivery."""
    runs = []
    for each in delivered:
        number, lie = each.frame.seq, "!" * (each.frame.sender == LIAR)
        if runs and (runs[-1][1] + 1, runs[-1][2]) == (number, lie):
            runs[-1][1] = number
        else:
            runs.append([number, number, lie])
    return [f"{a}{lie}" if a == b else f"{a}-{b}{lie}" for a, b, lie in runs]


@scenes(Path(__file__).parent / "doubts.txt")
def test_transcript(path, number):
    play(path, number, Stage())


def test_questions_are_bounded_in_rate_and_in_number():
    doubts = Doubts()
    asked = 0
    for ms in range(10_000):
        doubts.doubt(ORIGIN, KEY, Doubted(ms, LIAR), now_ms=Millis(ms))
        asked += len(doubts.questions(Now(Millis(ms), ms)))
    for origin in range(2 * ORIGINS_MAX):
        doubts.doubt(BrokerId(origin), KEY, Doubted(1, LIAR), now_ms=Millis(10_000))

    assert asked <= 10_000 / ASK_GAP_MS + BURST
    assert len(doubts.questions(Now(Millis(20_000), 1))) <= ORIGINS_MAX


@pytest.mark.parametrize("answered", [False, True])
def test_ever_new_doubts_are_asked_about_at_once_and_then_four_times_a_second(answered):
    doubts = Doubts()
    asked = []
    for ms in range(0, 10_000, 10):
        doubts.doubt(ORIGIN, ms.to_bytes(8), Doubted(ms, LIAR), now_ms=Millis(ms))
        for question in doubts.questions(Now(Millis(ms), ms)):
            asked.append(ms)
            if answered:
                doubts.answered(question.origin)

    assert asked[:BURST] == [0, 10, 20, 30]
    assert len(asked) <= 10_000 / ASK_GAP_MS + BURST


def test_an_answer_counts_however_long_it_takes_while_nothing_else_is_doubted():
    doubts = Doubts()
    questions = []
    for ms in range(1_000):
        doubts.doubt(ORIGIN, KEY, Doubted(1, LIAR), now_ms=Millis(ms))
        questions += doubts.questions(Now(Millis(ms), 1_000 * ms))

    assert len(questions) > 1
    assert doubts.is_open(ORIGIN, questions[0].asked_us)


TURNS = 400


def test_a_restart_of_many_chains_asks_seldom_and_fetches_nothing():
    receiver = Receiver()
    now = Now(Millis(1_000_000), 100_000_000)
    keys = [n.to_bytes(8) for n in range(200)]
    numbers = {key: [1_000 * step + at + 1 for step in range(10)] for at, key in enumerate(keys)}
    receiver.restore(
        {(ORIGIN, k): (EPOCH, n[8], *n[:8]) for k, n in numbers.items()}, now_ms=now.ms
    )

    questions = 0
    for turn in range(TURNS):
        now = Now(Millis(now.ms + 20), now.us + 20_000)
        for key in keys:
            receiver.want(key, since_us=0)
            came = placed(ORIGIN, EPOCH, numbers[key][9], {key: numbers[key][8]}, made_us=now.us)
            assert len(receiver.arrive(came, now)) == (turn == 0)
        for question in receiver.doubts.questions(now):
            questions += 1
            word = {
                key: max(n for n in numbers[key] if n <= upto) for key, upto, _ in question.chains
            }
            assert len(word) <= CHAINS_MAX
            assert receiver.on_word(placed(ORIGIN, EPOCH, 10_000, word, made_us=now.us), now) == []

    assert 10 < questions <= TURNS * 20 / ASK_GAP_MS + BURST
    assert not receiver.asked


def test_a_question_that_nobody_answers_ends():
    doubts = Doubts()
    doubts.doubt(ORIGIN, KEY, Doubted(1, LIAR), now_ms=Millis(0))

    asked = 0
    while (due_ms := doubts.next_deadline_ms()) is not None:
        asked += len(doubts.questions(Now(due_ms, 1)))

    assert asked == TRIES_MAX
