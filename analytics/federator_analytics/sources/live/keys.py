"""Signed words of a reader of the live stream: its key, and the keys by which it judges agents.

Files are read and checked on the driver, when a query starts. What they hold goes to the executors
with the options, as the broker's password does.

Source: docs/security.md, "Roles"; docs/analytics.md, "The live source".
"""

import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from federator.errors import DecodeError
from federator.protocol.trust.authority import Authority
from federator.protocol.trust.key_files import (
    KEY_FILE_BYTES_MAX,
    AgentKeys,
    FederationPublic,
    KeyFile,
    RevocationFile,
    read_key_file,
)
from federator.protocol.trust.proofs import prove
from federator.protocol.trust.words import Wanted, WordJudge, WordSigner, at
from federator.protocol.types import BrokerId
from federator.runtime.trust.crypto import SecretIdentity, verify
from federator_analytics.errors import InputMissingError, UsageError

KEY_OPTIONS = ("collectorfile", "federationfiles", "revocationsfile")

_P = TypeVar("_P", bound=KeyFile)


@dataclass(frozen=True)
class Keys:
    """What key files hold. Without federation keys all agents are believed."""

    federation: str
    trusted: tuple[bytes, ...] = ()
    revocations: bytes | None = None
    own: AgentKeys | None = field(default=None, repr=False)

    def authority(self) -> Authority:
        """Who judges certificates by these keys. Raises ``DecodeError``."""
        authority = Authority(self.federation, self.trusted, verify)
        if self.revocations is not None:
            authority.revoke(self.revocations)
        return authority


class Words:
    """What one reader says, and what agents say to it. For one thread at a time."""

    def __init__(self, keys: Keys) -> None:
        self._judge = self._signer = None
        if keys.trusted:
            self._judge = WordJudge(keys.authority(), verify, _now_us, ["agent"])
        if (own := keys.own) is not None:
            identity = SecretIdentity(own.signing, own.exchange)
            self._signer = WordSigner(lambda text: prove(text, own.certificate, identity), _now_us)

    def sign(self, topic: str, body: bytes, *, broker: int) -> bytes:
        """Return ``body`` for who is at ``broker``, with our proof, if we have a key."""
        if self._signer is None:
            return body
        return self._signer.sign(topic, body, to=at(BrokerId(broker)))

    def check(self, topic: str, payload: bytes, *, broker: int, again: bool = False) -> None:
        """Accept what the agent of ``broker`` says; the newest also ``again``.

        Raises ``DecodeError``: It is not to be believed.
        """
        if self._judge is not None:
            self._judge.check(topic, payload, Wanted("agent", str(broker), stays=again))


def read_keys(given: Mapping[str, str], federation: str) -> Keys:
    """The keys in the files that the options name.

    Raises:
        UsageError: One is of no use.
        InputMissingError: One cannot be read.
    """
    names = [name.strip() for name in given.get("federationfiles", "").split(",") if name.strip()]
    publics = [_read(name, "federationFiles", FederationPublic) for name in names]
    revoked, own = given.get("revocationsfile"), given.get("collectorfile")
    if not names and (revoked or own):
        raise UsageError("federator_mqtt: federationFiles is wanted beside other keys")
    for name, public in zip(names, publics, strict=True):
        if public.federation != federation:
            what = f"the key of federation {public.federation!r}, {federation!r} is wanted"
            raise UsageError(f"federator_mqtt: federationFiles {name}: {what}")
    keys = Keys(
        federation,
        tuple(public.key for public in publics),
        _read(revoked, "revocationsFile", RevocationFile).revocations if revoked else None,
        _read(own, "collectorFile", AgentKeys) if own else None,
    )
    try:
        authority = keys.authority()
        if keys.own is not None:
            now_s = _now_us() // 1_000_000
            authority.judge(keys.own.certificate, now_s=now_s, role="collector")
    except DecodeError as error:
        raise UsageError(f"federator_mqtt: keys: {error}: issue another") from error
    return keys


def _read(name: str, key: str, kind: type[_P]) -> _P:
    try:
        with Path(name).open("rb") as file:
            found = read_key_file(file.read(KEY_FILE_BYTES_MAX + 1), kind)
            is_open = Path(name).stat().st_mode & stat.S_IRWXO
    except OSError as error:
        raise InputMissingError(f"federator_mqtt: {key} {name}: {error.strerror}") from error
    except DecodeError as error:
        raise UsageError(f"federator_mqtt: {key} {name}: {error}") from error
    if is_open and isinstance(found, AgentKeys):
        raise UsageError(f"federator_mqtt: {key} {name} is open to others: chmod o= {name}")
    return found


def _now_us() -> int:
    return time.time_ns() // 1_000
