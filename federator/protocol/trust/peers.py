"""One neighbour and the keys we share with it.

Each side's half of the key agreement is its certificate and the salt of its start. A key belongs to
a pair of halves and a direction, so after any restart, and after any change of certificates, keys
are others, and what was recorded before opens nothing. A side speaks under a new pair only when the
other said that it holds our half; it understands all recent pairs. So keys change under way without
a lost message.

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
"""Pairs of halves understood per neighbour: both sides may be changing certificates."""

CHANNELS: Final = 3
"""Control messages, frames and datagrams: each has a window of its own."""

KEY_NAME_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class KeyAgreement:
    """One side's half, since its start or its last change of certificate."""

    data: bytes  # the certificate, as the federation key signed it
    certificate: Certificate  # what it says
    salt: bytes  # drawn at this start
    name: bytes  # by which the other side says that it holds this half


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
    """A neighbour that shook hands."""

    agreement: KeyAgreement  # its newest half of the key agreement
    counter: int = 0  # the counter of its last greeting
    willed: int = -1  # the newest connection of which a Will came
    holds: bytes = b""  # the name of the half of ours that it said to hold
    # Numbers of its seals that came before, by channel.
    windows: tuple[SeenNumbers, ...] = field(
        default_factory=lambda: tuple(SeenNumbers() for _ in range(CHANNELS))
    )
    _keys: Recent[bytes, Keys] = field(default_factory=lambda: Recent(KEYS_KEPT))
    _current: tuple[bytes, bytes, Keys, bytes] | None = None

    def admit(self, channel: int, counter: int) -> bool:
        """Whether a seal with this number has not come before."""
        return self.windows[channel].admit(counter)

    def keys_to(self, ours: KeyAgreement, identity: Identity, federation: str) -> Keys | None:
        """The keys to speak under; ``None`` while the peer does not hold our half.

        A peer that has not heard of our new certificate yet is spoken to under the old one's keys.
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
        """Make the keys between ``ours`` and the peer's newest half, and understand them."""
        name = key_name(ours, self.agreement)
        known = self._keys.get(name)
        if known is None:
            known = derive(ours, self.agreement, identity, federation)
            if known is None:
                return None
            self._keys.put(name, known)
        return known

    def understood(self, name: bytes) -> Keys | None:
        """The keys with that name, if they are recent."""
        return self._keys.get(name)


def key_name(one: KeyAgreement, other: KeyAgreement) -> bytes:
    """What a seal says of the keys it is under: the same from both sides."""
    names = b"".join(sorted((one.name, other.name)))
    return blake2b(names, digest_size=KEY_NAME_BYTES).digest()


def derive(
    ours: KeyAgreement, theirs: KeyAgreement, identity: Identity, federation: str
) -> Keys | None:
    """The keys of two halves; ``None`` when the other's is unusable."""
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
