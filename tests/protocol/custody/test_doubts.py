"""A chain that a lie moved is put right by its origin's own word."""

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

ORIGIN, HONEST, LIAR = BrokerId(1), BrokerId(2), BrokerId(9)
EPOCH, KEY = 7, b"aaaaaaaa"
ABSURD = 2**62


class World:
    """An origin with one chain without holes, and a receiver that hears it and a liar."""

    def __init__(self):
        self.receiver = Receiver()
        self.receiver.want(KEY, since_us=0)
        self.made = self.gone = 0
        self.delivered = []
        self.now = Now(Millis(1_000_000), 100_000_000)

    def arrive(self, seq, prev, *, by=HONEST, epoch=EPOCH, first=True):
        came = placed(ORIGIN, epoch, seq, {KEY: prev}, made_us=self.now.us, by=by)
        self.delivered += self.receiver.arrive(came, self.now, first=first)

    def skip(self, through, *, by=HONEST):
        gone = placed(ORIGIN, EPOCH, through, {KEY: 0}, made_us=0, by=by)
        self.delivered += self.receiver.skip(gone.frame, self.now.ms)

    def make(self, count=1):
        for _ in range(count):
            self.made += 1
            self.arrive(self.made, self.made - 1)

    def settle(self):
        """Let all questions and requests be answered; what the origin called lies."""
        lies = []
        for _ in range(20):
            self.now = Now(Millis(self.now.ms + ASK_GAP_MS), self.now.us + ASK_GAP_MS * 1_000)
            for question in self.receiver.doubts.questions(self.now):
                through = {
                    k: max(min(after, self.made), self.gone) for k, after, _ in question.chains
                }
                word = placed(ORIGIN, EPOCH, self.made, through, made_us=self.now.us)
                lies += self.receiver.on_word(word, self.now)
            for ask in self.receiver.asks(self.now.ms):
                if ask.chains[0].not_before_us:
                    self.skip(0)
                for seq in range(ask.chains[0].after + 1, self.made + 1):
                    self.arrive(seq, seq - 1, first=False)
        return lies

    @property
    def honest(self):
        return [each.frame.seq for each in self.delivered if each.frame.sender == HONEST]


@pytest.mark.parametrize("number", [13, 100, 2**33, ABSURD, 2**64 - 1])
def test_a_number_out_of_turn_loses_nothing_once_the_origin_was_asked(number):
    world = World()
    world.make(10)

    world.arrive(number, 0, by=LIAR)
    world.make(10)
    world.settle()
    world.make(5)
    world.settle()

    assert sorted(set(world.honest) | {number}) == sorted({*range(1, 26), number})
    assert not world.receiver.gaps


def test_the_liar_is_named():
    world = World()
    world.make(10)

    world.arrive(500, 0, by=LIAR)
    world.make()

    assert {lie.brought_by for lie in world.settle()} == {LIAR}


def test_a_chain_that_was_poisoned_in_an_earlier_life_heals():
    world = World()
    world.made = 10
    world.receiver.restore({(ORIGIN, KEY): (EPOCH, ABSURD)}, now_ms=world.now.ms)

    world.make(10)
    world.settle()
    world.make(3)

    assert world.honest[-13:] == list(range(11, 24))


def test_a_tail_behind_the_chain_makes_it_ask():
    world = World()
    world.made = 10
    world.receiver.restore({(ORIGIN, KEY): (EPOCH, ABSURD)}, now_ms=world.now.ms)

    world.receiver.tail(tail(ORIGIN, EPOCH, {KEY: 10}, made_us=1), world.now)
    world.settle()
    world.make()

    assert world.honest[-1] == 11


def test_what_its_origin_has_no_more_is_no_lie_when_it_comes_after_all():
    world = World()
    world.make(10)
    world.made = world.gone = 14
    world.skip(14)
    world.make(2)

    world.arrive(12, 11)

    assert world.settle() == []
    assert world.honest == [*range(1, 11), 15, 16]


def test_a_frame_that_was_never_made_takes_no_chain_back():
    world = World()
    world.make(10)
    world.made = 20
    world.arrive(21, 10)  # on this chain the next one: those between are of others

    world.arrive(15, 10, by=LIAR)
    world.now = Now(Millis(world.now.ms + ASK_GAP_MS), world.now.us)
    (question,) = world.receiver.doubts.questions(world.now)
    word = {key: 10 for key, _, _ in question.chains}
    lies = world.receiver.on_word(placed(ORIGIN, EPOCH, 21, word, made_us=1), world.now)

    assert lies == []
    assert not world.receiver.gaps


def test_strange_epochs_move_nothing():
    world = World()
    world.make(10)

    for epoch in range(EPOCH + 1, EPOCH + 100):
        world.arrive(1, 0, by=LIAR, epoch=epoch)
        world.make()
    world.settle()

    assert world.honest == list(range(1, 110))


def test_whoever_comes_first_with_a_strange_epoch_is_found_out():
    world = World()
    world.arrive(ABSURD, 0, by=LIAR, epoch=99)

    world.make(3)
    world.settle()
    world.make(3)
    world.settle()

    assert world.honest == list(range(1, 7))


def test_a_void_or_a_tail_from_nowhere_moves_nothing():
    world = World()
    world.make(10)

    world.skip(ABSURD, by=LIAR)
    world.receiver.tail(tail(ORIGIN, EPOCH, {KEY: ABSURD}, made_us=1), world.now)
    world.make(10)

    assert world.honest == list(range(1, 21))
    assert not world.receiver.gaps


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


def test_what_a_lie_hid_is_asked_for_as_soon_as_its_origin_answered():
    world = World()
    world.make(10)
    world.arrive(13, 0, by=LIAR)
    world.make()
    (question,) = world.receiver.doubts.questions(world.now)

    through = {key: after for key, after, _ in question.chains}
    world.receiver.on_word(placed(ORIGIN, EPOCH, 11, through, made_us=1), world.now)

    (ask,) = world.receiver.asks(world.now.ms)
    assert ask.chains[0].after == 10


def test_what_a_lie_left_out_is_not_lost_with_the_way_that_it_would_have_come():
    world = World()
    world.make(10)
    world.arrive(13, 0, by=LIAR)
    world.made = 20  # down with the link

    world.receiver.hasten(world.now.ms)
    world.make()
    world.settle()

    assert set(world.honest) == set(range(1, 22))


def test_what_a_lie_hid_is_not_taken_as_delivered_on_other_chains_either():
    world = World()
    world.make(10)
    world.receiver.want(OTHER, since_us=0)
    world.arrive(13, 0, by=LIAR)
    both = [
        placed(ORIGIN, EPOCH, seq, {OTHER: seq - 1 if seq > 11 else 0, KEY: seq - 1}, made_us=1)
        for seq in (11, 12)
    ]
    for each in both:
        assert world.receiver.arrive(each, world.now, first=True) == []

    (question,) = world.receiver.doubts.questions(world.now)
    through = {key: after for key, after, _ in question.chains}
    world.receiver.on_word(placed(ORIGIN, EPOCH, 12, through, made_us=1), world.now)

    assert [world.receiver.arrive(each, world.now) for each in both] == [[each] for each in both]


OTHER = b"bbbbbbbb"
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


def test_a_chain_of_an_earlier_life_whose_clients_are_not_back_is_asked_for_from_far_back():
    receiver = Receiver(keep_ms=60_000)
    now = Now(Millis(1_000), 500_000_000)
    receiver.restore({(ORIGIN, KEY): (EPOCH, ABSURD)}, now_ms=now.ms)

    heads = {KEY: 10}
    receiver.tail(tail(ORIGIN, EPOCH, heads, made_us=1), now)
    assert receiver.doubts.questions(now)
    receiver.on_word(placed(ORIGIN, EPOCH, 10, heads, made_us=now.us), now)

    [ask] = receiver.asks(now.ms)
    assert ask.chains[0].not_before_us == now.us - 60_000_000
