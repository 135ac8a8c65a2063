"""Words that are signed one by one: whose they are, for whom, and that none is said twice."""

import json
import re
from pathlib import Path

import pytest

from federator.errors import DecodeError
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.operators import Drain
from federator.protocol.telemetry import records, replay
from federator.protocol.trust.authority import Authority
from federator.protocol.trust.words import (
    SPEAKERS_MAX,
    Wanted,
    WordJudge,
    WordSigner,
    at,
)
from federator.runtime.trust.crypto import verify
from federator.runtime.trust.key_maker import KeyMaker
from federator.runtime.trust.words import vouch_by
from tests.transcripts import play, scenes

NOW_S = 1_800_000_000
TOPIC = "$fed/fed/drain"
RUN = b"r" * 16
BODY = encode(Drain(3, True))


class World:
    """A federation key, speakers, and who hears them; all have one clock."""

    def __init__(self, federation="fed"):
        self.maker = KeyMaker.new(federation)
        self.now_us = NOW_S * 1_000_000

    def signer(self, role, name):
        keys, _ = self.maker.issue(0, days=1, now_s=NOW_S, role=role, name=name)
        return WordSigner(vouch_by(keys), lambda: self.now_us)

    def judge(self, *required):
        authority = Authority(self.maker.key.federation, [self.maker.public.key], verify)
        return WordJudge(authority, verify, lambda: self.now_us, required)


@pytest.fixture
def world():
    return World()


def refused(judge, payload, role="operator", topic=TOPIC, **options):
    with pytest.raises(DecodeError) as told:
        judge.check(topic, payload, Wanted(role, **options))
    return str(told.value)


class Stage:
    """Speakers of a federation, and who judges what they say.

    ``sign SPEAKER WORD`` records a word of ``--to`` whom it is; ``check WORD ROLE`` prints whether
    the newest ``judge``, of roles that must sign, believes it. ``plain`` is a word without a proof.
    """

    def __init__(self):
        self.world, self.signers, self.keys = World(), {}, {}
        self.said = {"plain": BODY, "garbled": BODY[:-1] + b',"proof":"!"}'}

    def do(self, command, *words):
        options = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
        words = [word for word in words if not word.startswith("--") and word != "as"]
        return getattr(self, f"_{command}")(*words, **options) or ()

    def _speaker(self, name, role, *, world=None):
        world = world or self.world
        self.keys[name], _ = world.maker.issue(0, days=1, now_s=NOW_S, role=role, name=name)
        self._restart(name)

    def _stranger(self, name, role):
        self._speaker(name, role, world=World())

    def _restart(self, name):
        self.signers[name] = WordSigner(vouch_by(self.keys[name]), lambda: self.world.now_us)

    def _sign(self, name, word, *, to="", will=""):
        to = {"to": place_of(to)} if to else {}
        self.said[word] = self.signers[name].sign(TOPIC, BODY, is_will=bool(will), **to)

    def _later(self, us):
        self.world.now_us += int(us)

    def _judge(self, *required):
        self.judge = self.world.judge(*required)

    def _check(self, word, role, *, to="", topic=TOPIC, broker="3", more="", **wanted):
        payload = self.said[word].replace(b"3", broker.encode(), 1)
        payload = payload[:-1] + b',"broker":%s}' % more.encode() if more else payload
        options = wanted | ({"to": place_of(to)} if to else {})
        options |= {"ages": True} if "ages" in wanted else {}
        try:
            self.judge.check(topic, payload, Wanted(role, **options))
        except DecodeError as refusal:
            yield re.sub("[0-9a-f]{16}", "(a number)", str(refusal))
        else:
            yield "believed"


def place_of(text):
    """A broker, or the run of an agent."""
    return at(int(text)) if text.isdecimal() else text.encode().ljust(16)


@scenes(Path(__file__).with_name("words.txt"))
def test_transcript(path, number):
    play(path, number, Stage())


def test_a_proven_word_is_believed_and_read_by_who_knows_nothing_of_proofs(world):
    word = world.signer("operator", "ann").sign(TOPIC, BODY, to=RUN)

    world.judge("operator").check(TOPIC, word, Wanted("operator", to=RUN))

    assert decode(Drain, word) == Drain(3, True)
    assert json.loads(word)["broker"] == 3


def test_no_garbage_raises_anything_else(world):
    word = world.signer("operator", "ann").sign(TOPIC, BODY, to=RUN)
    for cut in range(1, len(word)):
        with pytest.raises(DecodeError):
            world.judge("operator").check(TOPIC, word[:cut], Wanted("operator", to=RUN))


def test_a_gateways_certificate_is_none_of_an_agent(world):
    keys, _ = world.maker.issue(0, days=1, now_s=NOW_S, role="gateway", name="a")
    authority = Authority("fed", [world.maker.public.key], verify)

    with pytest.raises(DecodeError, match="does not speak as agent"):
        authority.judge(keys.certificate, now_s=NOW_S)

    assert authority.judge(keys.certificate, now_s=NOW_S, role="gateway").name == "a"


def test_runs_with_one_key_are_told_apart_and_have_no_other_role_forgotten(world):
    judge, reader = world.judge(), world.signer("collector", "c")
    claim = world.signer("gateway", "a").sign(TOPIC, BODY)
    judge.check(TOPIC, claim, Wanted("gateway"))
    first, second = reader.sign(TOPIC, BODY), reader.sign(TOPIC, BODY)

    judge.check(TOPIC, second, Wanted("collector", place="a run"))
    judge.check(TOPIC, first, Wanted("collector", place="another, whose clock is behind"))

    for run in ("a run", "another, whose clock is behind"):
        assert "came before" in refused(judge, first, "collector", place=run)
    for run in range(SPEAKERS_MAX):
        judge.check(TOPIC, second, Wanted("collector", place=run))
    assert "came before" in refused(judge, claim, "gateway")


LAST = 2**63 - 1
SPOOL = "f" * 16
OF_SPOOL = {"batch_first": LAST, "batch_last": LAST, "held_first": LAST, "held_last": LAST}


@pytest.mark.parametrize(
    ("role", "word", "decode"),
    [
        ("collector", replay.Ask(spool=SPOOL, first=LAST, last=LAST, to="t" * 64), "decode_ask"),
        (
            "agent",
            replay.Head(broker=2**32 - 1, spool=SPOOL, first=LAST, last=LAST, at_us=-LAST),
            "decode_head",
        ),
        (
            "agent",
            replay.Again(spool=SPOOL, **OF_SPOOL, digest=replay.digest_of(b"")),
            "decode_again",
        ),
    ],
)
def test_the_longest_words_of_the_metrics_stream_bear_their_proof(role, word, decode):
    world = World("f" * 64)

    said = world.signer(role, "n" * 64).sign(TOPIC, records.encode(word))

    assert getattr(replay, decode)(said) == word
    world.judge(role).check(TOPIC, said, Wanted(role))
