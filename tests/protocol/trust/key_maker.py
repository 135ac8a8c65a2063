"""A federation key, agents' keys, and guards, for tests."""

from federator.protocol.trust.authority import Authority
from federator.protocol.trust.certificates import (
    Certificate,
    Revocations,
    Signed,
    encode,
    signed_text,
)
from federator.protocol.trust.guard import Guard, Manner
from federator.runtime.trust.crypto import SecretIdentity, verify

NOW_S = 1_800_000_000


class KeyMaker:
    """Issues and takes back. ``now_s`` is everybody's clock."""

    def __init__(self, federation="fed"):
        self.key = SecretIdentity.new()
        self.federation = federation
        self.now_s = NOW_S
        self._serial = 0

    def sign(self, value):
        text = encode(value)
        signature = self.key.sign(signed_text(type(value), text))
        return encode(Signed(self.key.signing_key, text, signature))

    def issue(self, id_, *, identity, days=30, begins_s=NOW_S - 60):
        self._serial += 1
        ends_s = begins_s + days * 86_400
        serial = self._serial.to_bytes(8, "big")
        keys = (identity.signing_key, identity.exchange_key)
        return self.sign(Certificate(1, self.federation, id_, *keys, begins_s, ends_s, serial))

    def revoke(self, *serials, number=1):
        listed = frozenset(serial.to_bytes(8, "big") for serial in serials)
        return self.sign(Revocations(1, self.federation, number, listed))

    def authority(self, *others):
        trusted = [self.key.signing_key, *(other.key.signing_key for other in others)]
        return Authority(self.federation, trusted, verify)

    def guard(self, id_, *, salt=None, manner=Manner.SIGNED, identity=None, trusts=()):
        identity = identity or SecretIdentity.new()
        return Guard(
            federation=self.federation,
            authority=self.authority(*trusts),
            verify=verify,
            identity=identity,
            certificate=self.issue(id_, identity=identity),
            salt=salt or bytes([id_]) * 16,
            manner=manner,
            now_s=lambda: self.now_s,
        )
