"""The files of a signed federation: small JSON objects, one per file, bytes in base64.

The federation key and agents' keys hold secrets and must be closed to others; public keys and
revocations may be read by anybody.

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
    """What all key files have: the federation, and the version of the format."""

    version: Literal[1] = 1
    federation: _Name


class FederationKey(KeyFile, frozen=True, kw_only=True, tag="federation key"):
    """The operator's secret. Whoever has it is the federation."""

    secret: _Key


class FederationPublic(KeyFile, frozen=True, kw_only=True, tag="federation public key"):
    """The public key that agents trust."""

    key: _Key


class AgentKeys(KeyFile, frozen=True, kw_only=True, tag="agent key"):
    """Two secrets of an agent or of who has another role, and its certificate as the federation
    key signed it, which says what it is.
    """

    id: Id
    signing: _Key
    exchange: _Key
    certificate: bytes


class RevocationFile(KeyFile, frozen=True, kw_only=True, tag="revocations"):
    """The newest list of revoked certificates, as the federation key signed it."""

    revocations: bytes


AnyKeyFile = FederationKey | FederationPublic | AgentKeys | RevocationFile
_P = TypeVar("_P", bound=KeyFile)
_decoder: Final[msgspec.json.Decoder[AnyKeyFile]] = msgspec.json.Decoder(AnyKeyFile)


def write_key_file(key_file: KeyFile) -> bytes:
    """The text of ``key_file``."""
    return msgspec.json.format(msgspec.json.encode(key_file), indent=2) + b"\n"


def read_key_file(text: bytes, kind: type[_P]) -> _P:
    """The key file with this text.

    Raises:
        DecodeError: It is none, or another kind of key file.
    """
    found = read_any_key_file(text)
    if not isinstance(found, kind):
        raise DecodeError(f"holds a {_tag(type(found))}, wanted is a {_tag(kind)}")
    return found


def read_any_key_file(text: bytes) -> AnyKeyFile:
    """The key file with this text, of whatever kind; see ``read_key_file``."""
    told = json_value("no key file", text, KEY_FILE_BYTES_MAX)
    if not isinstance(told, dict) or "paper" not in told:
        raise DecodeError("no key file: `federator keys` makes them")
    return decoded(_decoder, "no key file", text, KEY_FILE_BYTES_MAX)


def holder_of(keys: AgentKeys) -> Certificate:
    """Whose ``keys`` are, as their certificate says; its signature is not looked at.

    Raises:
        DecodeError: There is no certificate.
    """
    return decode_certificate(decode_signed(keys.certificate).text)


def _tag(kind: type[KeyFile]) -> str:
    return str(kind.__struct_config__.tag)
