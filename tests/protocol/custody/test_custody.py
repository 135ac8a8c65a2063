"""Origins and receivers through channels that lose, repeat and reorder."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.custody.chains import RETRY_MIN_MS, Placed
from federator.protocol.custody.origin import Tails, answer
from federator.protocol.custody.owed import Owed
from federator.protocol.custody.ports import Record
from federator.protocol.custody.receiver import Receiver
from federator.protocol.effects import FilterRoute
from federator.protocol.messages.control import AskedChain
from federator.protocol.types import BrokerId, Millis, Now
from tests.protocol.custody.archive import Archive, links
from tests.protocol.custody.frames import placed, tail

ORIGIN = BrokerId(1)
EPOCH = 7
NOW = Now(Millis(0), 1)
A, B, C = b"aaaaaaaa", b"bbbbbbbb", b"cccccccc"


class Reader:
    """A receiver, what it delivered, and how it gets repairs."""

    def __init__(self, archive: Archive, *wanted: bytes, since_us: int = 0, **bounds: int) -> None:
        self.receiver = Receiver(**bounds)
        self.archive = archive
        self.delivered: list[int] = []
        self.now_ms = Millis(1_000_000)
        for key in wanted:
            self.receiver.want(key, since_us=since_us)

    def take(self, frame: Record, *, room: bool = True) -> None:
        wanted = {k: prev for k, prev in links(frame).items() if self.receiver.wants(k)}
        if wanted:
            came = placed(ORIGIN, EPOCH, frame.seq, wanted, made_us=frame.time_us, body=frame.body)
            now = Now(self.now_ms, 10_000_000 + frame.time_us)
            self._note(self.receiver.arrive(came, now, room=room))

    def tail(self, *keys: bytes) -> None:
        heads = {key: self.archive.head(key) for key in keys}
        came = tail(ORIGIN, EPOCH, heads, made_us=100_000_000)
        self.receiver.tail(came, Now(self.now_ms, 110_000_000))

    def ask(self, keep: float = 1.0, rng: random.Random | None = None) -> int:
        """Let time pass until something is asked for, and answer it; how many chains were asked."""
        due_ms = self.receiver.next_deadline_ms()
        if due_ms is None:
            return 0
        self.now_ms = Millis(max(self.now_ms, due_ms))
        asked = 0
        for ask in self.receiver.asks(self.now_ms):
            asked += len(ask.chains)
            for repair in answer(self.archive, ask.chains, bytes_max=20, frames_max=8):
                if rng is not None and rng.random() > keep:
                    continue
                if repair.frame is not None:
                    self.take(self.archive.frames[repair.frame.seq - 1])
                else:
                    gone = placed(ORIGIN, EPOCH, repair.through, {repair.key: 0}, made_us=0)
                    self._note(self.receiver.skip(gone.frame, self.now_ms))
            self.receiver.answered(ORIGIN, now_ms=self.now_ms)
        return asked

    def settle(self) -> None:
        for _ in range(1_000):
            if not self.receiver.gaps:
                return
            self.ask()
        raise AssertionError("gaps never close")

    def _note(self, due: list[Placed]) -> None:
        self.delivered += [each.frame.seq for each in due]


def test_a_new_epoch_begins_anew_and_the_old_one_is_stale() -> None:
    receiver = Receiver()
    receiver.want(A, since_us=0)

    def arrive(epoch: int, seq: int, prev: int) -> list[bytes]:
        came = placed(ORIGIN, epoch, seq, {A: prev}, made_us=0, body=b"x")
        done = receiver.arrive(came, Now(Millis(0), 0))
        return [bytes(each.frame.body) for each in done]

    assert arrive(1, 1, 0) == [b"x"]
    assert arrive(2, 1, 0) == []
    [question] = receiver.doubts.questions(Now(Millis(0), 1))
    receiver.on_word(placed(ORIGIN, 2, 1, {question.chains[0].key: 1}, made_us=0), NOW)
    assert arrive(2, 1, 0) == [b"x"]
    assert arrive(1, 2, 1) == []


key_sets = st.sampled_from([(A,), (B,), (C,), (A, B), (B, C), (A, B, C)])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(key_sets, min_size=1, max_size=60),
    st.sets(st.sampled_from([A, B, C]), min_size=1),
    st.integers(0, 2**32),
    st.floats(0.1, 1.0),
    st.integers(0, 60),
)
def test_every_wanted_frame_comes_once_and_in_order_through_any_channel(
    made: list[tuple[bytes, ...]], wanted: set[bytes], seed: int, keep: float, held_bytes: int
) -> None:
    rng = random.Random(seed)
    archive = Archive()
    reader = Reader(archive, *sorted(wanted), held_bytes_max=held_bytes)
    on_their_way: list[Record] = []
    for keys in made:
        frame = archive.make(keys)
        on_their_way += [frame] * (0 if rng.random() > keep else rng.choice([1, 1, 2]))
        if rng.random() < 0.5 and on_their_way:
            reader.take(on_their_way.pop(rng.randrange(min(3, len(on_their_way)))))
        if rng.random() < 0.2:
            reader.ask(keep, rng)
    for frame in on_their_way:
        reader.take(frame)
    reader.tail(*sorted(wanted))
    reader.settle()

    expected = [f.seq for f in archive.frames if wanted & set(links(f))]
    for key in wanted:
        chain = [seq for seq in reader.delivered if key in links(archive.frames[seq - 1])]
        assert chain == sorted(chain)
    assert sorted(reader.delivered) == expected
    assert reader.receiver.held_bytes == 0


@given(
    made=st.lists(st.sampled_from([(A,), (B,), (A, B), (C,)]), min_size=1, max_size=40),
    sent=st.sets(st.integers(1, 40)),
    lost=st.sets(st.integers(1, 40)),
    since=st.integers(0, 40),
)
def test_of_what_an_origin_has_damaged_everybody_misses_that_alone(
    made: list[tuple[bytes, ...]], sent: set[int], lost: set[int], since: int
) -> None:
    archive = Archive(lost=lost)
    frames = [archive.make(keys, time_us=1_000_000 * at) for at, keys in enumerate(made, 1)]
    reader = Reader(archive, A, B, since_us=10_000_000 + 1_000_000 * since)

    for frame in frames:
        if frame.seq in sent:
            reader.take(frame)
    reader.tail(A, B)
    reader.settle()

    wanted = {f.seq for f in frames if f.seq >= max(1, since) and {A, B} & set(links(f))}
    assert len(reader.delivered) == len(set(reader.delivered))
    for key in (A, B):
        chain = [seq for seq in reader.delivered if key in links(archive.frames[seq - 1])]
        assert chain == sorted(chain)
    assert wanted - lost <= set(reader.delivered)


def test_answers_take_the_asked_chains_together_and_stop_at_the_bound() -> None:
    archive = Archive()
    for keys in [(A,), (B,), (A, B), (C,), (A,)]:
        archive.make(keys)
    asked = [AskedChain(A, 0, 0), AskedChain(B, 0, 0)]

    repairs = answer(archive, asked, bytes_max=3 * len(b"body"))
    assert [repair.frame.seq for repair in repairs if repair.frame] == [1, 2, 3]


def test_tails_follow_the_last_frame_ever_more_seldom_until_it_is_old() -> None:
    tails = Tails(keep_ms=60_000)
    for now in (0, 50, 90):
        tails.made(A, 1 + now, Millis(now))
    times = []
    while (due_ms := tails.next_deadline_ms()) is not None:
        if tails.due(due_ms):
            times.append(due_ms)

    assert times[:4] == [190, 590, 2_190, 8_590]
    assert all(b - a == 10_000 for a, b in itertools.pairwise(times[4:]))
    assert times[-1] <= 60_090
    assert list(tails) == []


def test_a_new_way_repeats_the_tail_at_once() -> None:
    tails = Tails(keep_ms=60_000)
    tails.made(A, 1, Millis(0))
    tails.due(Millis(100))
    tails.hasten(A, Millis(200))
    tails.hasten(B, Millis(200))

    assert tails.due(Millis(200)) == [(A, 1)]


def test_ways_that_move_again_and_again_add_no_tails() -> None:
    tails, times = Tails(keep_ms=100_000), []
    tails.made(A, 1, Millis(0))
    for now_ms in range(0, 60_000, 10):
        if 20_000 < now_ms < 30_000:  # a storm
            tails.hasten(A, Millis(now_ms))
        times += [now_ms for _ in tails.due(Millis(now_ms))]

    assert len([at for at in times if 20_000 < at <= 30_000]) == 25  # every 400 ms
    after = [at for at in times if at > 30_000]
    assert all(b - a >= 400 for a, b in itertools.pairwise(after))
    assert len([at for at in after if at > 40_000]) == 2


def test_a_chain_that_goes_on_while_its_tail_is_hastened_gets_the_new_tail() -> None:
    tails = Tails(keep_ms=60_000)
    tails.made(A, 1, Millis(0))
    tails.hasten(A, Millis(50))
    assert tails.due(Millis(50)) == [(A, 1)]

    tails.made(A, 2, Millis(60))

    assert tails.due(Millis(160)) == [(A, 2)]


@pytest.mark.parametrize("route", [None, FilterRoute(local=True, wanted=False, next_hops=())])
def test_a_filter_that_was_lost_stays_wanted_until_it_is_old(route: FilterRoute | None) -> None:
    owed = Owed(keep_ms=1_000)
    effective = owed.on_route("a/b", route, lost=True, now_ms=Millis(0))
    assert effective is not None
    assert effective.wanted
    assert effective.local == (route is not None)

    assert owed.expire(Millis(999)) == []
    assert owed.expire(Millis(1_000)) == [("a/b", route)]
    assert owed.effective("a/b", route) == route


COLLECTED = FilterRoute(False, True, (), (BrokerId(2),), collected=True)


def test_who_wanted_it_is_owed_it_while_only_a_collector_is_in_reach() -> None:
    owed = Owed(keep_ms=1_000)
    owed.owe("a/b", Millis(500), collected=True)

    left = owed.on_route("a/b", COLLECTED, lost=True, now_ms=Millis(0))

    assert left is not None
    assert not left.collected
    again = owed.on_route("a/b", None, lost=True, now_ms=Millis(10), collected=True)
    assert again is not None
    assert not again.collected, "what is owed to others stays owed to them"
    back = owed.on_route("a/b", COLLECTED, lost=False, now_ms=Millis(20))
    assert back is not None
    assert not back.collected
    assert owed.expire(Millis(1_010)) == [("a/b", COLLECTED)]
    assert owed.effective("a/b", COLLECTED) == COLLECTED


def test_a_filter_that_was_given_up_is_not_owed() -> None:
    owed = Owed(keep_ms=1_000)

    assert owed.on_route("a/b", None, lost=False, now_ms=Millis(0)) is None
    assert len(owed) == 0


@pytest.mark.parametrize("never_made", [False, True])
def test_a_gap_is_asked_for_while_other_chains_of_its_origin_flow(never_made: bool) -> None:
    receiver = Receiver()
    for key in (A, B):
        receiver.want(key, since_us=0)
    last = {A: 0, B: 0}
    asked: dict[bytes, int] = {}

    for seq in range(1, 200):
        now_ms = 20 * seq
        now = Now(Millis(now_ms), 10_000_000)
        if never_made and seq == 5:  # so nothing closes this one
            receiver.tail(tail(ORIGIN, EPOCH, {B: 10_000}, made_us=0), now)
        key = A if seq in (1, LOST, LOST + 1) else B
        if seq != LOST:
            came = placed(ORIGIN, EPOCH, seq, {key: last[key]}, made_us=0)
            receiver.arrive(came, now, first=True)
        last[key] = seq
        for ask in receiver.asks(now.ms):
            asked |= {chain.key: now_ms for chain in ask.chains if chain.key not in asked}

    assert asked[A] <= 20 * (LOST + 2) + RETRY_MIN_MS


LOST = 50
