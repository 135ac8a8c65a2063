"""Makes the files of a signed federation: its key, agents' key files, lists of revocations.

For the operator's command, and for experiments that run signed.

Source: docs/security.md, "Keys".
"""

import os
from collections.abc import Iterable

from federator.protocol.trust import certificates
from federator.protocol.trust.certificates import Certificate, Revocations, Role, Signed
from federator.protocol.trust.key_files import AgentKeys, FederationKey, FederationPublic
from federator.protocol.types import BrokerId
from federator.runtime.trust.crypto import SecretIdentity

DAY_S = 86_400
BACKDATED_S = 3_600
"""Certificates begin an hour ago: hosts' clocks differ."""


class KeyMaker:
    """Signs in the name of one federation, with its secret."""

    def __init__(self, key: FederationKey) -> None:
        self.key = key
        self._identity = SecretIdentity(key.secret, key.secret)

    @classmethod
    def new(cls, federation: str) -> "KeyMaker":
        """With a key drawn now."""
        return cls(FederationKey(federation=federation, secret=os.urandom(32)))

    @property
    def public(self) -> FederationPublic:
        """The public key that agents trust."""
        return FederationPublic(federation=self.key.federation, key=self._identity.signing_key)

    def issue(
        self,
        broker: BrokerId,
        *,
        days: int,
        now_s: int,
        role: Role = "agent",
        name: str = "",
    ) -> tuple[AgentKeys, Certificate]:
        """Fresh keys for one agent, with their certificate.

        Or for a holder of another ``role``, of that ``name``; then ``broker`` is ignored.
        """
        identity = SecretIdentity.new()
        certificate = Certificate(
            version=1 if role == "agent" else 2,
            federation=self.key.federation,
            id=broker,
            signing_key=identity.signing_key,
            exchange_key=identity.exchange_key,
            not_before_s=now_s - BACKDATED_S,
            expires_s=now_s + days * DAY_S,
            serial=os.urandom(certificates.SERIAL_BYTES),
            role=role,
            name=name,
        )
        signing, exchange = identity.secrets
        agent_keys = AgentKeys(
            federation=self.key.federation,
            id=broker,
            signing=signing,
            exchange=exchange,
            certificate=self._sign(certificate),
        )
        return agent_keys, certificate

    def revoke(self, serials: Iterable[bytes], *, number: int) -> bytes:
        """The signed list number ``number`` of these serials."""
        return self._sign(Revocations(1, self.key.federation, number, frozenset(serials)))

    def _sign(self, value: Certificate | Revocations) -> bytes:
        text = certificates.encode(value)
        signature = self._identity.sign(certificates.signed_text(type(value), text))
        return certificates.encode(Signed(self._identity.signing_key, text, signature))
