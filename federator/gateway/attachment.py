"""Which broker a client is attached to.

Gateways share nothing, and yet a client that comes back by another gateway must find its session.
So by default the choice depends on the client id and the set of brokers alone: each broker gets a
score from a hash of both, and the highest wins. When a broker goes, only its own clients move; when
it comes back, only they would return. Nothing is remembered and nothing is agreed on.

Source: D. Thaler and C. Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM
Transactions on Networking 6(1), 1998 (highest random weight).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Literal

from federator.protocol.types import BrokerId

Policy = Literal["assigned", "nearest", "least-loaded"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker that could take a client.

    Attributes:
        clients: Connected there.
        round_trip_s: As measured; infinite before.
    """

    id: BrokerId
    clients: int = 0
    round_trip_s: float = float("inf")


class Attachment:
    """The operator's rule.

    Args:
        policy: How brokers are compared.
        assignments: Patterns of client ids and where they belong; the first that fits holds.
    """

    def __init__(self, policy: Policy, assignments: Iterable[tuple[str, BrokerId]] = ()) -> None:
        self._policy = policy
        self._assignments = tuple(assignments)

    def rank(
        self,
        client_id: str,
        candidates: Sequence[Candidate],
        *,
        preferred: Sequence[BrokerId] = (),
    ) -> list[BrokerId]:
        """All ``candidates``, best first.

        Args:
            client_id: Whose broker is looked for.
            candidates: Brokers that could take it.
            preferred: Where its session is, or who steps in for its broker; best first. These go
                before any policy.
        """
        by_id = {each.id: each for each in candidates}
        first = [*preferred, *self._assigned(client_id)]
        ranked = sorted(candidates, key=lambda each: (self._key(client_id, each), each.id))
        order = dict.fromkeys([*first, *(each.id for each in ranked)])
        return [id for id in order if id in by_id]

    def home(self, client_id: str, brokers: Iterable[BrokerId]) -> BrokerId:
        """Where the client belongs if all ``brokers`` serve, under the policy ``assigned``."""
        known = sorted(brokers)
        assigned = [each for each in self._assigned(client_id) if each in known]
        return assigned[0] if assigned else max(known, key=lambda id: _score(client_id, id))

    @property
    def by_name(self) -> bool:
        """Whether the choice depends on the client id and the set of brokers alone."""
        return self._policy == "assigned"

    @property
    def by_load(self) -> bool:
        """Whether it depends on how many clients each broker has."""
        return self._policy == "least-loaded"

    def _assigned(self, client_id: str) -> list[BrokerId]:
        for pattern, broker in self._assignments:
            if fnmatchcase(client_id, pattern):
                return [broker]
        return []

    def _key(self, client_id: str, candidate: Candidate) -> float:
        match self._policy:
            case "assigned":
                return -_score(client_id, candidate.id)
            case "nearest":
                return candidate.round_trip_s
            case "least-loaded":
                return candidate.clients


def _score(client_id: str, broker: BrokerId) -> int:
    digest = blake2b(f"{broker}/{client_id}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")
