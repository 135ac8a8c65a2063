"""Which broker a client is attached to.

Gateways share no state, and yet a client that returns through another gateway must find its
session. So by default the choice depends on the client id and the set of brokers alone: each broker
gets a score from a hash of both, and the highest wins. When a broker goes, only its own clients
move; when it is back, only they would return.

A broker lets a client id be used once: a newer connection ends the older one. With several gateways
and brokers, no broker sees both connections. So a gateway that attaches a client claims it on every
broker it reaches, and the other gateways dismiss it. They also remember where persistent sessions
are: a client that returns through another gateway is attached there. This memory is bounded and
ends with the process; without it the policy decides.

Source: D. Thaler and C. Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM
Transactions on Networking 6(1), 1998 (highest random weight); OASIS MQTT 5.0, 3.1.4.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Final, Literal

from federator.protocol.bounded_cache import Recent
from federator.protocol.messages.gateways import Claim
from federator.protocol.types import BrokerId

Policy = Literal["assigned", "nearest", "least-loaded"]

HOMES_MAX: Final = 100_000
HEARD_MAX: Final = 4_096
"""Remembered claims, to drop their copies, which arrive within the delay between brokers."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker that could take a client, and how many clients it has."""

    id: BrokerId
    clients: int = 0
    round_trip_s: float = float("inf")  # until it is measured


class Attachment:
    """The operator's rule for which broker a client belongs to.

    Args:
        policy: How brokers are compared.
        assignments: Patterns of client ids, with the broker each belongs to; the first match wins.
    """

    def __init__(self, policy: Policy, assignments: Iterable[tuple[str, BrokerId]] = ()) -> None:
        self.policy = policy
        self._assignments = tuple(assignments)

    def rank(
        self, client_id: str, candidates: Sequence[Candidate], *, preferred: Sequence[BrokerId] = ()
    ) -> list[BrokerId]:
        """All ``candidates``, best first.

        ``preferred`` brokers, which hold the session or are substitutes, come before any policy.
        """
        ids = {candidate.id for candidate in candidates}
        first = [*preferred, *self._assigned(client_id)]
        ranked = sorted(
            candidates, key=lambda candidate: (self._key(client_id, candidate), candidate.id)
        )
        order = dict.fromkeys([*first, *(candidate.id for candidate in ranked)])
        return [id for id in order if id in ids]

    def _assigned(self, client_id: str) -> list[BrokerId]:
        for pattern, broker in self._assignments:
            if fnmatchcase(client_id, pattern):
                return [broker]
        return []

    def _key(self, client_id: str, candidate: Candidate) -> float:
        match self.policy:
            case "assigned":
                return -_score(client_id, candidate.id)
            case "nearest":
                return candidate.round_trip_s
            case "least-loaded":
                return candidate.clients


class Claims:
    """The claims of all gateways; the numbers of this one, ``name``, are greater than ``first``."""

    def __init__(self, name: str, first: int) -> None:
        self._name = name
        self._number = first
        self._homes: Recent[str, BrokerId] = Recent(HOMES_MAX)
        self._seen_claims: Recent[tuple[str, int], None] = Recent(HEARD_MAX)

    def of(self, client: str, broker: BrokerId, *, came: bool, lasts: bool) -> Claim:
        """Make our own claim to ``client``, attached to ``broker``."""
        self._number += 1
        self._remember(client, broker, lasts=lasts)
        return Claim(self._name, self._number, client, broker, came, lasts)

    def is_news(self, claim: Claim) -> bool:
        """Learn another gateway's claim; return whether it is new."""
        name = claim.gateway, claim.number
        if claim.gateway == self._name or name in self._seen_claims:
            return False
        self._seen_claims.put(name, None)
        self._remember(claim.client, claim.broker, lasts=claim.lasts)
        return True

    def home(self, client: str) -> BrokerId | None:
        """The broker that holds the session of ``client``, if it is persistent and known."""
        return self._homes.get(client)

    def _remember(self, client: str, broker: BrokerId, *, lasts: bool) -> None:
        if lasts:
            self._homes.put(client, broker)
        else:
            self._homes.pop(client, None)


def _score(client_id: str, broker: BrokerId) -> int:
    digest = blake2b(f"{broker}/{client_id}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")
