"""Words that are signed one by one: whose they are, for whom, and that none is said twice."""

import json

import pytest

from federator.errors import DecodeError
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.operators import Drain
from federator.protocol.telemetry import records, replay
from federator.protocol.trust.authority import Authority
from federator.protocol.trust.words import (
    LATE_MAX_US,
    SPEAKERS_MAX,
    Wanted,
    WordJudge,
    WordSigner,
    at,
)
from federator.runtime.trust.crypto import verify
from federator.runtime.trust.key_maker import KeyMaker
from federator.runtime.trust.words import vouch_by

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


def test_a_proven_word_is_believed_and_read_by_who_knows_nothing_of_proofs(world):
    word = world.signer("operator", "ann").sign(TOPIC, BODY, to=RUN)

    world.judge("operator").check(TOPIC, word, Wanted("operator", to=RUN))

    assert decode(Drain, word) == Drain(3, True)
    assert json.loads(word)["broker"] == 3


def test_nothing_of_a_word_can_be_another(world):
    word = world.signer("operator", "ann").sign(TOPIC, BODY, to=RUN)
    stranger = World().signer("operator", "ann").sign(TOPIC, BODY, to=RUN)

    judge = world.judge("operator")

    assert "without its signature" in refused(judge, BODY, to=RUN)
    assert "is wrong" in refused(judge, word.replace(b"3", b"4", 1), to=RUN)
    assert "is wrong" in refused(judge, word, topic="$fed/other/drain", to=RUN)
    assert "earlier start" in refused(judge, word, to=b"s" * 16)
    assert "does not speak as gateway" in refused(judge, word, "gateway", to=RUN)
    assert "in the name of bob" in refused(judge, word, name="bob", to=RUN)
    assert "not trusted" in refused(judge, stranger, to=RUN)
    assert "proof" in refused(judge, BODY[:-1] + b',"proof":"!"}', to=RUN)
    judge.check(TOPIC, word, Wanted("operator", to=RUN))


def test_a_field_behind_the_proof_is_none_of_the_word(world):
    word = world.signer("operator", "ann").sign(TOPIC, BODY, to=RUN)

    assert "proof" in refused(world.judge(), word[:-1] + b',"broker":4}', to=RUN)


def test_a_word_is_believed_once_in_each_place(world):
    signer, judge = world.signer("gateway", "a"), world.judge()
    first, second = signer.sign(TOPIC, BODY), signer.sign(TOPIC, BODY)

    judge.check(TOPIC, second, Wanted("gateway"))

    for payload in (first, second):
        assert "came before" in refused(judge, payload, "gateway")
        judge.check(TOPIC, payload, Wanted("gateway", place=2))


def test_numbers_grow_though_the_clock_goes_back(world):
    signer, judge = world.signer("gateway", "a"), world.judge()
    judge.check(TOPIC, signer.sign(TOPIC, BODY), Wanted("gateway"))
    world.now_us -= 5_000_000

    judge.check(TOPIC, signer.sign(TOPIC, BODY), Wanted("gateway"))


@pytest.mark.parametrize("way", [-1, 1])
def test_where_age_counts_an_old_word_is_not_believed(world, way):
    word = world.signer("gateway", "a").sign(TOPIC, BODY)
    world.now_us += way * (LATE_MAX_US + 1)

    assert "clocks" in refused(world.judge(), word, "gateway", ages=True)
    world.judge().check(TOPIC, word, Wanted("gateway"))


def test_a_will_ends_what_was_said_since_its_connection_and_nothing_later(world):
    signer, judge = world.signer("gateway", "a"), world.judge()
    will, said = signer.sign(TOPIC, BODY, is_will=True), signer.sign(TOPIC, BODY)

    judge.check(TOPIC, said, Wanted("gateway"))
    judge.check(TOPIC, will, Wanted("gateway"))

    assert "came before" in refused(judge, signer.sign(TOPIC, BODY), "gateway")
    signer.sign(TOPIC, BODY, is_will=True)  # it connects again
    judge.check(TOPIC, signer.sign(TOPIC, BODY), Wanted("gateway"))
    assert "came before" in refused(judge, will, "gateway")


def test_who_has_proven_a_word_has_to_go_on_doing_so(world):
    judge = world.judge()
    judge.check(TOPIC, BODY, Wanted("gateway", name="a"))

    judge.check(TOPIC, world.signer("gateway", "a").sign(TOPIC, BODY), Wanted("gateway", name="a"))

    assert "without its signature" in refused(judge, BODY, "gateway", name="a")
    judge.check(TOPIC, BODY, Wanted("gateway", name="b"))


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


def test_a_speaker_without_a_will_is_heard_after_an_earlier_start_with_one(world):
    judge, keys = (
        world.judge("gateway"),
        world.maker.issue(0, days=1, now_s=NOW_S, role="gateway", name="a"),
    )
    former = WordSigner(vouch_by(keys[0]), lambda: world.now_us)
    former.sign("will", BODY, is_will=True)
    judge.check(TOPIC, former.sign(TOPIC, BODY), Wanted("gateway"))
    world.now_us += 1_000

    said = WordSigner(vouch_by(keys[0]), lambda: world.now_us).sign(TOPIC, BODY)

    judge.check(TOPIC, said, Wanted("gateway"))


def test_a_word_for_one_broker_is_worth_nothing_at_another(world):
    word = world.signer("gateway", "a").sign(TOPIC, BODY, to=at(1))
    judge = world.judge("gateway")

    for wrong in (at(0), at(2)):
        assert "for another" in refused(judge, word, "gateway", to=wrong)
    judge.check(TOPIC, word, Wanted("gateway", to=at(1)))


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
