"""Two agents behind guards, and everybody who would like to be one of them."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.messages.codec import decode, encode
from federator.protocol.messages.control import Bye, CoreAnn, Hello, Solicit
from federator.protocol.trust.authority import DistrustError
from federator.protocol.trust.guard import CONTROL, DATA, Manner, overheard
from federator.protocol.types import BrokerId
from federator.runtime.trust.crypto import SecretIdentity
from tests.protocol.trust.key_maker import KeyMaker

ANN = CoreAnn(1, 1, 0, 7, 3, 0, True, ("a",), (), 99, 1)


def hello(id_, epoch=7, conn=1):
    return Hello(1, id_, epoch, conn, 0, "", ())


def greet(sender, receiver, *, epoch=7, to=None, id_=None):
    """A hello of ``sender`` that ``receiver`` hears; the payload."""
    id_ = sender.ours.certificate.id if id_ is None else id_
    payload = sender.greet("hello", encode(hello(id_, epoch)), to)
    hear(receiver, "hello", payload)
    return payload


def hear(receiver, kind, payload, *, has_namesake=False):
    sender, body, greeting = receiver.read(kind, payload)
    message = decode(kind, body)
    receiver.admit(sender, message, greeting, lambda hello: has_namesake)
    return message


def tell(sender, receiver, kind, message):
    payload = sender.seal(CONTROL, kind, encode(message), receiver.ours.certificate.id)
    assert payload is not None, "they have shaken hands"
    return hear(receiver, kind, payload)


@pytest.fixture
def maker():
    return KeyMaker()


@pytest.fixture
def pair(maker):
    """Guards 1 and 2 that have shaken hands."""
    one, two = maker.guard(1), maker.guard(2)
    shake(one, two)
    return one, two


def shake(one, two):
    greet(one, two)
    greet(two, one)
    greet(one, two)


@pytest.mark.parametrize("manner", list(Manner))
def test_what_one_seals_the_other_reads(maker, manner):
    one, two = maker.guard(1, manner=manner), maker.guard(2, manner=manner)
    shake(one, two)

    sealed = one.seal(DATA, "data", b"a frame", 2)

    assert two.unseal(DATA, "data", sealed) == (1, b"a frame")
    assert (b"a frame" in sealed) is (manner is Manner.SIGNED)


def test_nothing_is_sealed_for_who_never_greeted_or_does_not_hold_our_keys_yet(maker):
    one, two = maker.guard(1), maker.guard(2)
    greet(one, two)
    assert one.seal(CONTROL, "ctl", b"", 2) is None
    assert two.seal(CONTROL, "ctl", b"", 1) is None  # who knows whether one heard anything

    greet(two, one)

    assert one.seal(CONTROL, "ctl", b"", 2) is not None  # two said that it holds one's


def test_a_seal_is_broken_once(pair):
    one, two = pair
    sealed = one.seal(DATA, "data", b"x", 2)
    two.unseal(DATA, "data", sealed)

    with pytest.raises(DistrustError, match="came before"):
        two.unseal(DATA, "data", sealed)


def test_frames_and_control_messages_cannot_be_taken_for_each_other(pair):
    one, two = pair
    sealed = one.seal(DATA, "data", b"x", 2)

    for channel, kind in ((CONTROL, "data"), (DATA, "ctl")):
        with pytest.raises(DistrustError, match="broken"):
            two.unseal(channel, kind, sealed)


def test_what_was_meant_for_another_is_not_taken(maker, pair):
    one, two = pair
    three = maker.guard(3)
    shake(one, three)

    for payload in (one.seal(CONTROL, "ctl", b"x", 2), one.seal(DATA, "data", b"x", 2)):
        with pytest.raises(DistrustError, match="do not hold"):
            three.unseal(CONTROL, "ctl", payload)
    with pytest.raises(DistrustError, match="is for 2"):
        hear(three, "hello", one.greet("hello", encode(hello(1)), BrokerId(2)))
    assert two is not three


def test_a_greeting_recorded_before_says_nothing_now(maker):
    one, two = maker.guard(1), maker.guard(2)
    first = greet(one, two)
    greet(one, two)

    with pytest.raises(DistrustError, match="came before"):
        hear(two, "hello", first)


def test_after_the_receiver_restarts_no_recorded_word_opens(maker):
    one, two = maker.guard(1), maker.guard(2)
    shake(one, two)
    sealed = [one.seal(DATA, "data", b"x", 2) for _ in range(3)]
    again = maker.guard(2, salt=b"another start...")
    greet(one, again, epoch=7)

    for payload in sealed:
        with pytest.raises(DistrustError, match="do not hold"):
            again.unseal(DATA, "data", payload)


def test_a_sender_that_restarts_is_believed_under_its_new_epoch_only(maker, pair):
    _, two = pair
    identity = SecretIdentity.new()
    again = maker.guard(1, salt=b"another start...", identity=identity)

    with pytest.raises(DistrustError, match="same epoch"):
        greet(again, two, epoch=7)
    greet(again, two, epoch=8)
    greet(two, again)

    assert tell(again, two, "ctl", Solicit(1, 5, 7, 3, 9)).core == 5


def test_a_hello_of_an_earlier_start_changes_no_keys(maker, pair):
    one, two = pair
    earlier = maker.guard(1, salt=b"long ago........")

    greet(earlier, two, epoch=6)  # the links machine judges it

    assert tell(one, two, "ctl", Solicit(1, 5, 7, 3, 9)).core == 5


def test_a_second_agent_of_one_id_changes_no_keys_of_the_first(maker, pair):
    one, two = pair
    double = maker.guard(1, salt=b"copied card.....")

    hear(two, "hello", double.greet("hello", encode(hello(1, epoch=8)), 2), has_namesake=True)

    assert tell(one, two, "ctl", Solicit(1, 5, 7, 3, 9)).core == 5
    assert tell(two, one, "ctl", Solicit(2, 5, 7, 3, 9)).core == 5


def test_nobody_speaks_in_anothers_name(pair):
    one, two = pair

    with pytest.raises(DistrustError, match="1 speaks in the name of 9"):
        tell(one, two, "ctl", Solicit(9, 5, 7, 3, 9))
    with pytest.raises(DistrustError, match="1 speaks in the name of 0"):
        greet(one, two, id_=0)


def test_a_bye_is_believed_once_and_not_after_a_later_hello(pair):
    one, two = pair
    early, late = (one.greet("ctl", encode(Bye(1, 7, 1)), 2) for _ in range(2))

    hear(two, "ctl", late)
    for recorded in (early, late):
        with pytest.raises(DistrustError, match="came before"):
            hear(two, "ctl", recorded)
    unheard = one.greet("ctl", encode(Bye(1, 7, 1)), 2)
    greet(one, two)

    with pytest.raises(DistrustError, match="came before"):
        hear(two, "ctl", unheard)


def test_each_connections_will_is_believed_once(pair):
    one, two = pair
    wills = [one.greet("ctl", encode(Bye(1, 7, conn)), None, will=True) for conn in (1, 2)]
    greet(one, two)

    for will in wills:
        assert isinstance(hear(two, "ctl", will), Bye)
    for will in wills:
        with pytest.raises(DistrustError, match="came before"):
            hear(two, "ctl", will)


def test_only_hellos_and_byes_come_without_a_seal(pair):
    one, two = pair
    bye = one.greet("ctl", encode(Bye(1, 7, 1)), None, will=True)

    assert hear(two, "ctl", bye) == Bye(1, 7, 1)
    with pytest.raises(DistrustError, match="came before"):
        hear(two, "ctl", bye)
    with pytest.raises(DistrustError, match="without a seal"):
        hear(two, "ctl", one.greet("ctl", encode(Solicit(1, 5, 7, 3, 9)), None))
    with pytest.raises(DistrustError, match="no greeting"):
        tell(one, two, "hello", hello(1))


def test_an_open_agents_words_are_not_taken(pair):
    _, two = pair

    for message, kind in ((hello(1), "hello"), (ANN, "core_ann"), (Bye(1, 7, 1), "ctl")):
        with pytest.raises(DecodeError):
            hear(two, kind, encode(message) + bytes(64))


def test_an_announcement_wants_its_cores_signature_whoever_brings_it(maker, pair):
    one, two = pair
    three = maker.guard(3)
    shake(two, three)
    heard = tell(one, two, "core_ann", one.prove(ANN))
    relayed = msgspec.structs.replace(heard, sender=2, cost=1, added=())

    assert tell(two, three, "core_ann", relayed).core == 1
    forged = {
        "a number": {"seq": 4},
        "an epoch": {"epoch": 8},
        "a priority": {"priority": -5},
        "the filters' digest": {"digest": 98},
        "how many": {"count": 2},
        "the core": {"core": 0},
        "its proof": {"proof": b""},
        "half of it": {"proof": relayed.proof[:-1]},
    }
    for changes in forged.values():
        with pytest.raises(DecodeError):
            tell(two, three, "core_ann", msgspec.structs.replace(relayed, **changes))


def test_nobody_becomes_core_0_by_saying_so(pair):
    one, two = pair
    zero = msgspec.structs.replace(ANN, core=0)
    own = one.prove(ANN)

    for proof in (b"", own.proof):
        with pytest.raises(DistrustError, match="core 0"):
            tell(one, two, "core_ann", msgspec.structs.replace(zero, proof=proof))


def test_a_certificate_changes_under_way_without_a_lost_word(maker, pair):
    one, two = pair
    before = one.seal(DATA, "data", b"before", 2)
    fresh = SecretIdentity.new()

    trusted = one.authority.trusted
    one.renew(fresh, maker.issue(1, identity=fresh), trusted=trusted)

    between = one.seal(DATA, "data", b"between", 2)
    back = two.seal(DATA, "data", b"back", 1)
    greet(one, two)
    late = two.seal(DATA, "data", b"late", 1)
    greet(two, one)
    after = one.seal(DATA, "data", b"after", 2)
    assert [two.unseal(DATA, "data", p)[1] for p in (before, between, after)] == [
        b"before",
        b"between",
        b"after",
    ]
    assert [one.unseal(DATA, "data", p)[1] for p in (back, late)] == [b"back", b"late"]


def test_a_revoked_neighbour_is_heard_no_more(maker, pair):
    one, two = pair
    serial = int.from_bytes(one.ours.certificate.serial, "big")

    assert two.authority.revoke(maker.revoke(serial))
    assert two.forget_distrusted() == [1]

    with pytest.raises(DistrustError, match="do not hold"):
        two.unseal(DATA, "data", one.seal(DATA, "data", b"x", 2))
    with pytest.raises(DistrustError, match="revoked"):
        greet(one, two)


def test_a_certificate_that_expires_ends_what_it_began(maker, pair):
    one, two = pair
    maker.now_s += 40 * 86_400

    assert two.forget_distrusted() == [1]
    with pytest.raises(DistrustError, match="expired"):
        greet(one, two)


def test_no_number_is_used_twice_though_a_neighbour_is_forgotten_in_between(maker, pair):
    one, two = pair
    first = one.seal(DATA, "data", b"x", 2)
    one._peers.clear()  # as after a thousand other neighbours
    greet(two, one)

    second = one.seal(DATA, "data", b"x", 2)

    assert first[9:17] != second[9:17]


@given(st.integers(0), st.sampled_from(["flip", "cut", "extend"]), st.booleans())
def test_a_changed_payload_is_never_believed(seed, how, encrypted):
    rng = random.Random(seed)
    maker = KeyMaker()
    manner = Manner.SEALED if encrypted else Manner.SIGNED
    one, two = maker.guard(1, manner=manner), maker.guard(2)
    shake(one, two)
    sealed = bytearray(one.seal(CONTROL, "core_ann", encode(one.prove(ANN)), 2))
    if how == "flip":
        sealed[rng.randrange(len(sealed))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del sealed[rng.randrange(len(sealed)) :]
    else:
        sealed += rng.randbytes(rng.randrange(1, 50))

    with pytest.raises(DecodeError):
        hear(two, "core_ann", bytes(sealed))


@given(st.integers(0))
def test_a_changed_greeting_is_never_believed(seed):
    rng = random.Random(seed)
    maker = KeyMaker()
    one, two = maker.guard(1), maker.guard(2)
    payload = bytearray(one.greet("hello", encode(hello(1)), None))
    payload[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)

    with pytest.raises(DecodeError):
        hear(two, "hello", bytes(payload))

    assert two.seal(CONTROL, "ctl", b"", 1) is None


def test_a_passer_by_reads_greetings_and_what_is_signed_but_not_what_is_sealed(maker):
    one, two = maker.guard(1), maker.guard(2, manner=Manner.SEALED)
    shake(one, two)
    body = encode(Bye(1, 7, 1))

    assert overheard(one.greet("ctl", body, None)) == ("signed", body)
    assert overheard(one.seal(DATA, "data", body, 2)) == ("signed", body)
    assert overheard(two.seal(DATA, "data", body, 1)) == ("sealed", None)
    assert overheard(body) == ("open", body)
    for cut in (b"S", b"M", b"C" + 30 * b"x"):
        with pytest.raises(DecodeError):
            overheard(cut)
