"""Signed messages at work: signed with the key of one part, verified, and logged when refused.

Source: docs/security.md, "Roles".
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog
from mqtt5 import PublishPacket

from federator.config.security import TrustSettings
from federator.errors import ConfigError, DecodeError
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.trust.authority import Authority
from federator.protocol.trust.certificates import Role
from federator.protocol.trust.key_files import AgentKeys, holder_of
from federator.protocol.trust.proofs import prove
from federator.protocol.trust.words import NOBODY, Wanted, WordJudge, WordSigner, at
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us
from federator.runtime.trust.identities import identity, verify
from federator.runtime.trust.key_files import FILES_CHECKED_S, KeyFiles, take_up

COMPLAINT_GAP_MS: Final = Millis(60_000)
COMPLAINTS_MAX: Final = 256

_CHOSEN: Final = re.compile(r"[0-9a-f]{6,}|\d+|'[^']*'|\"[^\"]*\"|`[^`]*`")
"""The parts of a reason that its sender chose: varying them must not fill our log."""

_log = structlog.get_logger()


class SignedWords:
    """Signs and verifies for one part of a federation; without keys, signs nothing, believes all.

    Args:
        authority: Verifies certificates; ``None``: there are no keys.
        vouch: Signs a text; ``None``: we have no key of our own.
        required: Roles that must sign.

    Attributes:
        refused: Refused messages by topic.
    """

    def __init__(
        self,
        authority: Authority | None,
        *,
        vouch: Callable[[bytes], bytes] | None = None,
        required: Iterable[Role] = (),
    ) -> None:
        self.refused: Counter[str] = Counter()
        self._complaints: RateLimiter[str] = RateLimiter(
            gap_ms=COMPLAINT_GAP_MS, keys_max=COMPLAINTS_MAX
        )
        self._signer = _signer(vouch)
        self._judge = None
        if authority is not None:
            self._judge = WordJudge(authority, verify, wall_clock_us, required)

    @property
    def signs(self) -> bool:
        """Whether we have a key to sign with."""
        return self._signer is not None

    @property
    def judges(self) -> bool:
        """Whether we have keys to verify with."""
        return self._judge is not None

    def sign(self, topic: str, body: bytes, *, to: bytes = NOBODY, is_will: bool = False) -> bytes:
        """Return ``body`` with our proof, if we have a key; see ``WordSigner.sign``."""
        if self._signer is None:
            return body
        return self._signer.sign(topic, body, to=to, is_will=is_will)

    def believes(self, topic: str, payload: bytes, wanted: Wanted) -> bool:
        """Whether a message is authentic; see ``WordJudge.check``."""
        if self._judge is None:
            return True
        try:
            self._judge.check(topic, payload, wanted)
        except DecodeError as error:
            self.refuse(topic.split("/")[2], error)  # the rest may be a secret
            return False
        return True

    def is_gateways(
        self, broker: BrokerId, packet: PublishPacket, name: str, *, again: bool = False
    ) -> bool:
        """Whether that gateway sent it at ``broker``; the newest also ``again``."""
        wanted = Wanted("gateway", name, to=at(broker), ages=True, stays=again)
        return self.believes(packet.topic, packet.payload, wanted)

    def is_collectors(self, broker: BrokerId, packet: PublishPacket, run: str) -> bool:
        """Whether a collector sent it at ``broker``, once in that ``run``, which it names."""
        wanted = Wanted("collector", to=at(broker), place=run, ages=True)
        return self.believes(packet.topic, packet.payload, wanted)

    def is_agents(
        self, broker: BrokerId, topic: str, payload: bytes, *, again: bool = False
    ) -> bool:
        """Whether the agent of ``broker`` sent it on ``topic``; the newest also ``again``."""
        return self.believes(topic, payload, Wanted("agent", str(broker), stays=again))

    def refuse(self, kind: str, error: DecodeError) -> None:
        """Count a refused message, and log why."""
        self.refused[kind] += 1
        reason = str(error)[:200]
        if self._complaints.allow(f"{kind}: {_CHOSEN.sub('', reason)}", monotonic_ms()):
            so_far = self.refused[kind]
            _log.warning("trust.refused", kind=kind, reason=reason, so_far=so_far)


class FollowedWords(SignedWords):
    """Signs and verifies for a gateway or a collector, with keys that follow their files.

    Args:
        keys: The files.
        read_own: Reads our own key, if we have one.
        required: Roles that must sign.

    Raises:
        ConfigError: The keys cannot be used.
    """

    def __init__(
        self,
        federation: str,
        keys: TrustSettings,
        *,
        own_file: Path | None = None,
        read_own: Callable[[], AgentKeys | None] = lambda: None,
        required: Iterable[Role],
    ) -> None:
        self._federation, self._keys, self._read_own = federation, keys, read_own
        self._authority = Authority(federation, (), verify)
        self._own: AgentKeys | None = None
        super().__init__(self._authority if keys.federation_files else None, required=required)
        self._files = KeyFiles([own_file, *keys.federation_files, keys.revocations_file])
        try:
            self._load()
        except DecodeError as error:
            raise ConfigError(f"keys: {error}: issue another", exit_code=78) from error

    async def run(self) -> None:
        """Follow the files until cancelled."""
        while True:
            await asyncio.sleep(FILES_CHECKED_S)
            self.follow_files()

    def follow_files(self) -> None:
        """Apply changed key files."""
        if self._own is not None:
            self._files.tell_expiry(holder_of(self._own).expires_s)
        before = self._authority.revocations
        self._files.follow(self._load)
        if self._authority.revocations != before:
            _log.warning("trust.revocations", lists=len(self._authority.revocations))

    def _load(self) -> None:
        trusted = self._keys.federation_keys(self._federation)
        own, revocations = self._read_own(), self._keys.revocations()
        authority = self._authority.trusting(trusted)  # nothing changes unless all is well
        news = take_up(revocations, authority)
        if own is not None and own != self._own:
            now_s, role = wall_clock_us() // 1_000_000, holder_of(own).role
            certificate = authority.judge(own.certificate, now_s=now_s, role=role)
            if self._own is not None:
                _log.info("trust.certificate_changed", serial=certificate.serial.hex())
            self._own, self._signer = own, _signer(vouch_by(own))
        self._authority.retrust(trusted)
        if news and revocations is not None:
            self._authority.revoke(revocations)


def vouch_by(keys: AgentKeys | None) -> Callable[[bytes], bytes] | None:
    """A signer with a key issued to a gateway, a collector or an operator."""
    if keys is None:
        return None
    own, certificate = identity(keys), keys.certificate
    return lambda text: prove(text, certificate, own)


def _signer(vouch: Callable[[bytes], bytes] | None) -> WordSigner | None:
    return None if vouch is None else WordSigner(vouch, wall_clock_us)
