"""Keys of gateways and collectors: they follow their files while they run."""

import pytest

from federator.config.security import GatewayKeySettings
from federator.errors import ConfigError
from federator.protocol.messages.json_codec import encode
from federator.protocol.messages.operators import Drain
from federator.protocol.trust.key_files import holder_of
from federator.protocol.trust.words import Wanted
from federator.runtime.trust.key_maker import KeyMaker
from federator.runtime.trust.words import FollowedWords
from tests.runtime.trust.key_folder import KeyFolder, followed

TOPIC, BODY = "$fed/fed/claims", encode(Drain(3, True))


class Folder(KeyFolder):
    """The key files of gateway "g"."""

    def __init__(self, path):
        super().__init__(path, role="gateway", name="g")

    def words(self):
        keys = GatewayKeySettings(
            federation_files=(self.path / "federation.pub",),
            revocations_file=self.path / "revocations",
            gateway_file=self.path / "own.key",
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


def hears(words, said):
    return words.believes(TOPIC, said, Wanted("gateway", "g"))


def test_a_new_key_is_spoken_under_and_the_old_one_taken_back(folder):
    speaker, hearer = folder.words(), folder.words()
    old = holder_of(speaker._own)
    assert hears(hearer, speaker.sign(TOPIC, BODY))

    folder.issued_by(folder.maker)
    assert followed(speaker) == ["trust.certificate_changed"]
    before = hearer.sign(TOPIC, BODY)
    folder.revoked_by(folder.maker, old.serial)
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
    own = holder_of(folder.issued_by(folder.maker))
    folder.revoked_by(folder.maker, own.serial)

    with pytest.raises(ConfigError, match="is revoked"):
        folder.words()
