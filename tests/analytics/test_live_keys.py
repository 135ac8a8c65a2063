"""Signed words between a reader of the live stream and agents, at a real broker."""

import pickle
import time

import pytest
from federator_analytics.errors import AnalyticsError, UnavailableError
from federator_analytics.sources.live.heads import Heads
from federator_analytics.sources.live.link import read_options
from federator_analytics.sources.live.replay import Held, Replay

from federator.errors import DecodeError
from federator.protocol.trust.authority import Authority
from federator.protocol.trust.key_files import AgentKeys, FederationPublic, read_key_file
from federator.protocol.trust.words import Wanted, WordJudge, WordSigner, at
from federator.runtime.trust.crypto import verify
from federator.runtime.trust.words import vouch_by
from tests.analytics.brokers import brokers
from tests.analytics.spool_peer import SpoolPeer
from tests.real.trust.test_signed import Office, keys


def now_us():
    return time.time_ns() // 1_000


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    """Keys of agents 3 and 4, of a collector and a gateway, and two that are of no use."""
    folder = Office(tmp_path_factory.mktemp("keys") / "office").folder
    for role in (
        *[("--broker", "3"), ("--broker", "4")],
        *[("--role", "collector", "--name", "c"), ("--role", "gateway", "--name", "g")],
    ):
        keys("issue", "--dir", folder, *role)
    (folder / "open.key").write_bytes((folder / "collector-c.key").read_bytes())
    (folder / "open.key").chmod(0o644)
    out = folder / "revoked.key"
    said = keys("issue", "--dir", folder, "--role", "collector", "--name", "r", "--out", out)
    keys("revoke", "--dir", folder, said.partition("serial ")[2][:16])
    return folder


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with brokers(tmp_path_factory.mktemp("keys")) as (broker,):
        yield broker.port


def signer(office, name):
    """What signs as the holder of a key file does."""
    found = read_key_file((office / name).read_bytes(), AgentKeys)
    return WordSigner(vouch_by(found), now_us).sign


@pytest.fixture
def peer(port, office):
    with SpoolPeer(port, 3) as found:
        found.sign = signer(office, "agent-3.key")
        found.write(20)
        yield found


@pytest.fixture
def options(port, office):
    """Of a reader with a key, as an executor gets them."""
    files = {"collectorFile": "collector-c.key", "federationFiles": "federation.pub"}
    told = {key: str(office / name) for key, name in files.items()}
    waits = {"answerTimeoutMs": "2000", "discoverTimeoutMs": "1000"}
    options = read_options({"broker": f"mqtt://127.0.0.1:{port}", **told, **waits})
    return pickle.loads(pickle.dumps(options))


def alive(options):
    heads = Heads(options)
    heads.open()
    try:
        return heads.alive()
    finally:
        heads.close()


def read(options, wanted):
    replay = Replay(options.places[0], "fed", wanted, answer_s=options.answer_s, keys=options.keys)
    return [line.decode() for piece in replay.read() for _, line in piece.lines]


def test_a_reader_with_a_key_signs_for_one_agent_and_reads_what_that_signed(peer, options, office):
    (held,) = alive(options)

    assert held == Held(3, "a" * 16, 1, 20)
    assert read(options, held) == [line for n in range(1, 21) for line in peer.batches[n]]
    public = read_key_file((office / "federation.pub").read_bytes(), FederationPublic)
    judge = WordJudge(Authority("fed", [public.key], verify), verify, now_us, ["collector"])
    for word in peer.words:
        judge.check("$fed/fed/metrics/ask", word, Wanted("collector", to=at(3), ages=True))
    with pytest.raises(DecodeError, match="is for another"):
        judge.check("$fed/fed/metrics/ask", word, Wanted("collector", to=at(4)))


@pytest.mark.parametrize(
    ("name", "why"),
    [(None, "without its signature"), ("agent-4.key", "speaks in the name of 3")],
)
def test_what_another_says_is_neither_a_head_nor_an_answer(peer, options, office, name, why):
    peer.sign = signer(office, name) if name else lambda topic, word: word
    peer._tell_head().wait_for_publish()  # in the place of the one that is retained

    assert alive(options) == []
    with pytest.raises(UnavailableError, match=why):
        read(options, Held(3, "a" * 16, 1, 20))


def test_the_lines_of_an_answer_are_those_that_were_signed(peer, options):
    sign = peer.sign
    peer.sign = lambda topic, word: sign(topic, word.replace(b'"digest"', b'"digest":"","old"'))

    with pytest.raises(UnavailableError, match="the lines are not those"):
        read(options, Held(3, "a" * 16, 1, 20))


OURS = {"federationFiles": "federation.pub"}
REVOKED = {"collectorFile": "revoked.key", "revocationsFile": "revocations"}


@pytest.mark.parametrize(
    ("told", "code", "text"),
    [
        ({"collectorFile": "collector-c.key"}, 64, "federationFiles is wanted beside other keys"),
        ({"federationFiles": "none.pub"}, 66, "none.pub: No such file"),
        ({"federationFiles": "collector-c.key"}, 64, "wanted is a federation public key"),
        ({**OURS, "federation": "other"}, 64, "the key of federation 'fed', 'other' is wanted"),
        ({**OURS, "collectorFile": "gateway-g.key"}, 64, "gateway g does not speak as collector"),
        ({**OURS, "collectorFile": "open.key"}, 64, "open.key is open to others: chmod o= "),
        ({**OURS, **REVOKED}, 64, "of collector r is revoked: issue another"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(office, told, code, text):
    told = {key: str(office / v) if key.endswith("File") else v for key, v in told.items()}
    if "federationFiles" in told:
        told["federationFiles"] = str(office / told["federationFiles"])

    with pytest.raises(AnalyticsError, match="federator_mqtt") as error:
        read_options({"broker": "mqtt://a", **told})

    assert text in str(error.value)
    assert error.value.exit_code == code


def test_secrets_are_shown_nowhere(options):
    assert options.keys.own is not None
    assert repr(options.keys.own.signing) not in repr(options)
