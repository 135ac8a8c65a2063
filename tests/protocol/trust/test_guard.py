"""Two agents behind guards, and everybody who would like to be one of them."""

import re
from pathlib import Path

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
from tests.transcripts import play, scenes

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


HOME = "mqtts://b1:8883"
MESSAGES = {
    "hello": ("hello", lambda sender, epoch, conn: hello(sender, epoch, conn)),
    "bye": ("ctl", lambda sender, epoch, conn: Bye(sender, epoch, conn)),
    "solicit": ("ctl", lambda sender, epoch, conn: Solicit(sender, 5, epoch, 3, 9)),
    "announcement": ("core_ann", lambda sender, epoch, conn: ANN),
}


class Stage:
    """Agents' guards: what one says, and what another makes of it.

    ``agents 1 2b``: ``2b`` is another start of 2, or another agent with its id. ``say`` and
    ``seal`` record a payload under a name, for ``hear`` and ``open``. ``tell`` seals a message.
    ``address`` proves the address of a broker, which others may pass on.
    Options: ``--sender``, ``--epoch``, ``--conn`` of a message, ``--to`` whom a greeting is,
    ``--will``, ``--namesake``, and ``--channel`` and ``--kind`` of a seal.
    """

    def __init__(self):
        self.maker = KeyMaker()
        self.guards, self.recorded = {}, {}
        self.addresses = {"nothing": b""}

    def do(self, command, *words):
        options = dict(word[2:].split("=") for word in words if word.startswith("--"))
        words = [word for word in words if not word.startswith("--") and word not in ("as", "at")]
        try:
            yield from getattr(self, "_" + command.replace("-", "_"))(*words, **options) or ()
        except DecodeError as refusal:
            yield re.sub("[0-9a-f]{16}", "(a number)", str(refusal))

    def _agents(self, *names, maker=None):
        for name in names:
            maker = maker or self.maker
            self.guards[name] = maker.guard(int(name[0]), salt=name.encode().ljust(16))

    def _stranger(self, name):
        self._agents(name, maker=KeyMaker())

    def _address(self, a, name):
        self.addresses[name] = self.guards[a].prove_address(HOME, 7)

    def _believe(self, b, name, *, id=1, epoch=7, url=HOME):
        self.guards[b].check_address(int(id), int(epoch), url, self.addresses[name])
        yield "believed"

    def _later(self, days):
        self.maker.now_s += int(days) * 86_400

    def _shake(self, a, b):
        shake(self.guards[a], self.guards[b])

    def _greet(self, a, b, *, epoch=7, sender=None):
        id_ = int(sender or a[0])
        greet(self.guards[a], self.guards[b], epoch=int(epoch), id_=id_)

    def _say(self, a, what, name, *, to=None, will="", epoch=7, conn=1):
        kind, make = MESSAGES[what]
        message = make(int(a[0]), int(epoch), int(conn))
        to = None if to is None else BrokerId(int(to))
        payload = self.guards[a].greet(kind, encode(message), to, will=bool(will))
        self.recorded[name] = kind, payload, message

    def _open_say(self, what, name):
        kind, make = MESSAGES[what]
        message = make(1, 7, 1)
        self.recorded[name] = kind, encode(message) + bytes(64), message

    def _hear(self, b, name, *, namesake=""):
        kind, payload, message = self.recorded[name]
        assert hear(self.guards[b], kind, payload, has_namesake=bool(namesake)) == message
        yield f"{type(message).__name__} of {message.sender}"

    def _tell(self, a, b, what, *, sender=None):
        kind, make = MESSAGES[what]
        message = make(int(sender or a[0]), 7, 1)
        assert tell(self.guards[a], self.guards[b], kind, message) == message
        yield f"{type(message).__name__} of {message.sender}"

    def _seal(self, a, b, name="", *, channel="data", kind="data"):
        payload = self.guards[a].seal(CHANNELS[channel], kind, b"x", BrokerId(int(b[0])))
        yield "sealed" if payload else "nothing"
        self.recorded[name] = kind, payload

    def _open(self, b, name, *, channel="data", kind=None):
        sealed_as, payload = self.recorded[name]
        sender, body = self.guards[b].unseal(CHANNELS[channel], kind or sealed_as, payload)
        yield f"{body.decode()} of {sender}"

    def _revoke(self, a, b):
        serial = int.from_bytes(self.guards[a].ours.certificate.serial, "big")
        assert self.guards[b].authority.revoke(self.maker.revoke(serial))
        return self._drop(b)

    def _drop(self, b):
        yield from (f"drops {id_}" for id_ in self.guards[b].forget_distrusted())


CHANNELS = {"control": CONTROL, "data": DATA}


@scenes(Path(__file__).with_name("guard.txt"))
def test_transcript(path, number):
    play(path, number, Stage())


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


def test_no_number_is_used_twice_though_a_neighbour_is_forgotten_in_between(maker, pair):
    one, two = pair
    first = one.seal(DATA, "data", b"x", 2)
    one._peers.clear()  # as after a thousand other neighbours
    greet(two, one)

    second = one.seal(DATA, "data", b"x", 2)

    assert first[9:17] != second[9:17]


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


@given(proof=st.binary(max_size=300))
def test_rubbish_proves_no_address(proof):
    with pytest.raises(DecodeError):
        KeyMaker().guard(3).check_address(1, 7, HOME, proof)
