"""Which certificates are valid: the trusted federation keys, and their revocations.

Several federation keys may be trusted at once, which is how keys are changed without an outage:
trust the new one everywhere, issue new certificates, then stop trusting the old one.

Source: docs/security.md, "Keys" and "Changing keys".
"""

from collections.abc import Iterable

from federator.errors import DecodeError
from federator.protocol.trust.certificates import (
    Certificate,
    Revocations,
    Role,
    Signed,
    decode_certificate,
    decode_revocations,
    decode_signed,
    fingerprint,
    signed_text,
)
from federator.protocol.trust.primitives import Verifier

GENUINE_MAX = 4_096
"""Certificates with a verified signature. Their validity is checked every time."""


_CLOCKS = "see the clocks of both hosts"


class DistrustError(DecodeError):
    """A message, certificate or signature is rejected; the text says why."""


class ForgedError(DistrustError):
    """A signature is wrong, which took a verification to find out."""


class Authority:
    """Checks certificates and revocations for one federation by its ``trusted`` public keys."""

    def __init__(self, federation: str, trusted: Iterable[bytes], verify: Verifier) -> None:
        self._federation = federation
        self.trusted = frozenset(trusted)
        self._verify = verify
        self._revoked: dict[bytes, tuple[Revocations, bytes]] = {}  # by issuer
        self._genuine: dict[bytes, tuple[Certificate, bytes]] = {}

    def judge(self, data: bytes, *, now_s: int, role: Role = "agent") -> Certificate:
        """Return the certificate in ``data``, if it is valid now, for that role.

        Raises:
            DistrustError: The certificate is not valid.
            DecodeError: ``data`` is no certificate.
        """
        certificate, issuer = self._genuine.get(data) or self._examine(data)
        if issuer not in self.trusted:
            raise DistrustError(f"signed by key {fingerprint(issuer)}, which is not trusted")
        subject = f"certificate {certificate.serial.hex()} of {certificate.holder}"
        if certificate.federation != self._federation:
            raise DistrustError(f"{subject} is for federation {certificate.federation!r}")
        if certificate.role != role:
            raise DistrustError(f"{subject} does not speak as {role}")
        if now_s < certificate.not_before_s:
            when = f"but in {_span(certificate.not_before_s - now_s)} by our clock"
            raise DistrustError(f"{subject} is not valid yet, {when}: {_CLOCKS}")
        if now_s >= certificate.expires_s:
            when = f"{_span(now_s - certificate.expires_s)} ago by our clock"
            raise DistrustError(f"{subject} has expired, {when}: {_CLOCKS}")
        if issuer in self._revoked and certificate.serial in self._revoked[issuer][0].serials:
            raise DistrustError(f"{subject} is revoked")
        return certificate

    def revoke(self, data: bytes) -> bool:
        """Store a list of revocations; return whether it is new.

        Raises:
            DistrustError: No trusted key signed the list.
            DecodeError: ``data`` is no list of revocations.
        """
        if any(data == entry for _, entry in self._revoked.values()):
            return False
        signed = self._signed(data, Revocations)
        listed = decode_revocations(signed.text)
        if listed.federation != self._federation:
            raise DistrustError(f"revocations are for federation {listed.federation!r}")
        entry = self._revoked.get(signed.issuer)
        if entry is not None and listed.number <= entry[0].number:
            return False
        self._revoked[signed.issuer] = (listed, data)
        return True

    def retrust(self, trusted: Iterable[bytes]) -> None:
        """Trust exactly these federation keys from now on."""
        self.trusted = frozenset(trusted)
        self._revoked = {key: entry for key, entry in self._revoked.items() if key in self.trusted}

    def trusting(self, trusted: Iterable[bytes]) -> "Authority":
        """Return another authority, in the state that ``retrust`` would leave this one in."""
        other = Authority(self._federation, trusted, self._verify)
        other._revoked = {k: entry for k, entry in self._revoked.items() if k in other.trusted}
        return other

    @property
    def revocations(self) -> list[bytes]:
        """The newest list of each federation key, in wire form."""
        return [data for _, (_, data) in sorted(self._revoked.items())]

    def _examine(self, data: bytes) -> tuple[Certificate, bytes]:
        """The certificate and its issuer; cached, because verifying a signature is slow."""
        signed = self._signed(data, Certificate)
        if len(self._genuine) >= GENUINE_MAX:
            self._genuine.clear()
        self._genuine[data] = (decode_certificate(signed.text), signed.issuer)
        return self._genuine[data]

    def _signed(self, data: bytes, kind: type[Certificate] | type[Revocations]) -> Signed:
        signed = decode_signed(data)
        if signed.issuer not in self.trusted:
            raise DistrustError(f"signed by key {fingerprint(signed.issuer)}, which is not trusted")
        if not self._verify(signed.issuer, signed.signature, signed_text(kind, signed.text)):
            raise DistrustError(f"the federation key's signature on a {kind.__name__} is wrong")
        return signed


def _span(span_s: int) -> str:
    """A span in its greatest unit, for humans."""
    for unit, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if span_s >= seconds:
            count = span_s // seconds
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{span_s} s"
