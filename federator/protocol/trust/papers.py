"""The files of a signed federation: small JSON objects, one per file, bytes in base64.

The federation key and agents' papers hold secrets and must be closed to others; public keys and
revocations may be read by anybody.

Source: docs/security.md, "Files".
"""

from typing import Annotated, Final, Literal, TypeVar

import msgspec

from federator.errors import DecodeError
from federator.protocol.types import BROKER_ID_MAX, BrokerId

PAPER_BYTES_MAX: Final = 262_144

_Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class Paper(msgspec.Struct, frozen=True, kw_only=True, tag_field="paper"):
    """What all have: the federation, and the version of the format."""

    version: Literal[1] = 1
    federation: _Name


class FederationKey(Paper, frozen=True, kw_only=True, tag="federation key"):
    """The operator's secret. Whoever has it is the federation."""

    secret: _Key


class FederationPublic(Paper, frozen=True, kw_only=True, tag="federation public key"):
    """What agents trust."""

    key: _Key


class AgentPapers(Paper, frozen=True, kw_only=True, tag="agent key"):
    """One agent's two secrets, and its certificate as the federation key signed it."""

    id: Annotated[BrokerId, msgspec.Meta(ge=0, le=BROKER_ID_MAX)]
    signing: _Key
    exchange: _Key
    certificate: bytes


class RevocationPaper(Paper, frozen=True, kw_only=True, tag="revocations"):
    """The newest list, as the federation key signed it."""

    revocations: bytes


AnyPaper = FederationKey | FederationPublic | AgentPapers | RevocationPaper
_P = TypeVar("_P", bound=Paper)
_decoder: Final[msgspec.json.Decoder[AnyPaper]] = msgspec.json.Decoder(AnyPaper)


def write_paper(paper: Paper) -> bytes:
    """The text of a file."""
    return msgspec.json.format(msgspec.json.encode(paper), indent=2) + b"\n"


def read_paper(text: bytes, kind: type[_P]) -> _P:
    """The paper in a file's text.

    Raises:
        DecodeError: It is none, or another kind of paper.
    """
    found = read_any_paper(text)
    if not isinstance(found, kind):
        raise DecodeError(f"holds a {_tag(type(found))}, wanted is a {_tag(kind)}")
    return found


def read_any_paper(text: bytes) -> AnyPaper:
    """As ``read_paper``, of whatever kind."""
    if len(text) > PAPER_BYTES_MAX:
        raise DecodeError(f"{len(text)} bytes, at most {PAPER_BYTES_MAX} wanted")
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"no key file ({error})") from error


def _tag(kind: type[Paper]) -> str:
    return str(kind.__struct_config__.tag)
