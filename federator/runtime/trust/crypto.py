"""The cryptography for ``protocol.trust``, by pyca/cryptography.

Ed25519 signs, X25519 agrees, HKDF-SHA256 derives keys, AES-256-GCM seals: with an empty text it is
a keyed MAC, and on processors with AES and carry-less multiplication cheaper than any hash.

Measured here, 150 B and 8 kB: GMAC 0.6 and 1.1 us, keyed BLAKE2b 0.9 and 12 us, HMAC-SHA256 2.1 and
10 us; Ed25519 signs in 39 us and verifies in 133 us.
"""

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32


def verify(public_key: bytes, signature: bytes, text: bytes) -> bool:
    """Whether the holder of the Ed25519 key signed ``text``."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


class AesGcm:
    """A ``Cipher`` of AES-256-GCM."""

    __slots__ = ("_aead", "encrypt")

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)
        self.encrypt = self._aead.encrypt

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes, /) -> bytes | None:
        """The decrypted text; ``None`` when ``data`` is not from ``encrypt``."""
        try:
            return self._aead.decrypt(nonce, data, associated_data)
        except InvalidTag:
            return None


class SecretIdentity:
    """The two secrets of an agent.

    Args:
        signing: Ed25519, 32 bytes.
        exchange: X25519, 32 bytes.
    """

    def __init__(self, signing: bytes, exchange: bytes) -> None:
        self._signing = Ed25519PrivateKey.from_private_bytes(signing)
        self._exchange = X25519PrivateKey.from_private_bytes(exchange)

    @classmethod
    def new(cls) -> "SecretIdentity":
        """An identity with new random secrets."""
        return cls(
            Ed25519PrivateKey.generate().private_bytes_raw(),
            X25519PrivateKey.generate().private_bytes_raw(),
        )

    @property
    def secrets(self) -> tuple[bytes, bytes]:
        """Both secrets, signing and exchange: for the key file only."""
        return self._signing.private_bytes_raw(), self._exchange.private_bytes_raw()

    @property
    def signing_key(self) -> bytes:
        """The public half of the signing key."""
        return self._signing.public_key().public_bytes_raw()

    @property
    def exchange_key(self) -> bytes:
        """The public half of the exchange key."""
        return self._exchange.public_key().public_bytes_raw()

    def sign(self, text: bytes) -> bytes:
        return self._signing.sign(text)

    def agree(self, exchange_key: bytes, *, salt: bytes, info: bytes) -> AesGcm | None:
        """A cipher under a key that only we and the holder of ``exchange_key`` can derive."""
        try:
            secret = self._exchange.exchange(X25519PublicKey.from_public_bytes(exchange_key))
        except ValueError:  # a point of small order: every attacker would know the secret
            return None
        return AesGcm(HKDF(SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(secret))
