"""Whose certificates hold."""

import pytest

from federator.errors import DecodeError
from federator.protocol.trust.authority import DistrustError
from federator.runtime.trust.crypto import SecretIdentity
from tests.protocol.trust.key_maker import NOW_S, KeyMaker


@pytest.fixture
def identity():
    return SecretIdentity.new()


def test_a_certificate_of_the_federation_key_holds(identity):
    maker = KeyMaker()

    judged = maker.authority().judge(maker.issue(5, identity=identity), now_s=NOW_S)

    assert (judged.id, judged.signing_key) == (5, identity.signing_key)


def test_another_federations_key_is_not_trusted(identity):
    ours, theirs = KeyMaker(), KeyMaker()

    with pytest.raises(DistrustError, match="not trusted"):
        ours.authority().judge(theirs.issue(5, identity=identity), now_s=NOW_S)


def test_another_federation_of_the_same_key_is_another_federation(identity):
    ours, theirs = KeyMaker(), KeyMaker("other")
    theirs.key = ours.key

    with pytest.raises(DistrustError, match="federation 'other'"):
        ours.authority().judge(theirs.issue(5, identity=identity), now_s=NOW_S)


def test_time_is_up_and_time_has_not_come(identity):
    maker = KeyMaker()
    authority, certificate = maker.authority(), maker.issue(5, identity=identity, days=1)

    with pytest.raises(DistrustError, match="expired"):
        authority.judge(certificate, now_s=NOW_S + 86_400)
    with pytest.raises(DistrustError, match="not valid yet, but in 400 days by our clock"):
        authority.judge(certificate, now_s=NOW_S - 400 * 86_400 - 61)


def test_every_changed_bit_of_a_certificate_spoils_it(identity):
    maker = KeyMaker()
    authority, good = maker.authority(), maker.issue(5, identity=identity)

    for at in range(len(good) * 8):
        bad = bytearray(good)
        bad[at // 8] ^= 1 << at % 8
        with pytest.raises(DecodeError):
            authority.judge(bytes(bad), now_s=NOW_S)


def test_a_list_of_revocations_is_replaced_by_a_newer_one_only(identity):
    maker = KeyMaker()
    authority = maker.authority()
    certificate = maker.issue(5, identity=identity)

    assert authority.revoke(maker.revoke(1, number=2))
    assert not authority.revoke(maker.revoke(number=1))
    assert not authority.revoke(maker.revoke(1, number=2))
    with pytest.raises(DistrustError, match="revoked"):
        authority.judge(certificate, now_s=NOW_S)
    assert authority.revoke(maker.revoke(number=3))
    assert authority.judge(certificate, now_s=NOW_S).id == 5


def test_a_stranger_revokes_nothing(identity):
    maker, another = KeyMaker(), KeyMaker()
    authority = maker.authority()

    with pytest.raises(DistrustError, match="not trusted"):
        authority.revoke(another.revoke(1))

    assert authority.revocations == []


def test_federation_keys_change_one_after_the_other(identity):
    old, new = KeyMaker(), KeyMaker()
    before, after = old.issue(5, identity=identity), new.issue(5, identity=identity)
    authority = old.authority(new)

    assert {authority.judge(each, now_s=NOW_S).id for each in (before, after)} == {5}

    authority.retrust([new.key.signing_key])
    authority.judge(after, now_s=NOW_S)
    with pytest.raises(DistrustError, match="not trusted"):
        authority.judge(before, now_s=NOW_S)
