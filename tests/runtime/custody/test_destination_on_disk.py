"""The destination's side of custody between a journal on disk and a recorded broker."""

import errno
import os
from itertools import count, pairwise
from pathlib import Path

import pytest

from federator.config.sections import CustodySettings
from federator.protocol.custody.destination import MARKER_WAIT_MS, Destination
from federator.protocol.custody.receiver import Receiver
from federator.protocol.forwarding.frames import CUSTODY_FLAG
from federator.protocol.types import Millis, Now
from federator.runtime.custody.stores import CustodyStores
from tests.protocol.frames import made_frame
from tests.transcripts import play, scenes

KEY = b"filter 1"
START_MS = Millis(100_000)
NOW_US = 1_000_000_000


class Broker:
    """Keeps what is published while it is ``reached``; ``marker`` is the retained one."""

    room = settled = True
    unsaved_stamps = ()

    def __init__(self):
        self.reached = True
        self.came = []
        self.bodies = []
        self.marker = None

    def deliver(self, frame, now):
        if self.reached:
            self.came.append(frame.seq)
            self.bodies.append(bytes(frame.body))

    def mark(self, marker, *, asks=False):
        if self.reached:
            self.marker = marker

    def tell(self, notice):
        assert notice.name == "custody.never_made", notice


class Lives:
    """One agent after another on one folder and one broker; ``kill`` ends one at any moment."""

    def __init__(self, folder):
        self.broker = Broker()
        self._folder = folder
        self._now_us = (NOW_US + n * 10_000_000 for n in count())
        self.begin()

    def begin(self):
        self.disk = CustodyStores(self._folder, CustodySettings())
        self.receiver = Receiver()
        self.agent = Destination(
            receiver=self.receiver,
            disk=self.disk,
            delivery=self.broker,
            outlet=self.broker,
            now_ms=START_MS,
        )
        self.agent.want(KEY, self.now())
        self.agent.on_local_up(START_MS)

    def now(self, now_ms=START_MS):
        return Now(now_ms, next(self._now_us))

    def kill(self):
        self.disk.close()
        self.begin()

    def settle(self, made):
        """The origin, which made the numbers ``made`` on the chain, answers all it is asked."""
        for now_ms in range(START_MS, START_MS + 8_000, 250):
            now = self.now(now_ms)
            for question in self.receiver.doubts.questions(now):
                ((_, upto, _),) = question.chains
                through = max((seq for seq in made if seq <= upto), default=0)
                self.agent.on_word(self.frame(made[-1], prev=through), now)
            for ask in self.receiver.asks(now_ms):
                assert not ask.chains[0].not_before_us, "asks for more than it needs"
                for prev, seq in pairwise([0, *made]):
                    if seq > ask.chains[0].after:
                        self.arrive(seq, prev=prev, now_ms=now_ms, first=False)

    def marker_comes(self):
        if self.broker.marker is not None:
            self.agent.on_marker(self.broker.marker)

    def arrive(self, seq, *, now_ms=START_MS, flush=True, first=True, **changes):
        self.agent.arrive(self.frame(seq, **changes), (0,), self.now(now_ms), first=first)
        if flush:
            self.agent.flush(self.now(now_ms))

    def frame(self, seq, *, prev=None, body=b"body", epoch=1):
        chain = (seq - 1 if prev is None else prev).to_bytes(8, "big")
        numbers = {"epoch": epoch, "seq": seq, "origin_time_us": NOW_US}
        return made_frame(origin=2, flags=CUSTODY_FLAG, keys=KEY, body=body, chain=chain, **numbers)


@pytest.fixture
def lives(tmp_path):
    return Lives(tmp_path)


class Stage:
    """One agent after another at one broker; prints the numbers that are published there.

    ``arrive 5:2`` is number 5 with 2 before it on its chain; ``--body=``, ``--epoch=``. In
    ``word 6:3`` its origin says what it made before the number that is doubted. ``kill`` begins
    the next life.
    """

    def __init__(self, folder):
        self.lives = Lives(folder)

    def do(self, command, *words):
        count = len(self.lives.broker.came)
        yield from getattr(self, f"_{command}")(*words) or ()
        if came := self.lives.broker.came[count:]:
            yield "publishes " + " ".join(map(str, came))

    def _arrive(self, *words, **how):
        options = dict(word[2:].split("=") for word in words if word.startswith("--"))
        body, epoch = options.get("body", "body").encode(), int(options.get("epoch", 1))
        for word in words[: len(words) - len(options)]:
            number, _, prev = word.partition(":")
            before = int(prev) if prev else None
            self.lives.arrive(int(number), prev=before, body=body, epoch=epoch, **how)

    def _arrive_late(self, number):
        """As long after our broker came up as we wait for the marker."""
        self._arrive(number, now_ms=Millis(START_MS + MARKER_WAIT_MS))

    def _enter(self, number):
        """It is entered in the journal, and its broker is not reached."""
        self._arrive(number, flush=False)
        self.lives.broker.reached = False
        self.lives.agent.flush(self.lives.now())
        self.lives.broker.reached = True

    def _word(self, word, *options):
        asked = [q.chains[0].after for q in self.lives.receiver.doubts.questions(self.lives.now())]
        number, _, prev = word.partition(":")
        epoch = next((int(option[8:]) for option in options), 1)
        frame = self.lives.frame(int(number), prev=int(prev), epoch=epoch)
        self.lives.agent.on_word(frame, self.lives.now())
        yield f"asked about {' '.join(map(str, asked))}"

    def _kill(self):
        self.lives.kill()

    def _marker_comes(self):
        self.lives.marker_comes()

    def _marker_is_lost(self):
        self.lives.broker.marker = None

    def _broker_is_back(self):
        self.lives.agent.on_local_up(START_MS)
        yield "marker" if self.lives.broker.marker is not None else "no marker"

    def _state(self):
        yield "started" if self.lives.agent.started else "not started"


@scenes(Path(__file__).parent / "destination.txt")
def test_transcript(tmp_path, path, number):
    play(path, number, Stage(tmp_path))


def test_since_when_our_clients_want_what_is_known_after_a_kill_before_the_first_frame(lives):
    since_us = lives.receiver.since_us[KEY]
    lives.agent.save()

    lives.kill()
    assert lives.receiver.since_us[KEY] == since_us

    lives.agent.save()
    lives.kill()
    assert lives.receiver.since_us[KEY] == since_us


def test_what_came_while_the_disk_was_full_and_after_it_comes_once(lives, monkeypatch):
    lives.arrive(1)
    lives.agent.save()
    with monkeypatch.context() as full:
        full.setattr(lives.disk.journal, "append", no_space)
        lives.arrive(2)
    lives.arrive(3)
    lives.agent.save()

    lives.kill()
    lives.marker_comes()
    lives.arrive(4)
    lives.settle([1, 2, 3, 4])

    assert lives.broker.came == [1, 2, 3, 4]


def no_space(deliveries):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def true_numbers_that_came(lives):
    return {
        n for n, body in zip(lives.broker.came, lives.broker.bodies, strict=True) if body != LIE
    }


LIE = b"lie"


@pytest.mark.parametrize("apart", [1, 3], ids=["dense", "with others between"])
@pytest.mark.parametrize("after_the_lie", [0, 3])
@pytest.mark.parametrize("lies", [(14,), (17, 20), (200,)])
@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("kills", [1, 2])
def test_a_kill_between_a_lie_and_its_origins_word_loses_nothing(
    lives, apart, after_the_lie, lies, folds, kills
):
    """``lies`` name numbers beyond the tenth that was made, which is the last before them."""
    made = [apart * n for n in range(1, 31)]
    for prev, seq in pairwise([0, *made[:10]]):
        lives.arrive(seq, prev=prev)
    for number in lies:
        lives.arrive(number + made[9] - 10, prev=0, body=LIE)
    for at in range(13, 13 + after_the_lie):  # those between are on their way, and go down with us
        lives.arrive(made[at], prev=made[at - 1])
    if folds:
        lives.agent.save(leaving=True)

    for kill in range(kills):
        lives.kill()
        lives.marker_comes()
        lives.arrive(made[20 + kill], prev=made[19 + kill])
    lives.settle(made[:25])
    lives.arrive(made[25], prev=made[24])
    lives.settle(made[:26])

    assert true_numbers_that_came(lives) >= set(made[:26])


def test_what_the_origin_had_no_more_is_no_doubt_in_the_next_life(tmp_path):
    lives = Lives(tmp_path)
    lives.broker.tell = lambda notice: None
    lives.arrive(1)
    lives.arrive(6)
    gone = lives.frame(5)
    gone.chain = bytes(8)
    lives.agent.on_void(gone, START_MS)
    lives.agent.flush(lives.now())
    assert lives.broker.came == [1, 6]

    lives.kill()
    lives.marker_comes()
    lives.arrive(7)
    for now_ms in range(START_MS, START_MS + 8_000, 250):
        now = lives.now(now_ms)
        for question in lives.receiver.doubts.questions(now):
            ((_, upto, _),) = question.chains
            kept = [seq for seq in (6, 7) if seq <= upto]
            lives.agent.on_word(lives.frame(7, prev=max(kept, default=5)), now)
        assert not lives.receiver.asks(now_ms)

    assert lives.broker.came == [1, 6, 7]
