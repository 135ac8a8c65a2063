"""Interfaces to cryptography that the protocol uses; ``runtime.trust.crypto`` implements them."""

from typing import Protocol

SIGNING_KEY_BYTES = 32
EXCHANGE_KEY_BYTES = 32
SIGNATURE_BYTES = 64
TAG_BYTES = 16


class Cipher(Protocol):
    """Authenticated encryption under one key. A nonce must never be used twice."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes, /) -> bytes:
        """Return ``data`` encrypted under the key, and a tag over it and ``associated_data``."""

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes, /) -> bytes | None:
        """Decrypt ``data``; ``None`` when any input was changed."""


class Verifier(Protocol):
    """Verifies signatures."""

    def __call__(self, public_key: bytes, signature: bytes, text: bytes) -> bool:
        """Whether the holder of ``public_key`` signed ``text``. Never raises."""


class Identity(Protocol):
    """The secret keys of one agent, which are not exposed."""

    def sign(self, text: bytes) -> bytes:
        """Our signature, ``SIGNATURE_BYTES`` long."""

    def agree(self, exchange_key: bytes, *, salt: bytes, info: bytes) -> Cipher | None:
        """A cipher under the key that only we and the holder of ``exchange_key`` can derive.

        ``None`` when ``exchange_key`` is unusable.
        """
