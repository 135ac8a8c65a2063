"""Keys of gateways and collectors: they follow their files while they run."""

import time

import pytest
import structlog

from federator.config.security import GatewayKeySettings
from federator.errors import ConfigError
from federator.protocol.messages.json_codec import encode
from federator.protocol.messages.operators import Drain
from federator.protocol.trust.key_files import RevocationFile, holder_of, write_key_file
from federator.protocol.trust.words import Wanted
from federator.runtime.trust.key_maker import KeyMaker
from federator.runtime.trust.words import FollowedWords

TOPIC, BODY = "$fed/fed/claims", encode(Drain(3, True))


class Folder:
    """The key files of gateway "g"."""

    def __init__(self, path):
        self.path = path
        self.maker = KeyMaker.new("fed")
        self.trusts(self.maker)
        self.issued_by(self.maker)

    def put(self, name, content):
        path = self.path / "fresh"
        path.write_bytes(content)
        path.chmod(0o600)
        path.replace(self.path / name)

    def trusts(self, maker):
        self.put("federation.pub", write_key_file(maker.public))

    def issued_by(self, maker, name="g"):
        now_s = int(time.time())
        keys, told = maker.issue(0, days=30, now_s=now_s, role="gateway", name=name)
        self.put("gateway.key", write_key_file(keys))
        return told

    def revokes(self, *certificates, number=1):
        listed = self.maker.revoke([each.serial for each in certificates], number=number)
        self.put(
            "revocations", write_key_file(RevocationFile(federation="fed", revocations=listed))
        )

    def words(self):
        keys = GatewayKeySettings(
            federation_files=(self.path / "federation.pub",),
            revocations_file=self.path / "revocations",
            gateway_file=self.path / "gateway.key",
        )
        return FollowedWords(
            "fed",
            keys,
            own_file=keys.gateway_file,
            read_own=lambda: keys.own_keys("g"),
            required=["gateway"],
        )


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def followed(words):
    with structlog.testing.capture_logs() as logs:
        words.follow_files()
    return [line["event"] for line in logs]


def hears(words, said):
    return words.believes(TOPIC, said, Wanted("gateway", "g"))


def test_a_new_key_is_spoken_under_and_the_old_one_taken_back(folder):
    speaker, hearer = folder.words(), folder.words()
    old = holder_of(speaker._own)
    assert hears(hearer, speaker.sign(TOPIC, BODY))

    folder.issued_by(folder.maker)
    assert followed(speaker) == ["trust.certificate_changed"]
    before = hearer.sign(TOPIC, BODY)
    folder.revokes(old)
    assert followed(hearer) == ["trust.certificate_changed", "trust.revocations"]

    assert not hears(hearer, before)
    assert hears(hearer, speaker.sign(TOPIC, BODY))
    assert followed(hearer) == []


def test_a_key_that_cannot_be_used_changes_nothing(folder):
    words = folder.words()
    other = KeyMaker.new("fed")

    folder.trusts(other)
    folder.issued_by(KeyMaker.new("fed"))
    assert followed(words) == ["trust.keys_not_changed"]
    folder.issued_by(other, name="h")
    assert followed(words) == ["trust.keys_not_changed"]

    assert hears(words, words.sign(TOPIC, BODY))


def test_the_federations_key_is_changed(folder):
    words = folder.words()
    other = KeyMaker.new("fed")

    folder.trusts(other)
    folder.issued_by(other)

    assert followed(words) == ["trust.certificate_changed"]
    assert hears(words, words.sign(TOPIC, BODY))


def test_nobody_starts_with_a_key_that_was_taken_back(folder):
    told = folder.issued_by(folder.maker)
    folder.revokes(told)

    with pytest.raises(ConfigError, match="is revoked"):
        folder.words()
