"""What a destination tells a gateway, and what it publishes: together everything, nothing twice.

The origin is a real custody log that answers as an origin does; the journal is on disk.
"""

import pytest

from federator.config.sections import CustodySettings
from federator.protocol.custody.destination import Destination
from federator.protocol.custody.origin import answer
from federator.protocol.custody.receiver import Receiver
from federator.protocol.custody.retrieval import RETRIEVAL_MS, RETRIEVALS_MAX
from federator.protocol.forwarding.frames import (
    CUSTODY_FLAG,
    REPAIR_FLAG,
    TAIL_FLAG,
    VOID_FLAG,
    chain_bytes,
)
from federator.protocol.types import BrokerId, Millis, Now
from federator.runtime.custody.stores import CustodyStores
from tests.protocol.frames import made_frame
from tests.runtime.custody.custody_world import T0_US, add, key, open_log

ORIGIN = BrokerId(2)
FILTER = 7
OTHER = 8


class Broker:
    """What was published on it, by number."""

    room = settled = True
    unsaved_stamps = ()

    def __init__(self):
        self.came = []

    def deliver(self, frame, now):
        self.came.append(frame.seq)

    def mark(self, marker, *, asks=False):
        pass

    def tell(self, notice):
        raise AssertionError(notice)


class World:
    """An origin and a destination, ``ms`` after the beginning of both clocks.

    ``told_first``: what the gateway asked for is answered before what our clients lack.
    """

    def __init__(self, folder, *, told_first):
        self.told_first = told_first
        self.ms = 10_000
        self.log = open_log(folder)
        self.broker = Broker()
        self.receiver = Receiver()
        disk = CustodyStores(folder / "destination", CustodySettings())
        self.agent = Destination(self.receiver, disk, self.broker, self.broker, Millis(0))
        self.agent.on_local_up(Millis(0))
        self.told = []

    @property
    def now(self):
        return Now(Millis(self.ms), T0_US + self.ms * 1_000)

    def subscribe(self):
        self.agent.want(key(FILTER), self.now)

    def fetch(self, *, since_ms):
        since_us = T0_US + since_ms * 1_000
        told = []
        taken = self.agent.retrieve(
            [key(FILTER)], since_us, lambda frame: told.append(frame.seq), self.now
        )
        self.told = told
        return taken

    def publish(self, *, comes, filters=(FILTER,)):
        """One more of the origin's; whether the way leads here just now."""
        (record,) = add(self.log, filters, time_us=self.now.us)
        if comes:
            self._arrive(self._frame(record), first=True)
        self.ms += 10

    def fall_silent(self):
        """The origin repeats which was its last."""
        epoch = self.log.epoch.to_bytes(8, "big")
        tail = self._label(TAIL_FLAG, 1, key(FILTER), epoch)
        tail.chain = chain_bytes([self.log.head(key(FILTER))])
        self.agent.on_tail(tail, (0,), self.now)

    def repair(self):
        """Whatever is asked for is answered, for as long as somebody asks."""
        for _ in range(40):
            asks = self.receiver.asks(self.now.ms)
            for retrieval in self.agent.retrievals:
                asks += retrieval.asks(self.now.ms)
            for ask in reversed(asks) if self.told_first else asks:
                for part in answer(self.log, ask.chains, frames_max=3):
                    self._answered(part)
                self.receiver.answered(ORIGIN, now_ms=self.now.ms)
                for retrieval in self.agent.retrievals:
                    retrieval.receiver.answered(ORIGIN, now_ms=self.now.ms)
            self.ms += 50

    def _answered(self, part):
        if part.frame is not None:
            self._arrive(self._frame(part.frame, REPAIR_FLAG))
            return
        void = self._label(REPAIR_FLAG | VOID_FLAG, part.through, part.key, b"")
        void.chain = part.since_us.to_bytes(8, "big")
        self.agent.on_void(void, self.now.ms)
        self.agent.flush(self.now)

    def _arrive(self, frame, *, first=False):
        wanted = [at for at in range(frame.k) if frame.keys[8 * at : 8 * at + 8] == key(FILTER)]
        self.agent.arrive(frame, tuple(wanted), self.now, first=first)
        self.agent.flush(self.now)

    def _frame(self, record, flags=0):
        frame = self._label(flags, record.seq, record.keys, b"body %d" % record.seq)
        frame.chain, frame.origin_time_us = chain_bytes(record.prevs), record.time_us
        return frame

    def _label(self, flags, seq, keys, body):
        return made_frame(
            origin=ORIGIN,
            flags=CUSTODY_FLAG | flags,
            epoch=self.log.epoch,
            seq=seq,
            origin_time_us=self.now.us,
            keys=keys,
            body=body,
        )


@pytest.fixture(params=[False, True])
def world(tmp_path, request):
    return World(tmp_path, told_first=request.param)


def publish(world, count, **how):
    for _ in range(count):
        world.publish(**how)


def test_of_a_chain_that_was_followed_all_before_the_question_is_told(world):
    world.subscribe()
    publish(world, 4, comes=True)
    asked_ms = world.ms
    publish(world, 4, comes=True)  # delivered before the moved client had its subscription
    assert world.fetch(since_ms=asked_ms)
    publish(world, 3, comes=True)

    world.repair()

    assert world.told == [5, 6, 7, 8]
    assert world.broker.came == [*range(1, 12)]


def test_what_comes_on_a_chain_that_begins_later_comes_by_itself_from_the_question_on(world):
    """The way was lost with the dead broker, and found only some time after the question."""
    publish(world, 4, comes=False)
    death_ms = world.ms
    publish(world, 4, comes=False)
    world.subscribe()
    world.fetch(since_ms=death_ms)
    publish(world, 4, comes=False)
    publish(world, 2, comes=True)

    world.repair()

    assert world.told == [5, 6, 7, 8]
    assert world.broker.came == [*range(9, 15)]


def test_an_origin_that_fell_silent_is_asked_when_its_word_comes(world):
    publish(world, 2, comes=False)
    death_ms = world.ms
    publish(world, 1, comes=False)
    world.subscribe()
    world.fetch(since_ms=death_ms)
    publish(world, 1, comes=False)

    world.ms += 1_000
    world.fall_silent()
    world.repair()

    assert world.told == [3]
    assert world.broker.came == [4]


def test_what_is_on_several_chains_is_told_once_and_what_is_on_others_is_not(world):
    world.subscribe()
    asked_ms = world.ms
    publish(world, 1, comes=True)
    publish(world, 1, comes=True, filters=(FILTER, OTHER))
    publish(world, 1, comes=False, filters=(OTHER,))
    world.fetch(since_ms=asked_ms)

    world.repair()

    assert world.told == [1, 2]


def test_without_a_question_a_new_chain_begins_with_what_comes(world):
    publish(world, 4, comes=False)
    world.subscribe()
    publish(world, 2, comes=True)

    world.repair()

    assert world.broker.came == [5, 6]


def test_questions_have_an_end_and_so_many_are_open_and_no_more(world):
    world.subscribe()
    assert [world.fetch(since_ms=0) for _ in range(RETRIEVALS_MAX + 1)].count(False) == 1

    world.ms += RETRIEVAL_MS

    assert world.fetch(since_ms=0)
