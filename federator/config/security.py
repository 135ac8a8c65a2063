"""Key files named in the configuration, read and checked before an agent starts.

Reading an unusable file raises ``ConfigError``.

Source: docs/security.md, "Files".
"""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from annotated_types import MaxLen

from federator.config.section import SecretFile, Section, unusable, wrong
from federator.errors import DecodeError
from federator.protocol.trust.certificates import Role
from federator.protocol.trust.key_files import (
    KEY_FILE_BYTES_MAX,
    AgentKeys,
    FederationPublic,
    RevocationFile,
    holder_of,
    read_key_file,
)

FEDERATION_KEYS_MAX = 16
REVOCATIONS_KEPT = "revocations"
"""The file in the state directory with the revocation lists that the agent received."""

_P = TypeVar("_P", AgentKeys, FederationPublic, RevocationFile)

Security = Literal["signed", "sealed", "proven", "open"]


Roles = Literal["wanted", "required"]


class TrustSettings(Section):
    """Trusted keys: files that ``federator keys`` made. They are read again when they change."""

    federation_files: Annotated[tuple[Path, ...], MaxLen(FEDERATION_KEYS_MAX)] = ()
    """Public federation keys to trust; several while keys are being changed."""
    revocations_file: Path | None = None
    """List of revoked certificates. One agent that has it is enough: the others receive it from
    their neighbours."""

    def federation_keys(self, federation: str) -> list[bytes]:
        """The public keys that ``federation_files`` hold."""
        keys = []
        for index, path in enumerate(self.federation_files):
            at = f"keys.federation_files[{index}]"
            public = _read(path, FederationPublic, at)
            if public.federation != federation:
                what = f"{path} is the key of federation {public.federation!r}"
                raise unusable(f"{at}: {what}, ours is {federation!r}: name ours")
            keys.append(public.key)
        return keys

    def revocations(self) -> bytes | None:
        """The revocations in ``revocations_file``, if it is configured and exists."""
        if self.revocations_file is None or not self.revocations_file.exists():
            return None
        return _read(self.revocations_file, RevocationFile, "keys.revocations_file").revocations


class KeySettings(TrustSettings):
    """Files that ``federator keys`` made. They are read again when they change."""

    agent_file: Annotated[Path | None, SecretFile.KEY] = None
    """This agent's key and certificate; closed to others."""
    operator_file: Annotated[Path | None, SecretFile.KEY] = None
    """An operator's key, with which `federator drain` signs; closed to others."""
    roles: Roles = "wanted"
    """Messages of gateways, operators and collectors: "required": accepted only with a key of that
    role; "wanted": also without, unless their sender has used a key before."""

    @property
    def whole(self) -> bool:
        """Whether all keys for a signed start are configured."""
        return self.agent_file is not None and len(self.federation_files) > 0

    def agent_keys(self) -> AgentKeys:
        """This agent's key and certificate from ``agent_file``."""
        assert self.agent_file is not None, "settings in signed mode name it"
        return _read(self.agent_file, AgentKeys, "keys.agent_file")


class GatewayKeySettings(TrustSettings):
    """Trusted keys, and our own: files that ``federator keys`` made, read again when they change.
    With federation_files agents must sign their guides, with gateway_file their answers."""

    gateway_file: Annotated[Path | None, SecretFile.KEY] = None
    """This gateway's key and certificate; closed to others."""
    roles: Roles = "wanted"
    """Messages of other gateways: "required": accepted only with a gateway's key; "wanted": also
    without, unless their sender has used a key before."""

    def own_keys(self, name: str) -> AgentKeys | None:
        """The key in ``gateway_file``, of the gateway of that name."""
        keys = role_keys(self.gateway_file, "gateway", "keys.gateway_file")
        if keys is not None and (holder_of(keys).name != name or not self.federation_files):
            text = f"keys.gateway_file: {self.gateway_file} is of {holder_of(keys).holder}: "
            text += f"name the key of gateway {name}, and federation_files"
            raise unusable(text)
        return keys


class _OwnKeySettings(TrustSettings):
    """Trusted keys, and our own, for our role: in the key ``ROLE_file``."""

    ROLE: ClassVar[Role]

    @property
    def own_key(self) -> str:
        """The configuration key of our key file."""
        return f"{self.ROLE}_file"

    @property
    def own_file(self) -> Path | None:
        """Our key file, if configured."""
        file: Path | None = getattr(self, self.own_key)
        return file

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.own_file is not None and not self.federation_files:
            raise wrong(self.own_key, f"{self.own_key} alone", "add federation_files")

    def own_keys(self) -> AgentKeys | None:
        """The key in our file."""
        return role_keys(self.own_file, self.ROLE, f"keys.{self.own_key}")


class CollectorKeySettings(_OwnKeySettings):
    """Trusted keys, and our own: files that ``federator keys`` made, read again when they change.
    With federation_files agents must sign all that we read."""

    ROLE: ClassVar[Role] = "collector"

    collector_file: Annotated[Path | None, SecretFile.KEY] = None
    """This collector's key and certificate; closed to others. Several may have the same."""


class SteererKeySettings(_OwnKeySettings):
    """Trusted keys, and our own: files that ``federator keys`` made, read again when they change.
    With federation_files agents must sign their loads, and steerers their plans."""

    ROLE: ClassVar[Role] = "steerer"

    steerer_file: Annotated[Path | None, SecretFile.KEY] = None
    """This steerer's key and certificate; closed to others. Agents with keys follow signed plans
    only."""


class ConsoleKeySettings(_OwnKeySettings):
    """Trusted keys, and our own: files that ``federator keys`` made, read again when they change.
    With federation_files agents must sign all that we read but health."""

    ROLE: ClassVar[Role] = "operator"

    operator_file: Annotated[Path | None, SecretFile.KEY] = None
    """An operator's key and certificate, with which the console signs its requests to agents and
    the orders of signed-in operators; closed to others. Agents with keys.roles = "required" answer
    no others."""


def role_keys(path: Path | None, role: Role, at: str) -> AgentKeys | None:
    """The key in ``path``, of ``role``, if a file is named; ``at`` is the configuration key or
    option."""
    keys = None if path is None else _read(path, AgentKeys, at)
    if keys is not None and (holder := holder_of(keys)).role != role:
        raise unusable(f"{at}: {path} is of {holder.holder}: name the key of one {role}")
    return keys


def _read(path: Path, kind: type[_P], at: str) -> _P:
    try:
        with path.open("rb") as file:
            found = read_key_file(file.read(KEY_FILE_BYTES_MAX + 1), kind)
        if isinstance(found, AgentKeys):
            holder_of(found)
        return found
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise unusable(f"{at}: {path}: {reason}: correct the path") from error
    except DecodeError as error:
        raise unusable(f"{at}: {path}: {error}: make it with federator keys") from error
