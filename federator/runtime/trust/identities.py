"""Cryptography for agents with keys: imported with the first key.

It takes 7 MB, which an agent of an open federation does not need.
"""

from typing import TYPE_CHECKING

from federator.protocol.trust.key_files import AgentKeys

if TYPE_CHECKING:
    from federator.runtime.trust.crypto import SecretIdentity


def identity(keys: AgentKeys) -> "SecretIdentity":
    from federator.runtime.trust import crypto  # noqa: PLC0415 - as above

    return crypto.SecretIdentity(keys.signing, keys.exchange)


def verify(public_key: bytes, signature: bytes, text: bytes) -> bool:
    """As ``crypto.verify``."""
    from federator.runtime.trust import crypto  # noqa: PLC0415 - as above

    return crypto.verify(public_key, signature, text)
