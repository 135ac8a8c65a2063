"""Signed words at work: said with the key of one part, and judged; what is not believed is told.

Source: docs/security.md, "Roles".
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from federator.config.security import TrustSettings
from federator.errors import ConfigError, DecodeError
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.trust.authority import Authority
from federator.protocol.trust.certificates import Role
from federator.protocol.trust.key_files import AgentKeys, holder_of
from federator.protocol.trust.proofs import prove
from federator.protocol.trust.words import NOBODY, Wanted, WordJudge, WordSigner
from federator.protocol.types import Millis
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us
from federator.runtime.trust.crypto import SecretIdentity, verify

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
        self._signer = None if vouch is None else WordSigner(vouch, wall_clock_us)
        self._judge = None
        if authority is not None:
            self._judge = WordJudge(authority, verify, wall_clock_us, required)

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
            self.refuse(topic.rpartition("/")[2], error)
            return False
        return True

    def refuse(self, kind: str, error: DecodeError) -> None:
        """Count what is not believed, and say why."""
        self.refused[kind] += 1
        reason = str(error)[:200]
        if self._complaints.allow(f"{kind}: {_CHOSEN.sub('', reason)}", monotonic_ms()):
            so_far = self.refused[kind]
            _log.warning("trust.refused", kind=kind, reason=reason, so_far=so_far)


def words_of(
    federation: str, keys: TrustSettings, *, own: AgentKeys | None, required: Iterable[Role]
) -> SignedWords:
    """The words of whoever is no agent.

    Raises:
        ConfigError: Its keys cannot be used.
    """
    if not keys.federation_files:
        return SignedWords(None)
    authority = Authority(federation, keys.federation_keys(federation), verify)
    try:
        if (revocations := keys.revocations()) is not None:
            authority.revoke(revocations)
        if own is not None:
            now_s = wall_clock_us() // 1_000_000
            authority.judge(own.certificate, now_s=now_s, role=holder_of(own).role)
    except DecodeError as error:
        raise ConfigError(f"keys: {error}: issue another", exit_code=78) from error
    return SignedWords(authority, vouch=vouch_by(own), required=required)


def vouch_by(keys: AgentKeys | None) -> Callable[[bytes], bytes] | None:
    """What signs with a key that was given to a gateway or an operator."""
    if keys is None:
        return None
    identity, certificate = SecretIdentity(keys.signing, keys.exchange), keys.certificate
    return lambda text: prove(text, certificate, identity)
