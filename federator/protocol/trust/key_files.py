"""The files of a signed federation: small JSON objects, one per file, bytes in base64.

The federation key and agents' keys are secret and must not be readable by others; public keys and
revocations may be.

Source: docs/security.md, "Files".
"""

from typing import Annotated, Final, Literal, TypeVar

import msgspec

from federator.errors import DecodeError
from federator.protocol.messages.fields import Id, decoded, json_value
from federator.protocol.trust.certificates import Certificate, decode_certificate, decode_signed

KEY_FILE_BYTES_MAX: Final = 262_144

_Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class KeyFile(msgspec.Struct, frozen=True, kw_only=True, tag_field="paper"):
    """Fields of all key files: the federation, and the version of the format."""

    version: Literal[1] = 1
    federation: _Name


class FederationKey(KeyFile, frozen=True, kw_only=True, tag="federation key"):
    """The operator's secret, which can issue certificates."""

    secret: _Key


class FederationPublic(KeyFile, frozen=True, kw_only=True, tag="federation public key"):
    """The public key that agents trust."""

    key: _Key


class AgentKeys(KeyFile, frozen=True, kw_only=True, tag="agent key"):
    """The two secrets of an agent or of a holder of another role, and the certificate.

    The federation key signed the certificate, which names the role.
    """

    id: Id
    signing: _Key
    exchange: _Key
    certificate: bytes


class RevocationFile(KeyFile, frozen=True, kw_only=True, tag="revocations"):
    """The newest list of revoked certificates, signed by the federation key."""

    revocations: bytes


AnyKeyFile = FederationKey | FederationPublic | AgentKeys | RevocationFile
_P = TypeVar("_P", bound=KeyFile)
_decoder: Final[msgspec.json.Decoder[AnyKeyFile]] = msgspec.json.Decoder(AnyKeyFile)


def write_key_file(key_file: KeyFile) -> bytes:
    """The text of ``key_file``."""
    return msgspec.json.format(msgspec.json.encode(key_file), indent=2) + b"\n"


def read_key_file(text: bytes, kind: type[_P]) -> _P:
    """Decode a key file.

    Raises:
        DecodeError: ``text`` is no key file, or one of another kind.
    """
    key_file = read_any_key_file(text)
    if not isinstance(key_file, kind):
        raise DecodeError(f"holds a {_tag(type(key_file))}, wanted is a {_tag(kind)}")
    return key_file


def read_any_key_file(text: bytes) -> AnyKeyFile:
    """Decode a key file of any kind; see ``read_key_file``."""
    value = json_value("no key file", text, KEY_FILE_BYTES_MAX)
    if not isinstance(value, dict) or "paper" not in value:
        raise DecodeError("no key file: `federator keys` makes them")
    return decoded(_decoder, "no key file", text, KEY_FILE_BYTES_MAX)


def holder_of(keys: AgentKeys) -> Certificate:
    """The certificate of ``keys``, with its signature not verified.

    Raises:
        DecodeError: There is no certificate.
    """
    return decode_certificate(decode_signed(keys.certificate).text)


def _tag(kind: type[KeyFile]) -> str:
    return str(kind.__struct_config__.tag)
