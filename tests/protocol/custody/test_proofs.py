"""Only its origin makes a frame under custody: a lie is refused, whoever brings it."""

import pytest
from msgspec import msgpack, structs

from federator.protocol.custody import proofs
from federator.protocol.custody.doubts import Notary
from federator.protocol.custody.origin import answer
from federator.protocol.custody.proofs import FrameJudge, frame_text
from federator.protocol.custody.receiver import Receiver
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.frames import (
    CUSTODY_FLAG,
    LAST_FLAG,
    REPAIR_FLAG,
    TAIL_FLAG,
    VOID_FLAG,
    WORD_FLAG,
    pack,
    unpack,
)
from federator.protocol.messages.control import AskedChain
from federator.protocol.types import BrokerId, Epoch, Millis, Now
from tests.protocol.custody.archive import Archive
from tests.protocol.custody.frames import placed
from tests.protocol.frames import made_frame
from tests.protocol.trust.key_maker import KeyMaker

ORIGIN, RELAY, LIAR, US = BrokerId(1), BrokerId(2), BrokerId(9), BrokerId(5)
KEY = b"aaaaaaaa"
NOW = Now(Millis(1_000_000), 100_000_000)


class Seals:
    """The keys of one agent, without a wire."""

    def __init__(self, maker, id_, *, proves=True):
        self.guard = maker.guard(id_)
        self.proves = proves

    def open_frame(self, payload):
        raise NotImplementedError


class World:
    """An origin, a liar with a key, and a judge that notes what it asks and tells."""

    def __init__(self):
        self.maker = KeyMaker()
        self.origin = Notary("fed", Seals(self.maker, ORIGIN))
        self.liar = Notary("fed", Seals(self.maker, LIAR))
        self.us = Notary("fed", Seals(self.maker, US))
        self.asked, self.told = [], []
        self.checked = 0
        self.counters = DataCounters()
        self.judge = FrameJudge(
            self._check,
            lambda frame, now: self.asked.append(frame),
            self.told.append,
            self.counters,
        )

    def _check(self, frame):
        self.checked += 1
        return self.us.check(frame)

    def made(self, notary=None, **changes):
        """A frame of the origin, as it comes over the relay."""
        frame = structs.replace(A_FRAME, **changes)
        (notary or self.origin).prove(frame)
        return arrived(frame)

    def believes(self, frame, now=NOW):
        return self.judge.believes(frame, 100, now)


def arrived(frame, sender=RELAY, hops=3):
    """What the wire makes of a frame, some links further on."""
    return unpack(pack(structs.replace(frame, sender=sender, hops=hops)))


A_FRAME = made_frame(
    origin=ORIGIN,
    flags=CUSTODY_FLAG,
    epoch=7,
    seq=9,
    origin_time_us=5,
    keys=KEY,
    body=b"0\x05\x00\x01ax\x00",
    chain=(8).to_bytes(8, "big"),
)


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize(
    "flags",
    [CUSTODY_FLAG, TAIL_FLAG, CUSTODY_FLAG | REPAIR_FLAG, CUSTODY_FLAG | REPAIR_FLAG | VOID_FLAG],
)
def test_what_its_origin_made_is_believed_from_any_relay(world, flags):
    frame = world.made(flags=flags)

    assert frame.flags == flags
    assert world.believes(frame)
    assert world.believes(arrived(frame, sender=LIAR, hops=5))
    assert not world.told


def test_a_repair_and_the_frame_stand_for_themselves(world):
    """Said again as the other, each would be taken as it must not."""
    frame = world.made()
    repair = structs.replace(frame, flags=CUSTODY_FLAG | REPAIR_FLAG | LAST_FLAG, route=(US,))

    assert not world.believes(arrived(repair))
    assert world.believes(arrived(frame))


@pytest.mark.parametrize(
    "changes",
    [
        {"body": memoryview(b"0\x05\x00\x01ay\x00")},
        {"seq": 10},
        {"epoch": Epoch(8)},
        {"chain": (7).to_bytes(8, "big")},
        {"keys": b"bbbbbbbb"},
        {"origin": BrokerId(3)},
        {"origin_time_us": 6},
        {"publications": 0},
        {"flags": TAIL_FLAG},
        {"flags": CUSTODY_FLAG | REPAIR_FLAG | VOID_FLAG},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_changed_frame_is_refused_and_its_bringer_named(world, changes):
    lie = arrived(structs.replace(world.made(), **changes), sender=LIAR)

    assert not world.believes(lie)
    assert world.counters.unproven_frames == 1
    (notice,) = world.told
    assert (notice.name, notice.details["neighbour"]) == ("custody.unproven", LIAR)


def test_nobody_proves_in_anothers_name_or_with_the_proof_of_another_frame(world):
    by_the_liar = world.made(world.liar)
    of_another = structs.replace(world.made(), seq=10)

    assert not world.believes(by_the_liar)
    assert not world.believes(of_another)
    assert world.believes(world.made())


def test_a_frame_of_a_revoked_origin_is_refused(world):
    frame = world.made()
    assert world.believes(frame)

    world.us._seals.guard.authority.revoke(world.maker.revoke(1))

    assert not world.believes(frame)


def test_what_has_no_proof_waits_for_its_origins_word(world):
    bare, told_later = structs.replace(world.made(), proof=b""), Now(NOW.ms + 50, NOW.us)
    assert not world.believes(bare)
    assert world.asked == [bare]
    assert not world.told

    world.judge.on_word(ORIGIN, proves=False, now=told_later)

    assert list(world.judge.released()) == [(bare, 100)]
    assert not list(world.judge.released())
    assert world.believes(bare, told_later)
    late = Now(Millis(told_later.ms + proofs.TOLD_MS), NOW.us)
    assert not world.believes(bare, late)  # it may prove by now


def test_nobody_strips_the_proofs_of_an_origin_that_proves(world):
    bare = structs.replace(world.made(), proof=b"", sender=LIAR)
    assert not world.believes(bare)

    world.judge.on_word(ORIGIN, proves=True, now=NOW)

    assert not list(world.judge.released())
    assert not world.believes(bare)
    assert world.counters.unproven_frames == 2
    assert world.told[0].details["neighbour"] == LIAR


def test_what_waits_is_bounded_for_each_neighbour(world):
    for origin in range(1_000):
        bare = structs.replace(A_FRAME, origin=BrokerId(100 + origin), sender=LIAR)
        assert not world.believes(bare)
    assert len(world.asked) <= proofs.WAITING_BYTES_MAX // proofs.ORIGIN_BYTES

    assert not world.believes(structs.replace(A_FRAME, sender=RELAY))
    assert world.asked[-1].sender == RELAY
    later = Now(Millis(NOW.ms + proofs.WAIT_MS), NOW.us)
    assert not world.believes(structs.replace(A_FRAME, sender=LIAR), later)
    assert len(world.judge._waiting) == 1


def test_a_flood_of_wrong_proofs_costs_little_and_hides_no_true_one(world):
    true = world.made()
    for seq in range(1_000):
        assert not world.believes(structs.replace(true, seq=10 + seq, sender=LIAR))
    assert world.checked == proofs.WRONG_MAX

    assert world.believes(true)
    assert not world.believes(structs.replace(true, sender=LIAR))
    assert world.believes(
        structs.replace(true, sender=LIAR), Now(Millis(NOW.ms + proofs.TICK_MS), NOW.us)
    )


def test_a_frame_too_long_to_wait_has_its_origin_asked(world):
    long = structs.replace(A_FRAME, body=memoryview(bytes(proofs.WAITING_BYTES_MAX)))

    assert not world.judge.believes(long, proofs.WAITING_BYTES_MAX, NOW)
    assert world.asked == [long]


def test_what_cost_no_verification_hides_no_true_one(world):
    true = world.made()
    for seq in range(1_000):
        junk = structs.replace(true, seq=10 + seq, sender=LIAR, proof=b"junk")
        assert not world.believes(junk)

    assert world.believes(structs.replace(true, sender=LIAR))


def test_a_proof_with_more_in_it_is_none(world):
    frame = world.made()
    certificate, signature = msgpack.decode(frame.proof)
    for padded in (frame.proof + b"x", msgpack.encode([certificate, signature, b"more"])):
        assert not world.believes(structs.replace(frame, proof=padded))


def test_copies_are_judged_once():
    maker, verified = KeyMaker(), []
    origin, us = Notary("fed", Seals(maker, ORIGIN)), Seals(maker, US)
    judge = us.guard._proofs
    verify = judge._verify
    judge._verify = lambda *told: verified.append(told) or verify(*told)
    frame = structs.replace(A_FRAME)
    origin.prove(frame)

    for sender in (RELAY, LIAR, RELAY):
        Notary("fed", us).check(arrived(frame, sender=sender))

    assert len(verified) == 1


@pytest.mark.parametrize("proves", [True, False])
def test_a_word_says_whether_its_origin_proves_and_nobody_changes_that(proves):
    maker = KeyMaker()
    origin, asker = (Notary("fed", Seals(maker, id_, proves=proves)) for id_ in (ORIGIN, US))
    flags = CUSTODY_FLAG | REPAIR_FLAG | WORD_FLAG
    word = structs.replace(A_FRAME, flags=flags, publications=0, route=(US,))
    origin.sign(word, US, 77)

    word = arrived(word)

    assert bool(word.proof) == proves
    assert asker.holds(word, US)
    assert not asker.holds(word, RELAY)
    if proves:
        stripped = structs.replace(word, body=memoryview(bytes(word.body) + word.proof), proof=b"")
    else:
        stripped = structs.replace(word, body=word.body[:8], proof=bytes(word.body[8:]))
    assert not asker.holds(stripped, US)


@pytest.fixture
def nine():
    """A log of one chain with a frame made at each of nine seconds."""
    log = Archive()
    for second in range(1, 10):
        log.make((KEY,), time_us=1_000_000 * second)
    return log


def test_a_void_for_one_who_wants_little_says_nothing_to_who_wants_more(nine):
    receiver = Receiver()
    receiver.want(KEY, since_us=0)
    first = placed(ORIGIN, 7, 1, {KEY: 0}, made_us=1_000_000)
    receiver.arrive(first, NOW)
    void, *_ = answer(nine, [AskedChain(KEY, 0, 6_000_000)])
    assert (void.through, void.since_us) == (5, 6_000_000)

    frame = placed(ORIGIN, 7, void.through, {KEY: 0}, made_us=0).frame
    frame.chain = void.since_us.to_bytes(8, "big")

    assert not receiver.skip(frame, NOW.ms)
    assert receiver.positions()[ORIGIN, KEY][:2] == (7, 1)


def test_no_request_has_an_origin_sign_that_it_made_less_than_it_did(nine):
    void, *_ = answer(nine, [AskedChain(KEY, 8, 3_000_000)])

    assert void.through == 2


def test_what_is_signed_names_the_federation():
    assert frame_text(b"fed", A_FRAME) != frame_text(b"fee", A_FRAME)
