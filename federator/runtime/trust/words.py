"""Signed words at work: said with the key of one part, and judged; what is not believed is told.

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
"""What of a reason its sender chose: nobody shall fill our log by choosing again and again."""

_log = structlog.get_logger()


class SignedWords:
    """The words of one part of a federation; without keys nothing is signed, and all believed.

    Args:
        authority: Judges certificates; ``None``: there are no keys.
        vouch: Signs a text; ``None``: we have no key of our own.
        required: Whose words must be proven.

    Attributes:
        refused: What was turned away, by topic.
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
        """Whether we have a key, so that what we say is signed."""
        return self._signer is not None

    @property
    def judges(self) -> bool:
        """Whether we have keys to judge by, so that a proof says something."""
        return self._judge is not None

    def sign(self, topic: str, body: bytes, *, to: bytes = NOBODY, is_will: bool = False) -> bytes:
        """Return ``body`` with our proof, if we have a key; see ``WordSigner.sign``."""
        if self._signer is None:
            return body
        return self._signer.sign(topic, body, to=to, is_will=is_will)

    def believes(self, topic: str, payload: bytes, wanted: Wanted) -> bool:
        """Whether to believe a word; see ``WordJudge.check``."""
        if self._judge is None:
            return True
        try:
            self._judge.check(topic, payload, wanted)
        except DecodeError as error:
            self.refuse(topic.split("/")[2], error)  # what follows may be a secret
            return False
        return True

    def is_gateways(
        self, broker: BrokerId, packet: PublishPacket, name: str, *, again: bool = False
    ) -> bool:
        """Whether the gateway of that name said it at ``broker``; the newest also ``again``."""
        wanted = Wanted("gateway", name, to=at(broker), ages=True, stays=again)
        return self.believes(packet.topic, packet.payload, wanted)

    def is_collectors(self, broker: BrokerId, packet: PublishPacket, run: str) -> bool:
        """Whether a collector said it at ``broker``, once in that ``run``, which it names."""
        wanted = Wanted("collector", to=at(broker), place=run, ages=True)
        return self.believes(packet.topic, packet.payload, wanted)

    def is_agents(
        self, broker: BrokerId, topic: str, payload: bytes, *, again: bool = False
    ) -> bool:
        """Whether the agent of ``broker`` said it on ``topic``; the newest also ``again``."""
        return self.believes(topic, payload, Wanted("agent", str(broker), stays=again))

    def refuse(self, kind: str, error: DecodeError) -> None:
        """Count what is not believed, and say why."""
        self.refused[kind] += 1
        reason = str(error)[:200]
        if self._complaints.allow(f"{kind}: {_CHOSEN.sub('', reason)}", monotonic_ms()):
            so_far = self.refused[kind]
            _log.warning("trust.refused", kind=kind, reason=reason, so_far=so_far)


class FollowedWords(SignedWords):
    """The words of a gateway or a collector, under keys that are kept up with their files.

    Args:
        keys: The files.
        read_own: Reads the key of our own, if we have one.
        required: Whose words must be proven.

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
        """Follow key files that changed."""
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
            told = authority.judge(own.certificate, now_s=now_s, role=role)
            if self._own is not None:
                _log.info("trust.certificate_changed", serial=told.serial.hex())
            self._own, self._signer = own, _signer(vouch_by(own))
        self._authority.retrust(trusted)
        if news and revocations is not None:
            self._authority.revoke(revocations)


def vouch_by(keys: AgentKeys | None) -> Callable[[bytes], bytes] | None:
    """What signs with a key that was given to a gateway, a collector or an operator."""
    if keys is None:
        return None
    own, certificate = identity(keys), keys.certificate
    return lambda text: prove(text, certificate, own)


def _signer(vouch: Callable[[bytes], bytes] | None) -> WordSigner | None:
    return None if vouch is None else WordSigner(vouch, wall_clock_us)
