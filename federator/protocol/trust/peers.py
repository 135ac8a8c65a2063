"""One neighbour and the keys that we share with it.

Each side's half of the key agreement is its certificate and the salt of its start. A key belongs to
a pair of halves and a direction, so any restart and any change of certificates changes the keys,
and recorded messages cannot be replayed. A side seals under a new pair only after the other
announced that it has our half; it opens seals of all recent pairs. So keys change without a lost
message.

Source: docs/security.md, "Seals"; RFC 5869 for the way from a secret to keys.
"""

import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from federator.protocol.bounded_cache import Recent
from federator.protocol.duplicates import SeenNumbers
from federator.protocol.trust.certificates import Certificate
from federator.protocol.trust.greetings import AGREEMENT_NAME_BYTES
from federator.protocol.trust.primitives import Cipher, Identity

KEYS_KEPT: Final = 4
"""Recent pairs of halves per neighbour: both sides may be changing certificates."""

CHANNELS: Final = 3
"""Control messages, frames and datagrams: each has a window of its own."""

KEY_NAME_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class KeyAgreement:
    """One side's half, since its start or its last change of certificate."""

    data: bytes  # the certificate, as signed by the federation key
    certificate: Certificate  # the same, decoded
    salt: bytes  # drawn at this start
    name: bytes  # names this half in greetings


def agreement_half(data: bytes, certificate: Certificate, salt: bytes) -> KeyAgreement:
    name = blake2b(data + salt, digest_size=AGREEMENT_NAME_BYTES).digest()
    return KeyAgreement(data, certificate, salt, name)


@dataclass(frozen=True, slots=True)
class Keys:
    """The ciphers of both directions under one key agreement."""

    name: bytes
    ours: Cipher
    theirs: Cipher


@dataclass(slots=True)
class Peer:
    """A neighbour after the handshake."""

    agreement: KeyAgreement  # its newest half of the key agreement
    counter: int = 0  # the counter of its last greeting
    willed: int = -1  # the newest connection of which the Will came
    holds: bytes = b""  # the name of the half of ours that it announced to have
    # Numbers of its seals already received, by channel.
    windows: tuple[SeenNumbers, ...] = field(
        default_factory=lambda: tuple(SeenNumbers() for _ in range(CHANNELS))
    )
    _keys: Recent[bytes, Keys] = field(default_factory=lambda: Recent(KEYS_KEPT))
    _current: tuple[bytes, bytes, Keys, bytes] | None = None

    def admit(self, channel: int, counter: int) -> bool:
        """Whether a seal with this number is new; records it."""
        return self.windows[channel].admit(counter)

    def keys_to(self, ours: KeyAgreement, identity: Identity, federation: str) -> Keys | None:
        """The keys to seal with; ``None`` while the peer does not have our half.

        A peer that has not received our new certificate yet gets seals under the old keys.
        """
        current = self._current
        if current is None or current[:2] != (ours.name, self.agreement.name):
            if self.holds == ours.name:
                keys = self.learn(ours, identity, federation)
                if keys is None:
                    return None
                self._current = (ours.name, self.agreement.name, keys, self.agreement.salt)
            elif current is not None and current[3] != self.agreement.salt:
                self._current = None
        return None if self._current is None else self._current[2]

    def learn(self, ours: KeyAgreement, identity: Identity, federation: str) -> Keys | None:
        """Derive the keys of ``ours`` and the peer's newest half, and accept seals under them."""
        name = key_name(ours, self.agreement)
        keys = self._keys.get(name)
        if keys is None:
            keys = derive(ours, self.agreement, identity, federation)
            if keys is None:
                return None
            self._keys.put(name, keys)
        return keys

    def understood(self, name: bytes) -> Keys | None:
        """The keys with that name, if they are recent."""
        return self._keys.get(name)


def key_name(one: KeyAgreement, other: KeyAgreement) -> bytes:
    """The name of the keys in a seal: the same on both sides."""
    names = b"".join(sorted((one.name, other.name)))
    return blake2b(names, digest_size=KEY_NAME_BYTES).digest()


def derive(
    ours: KeyAgreement, theirs: KeyAgreement, identity: Identity, federation: str
) -> Keys | None:
    """The keys of two halves; ``None`` when the other half is unusable."""
    salt = b"".join(sorted((ours.name + ours.salt, theirs.name + theirs.salt)))
    us, them = ours.certificate.id, theirs.certificate.id
    exchange_key = theirs.certificate.exchange_key

    def towards(sender: int, receiver: int) -> Cipher | None:
        info = b"federator link 1\0" + federation.encode() + struct.pack(">II", sender, receiver)
        return identity.agree(exchange_key, salt=salt, info=info)

    out, back = towards(us, them), towards(them, us)
    if out is None or back is None:
        return None
    return Keys(key_name(ours, theirs), out, back)
