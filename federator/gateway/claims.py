"""Whose client is whose, and where its session is, among gateways that share nothing else.

On one broker a client id is in use once: who comes later throws out who came before. With several
gateways and brokers nobody sees both connections, so a gateway that attaches a client says so on
every broker it reaches, and the others let go of it. They also remember where sessions are that
outlast their connection: a client that comes back by another gateway is attached there.

What is remembered is bounded and lost with the gateway; then a client is attached where the policy
says, which is the same for all gateways that choose by client id.

Source: OASIS MQTT 5.0, section 3.1.4; docs/gateway.md.
"""

from typing import Final

from federator.protocol.guide import Claim
from federator.protocol.types import BrokerId

HOMES_MAX: Final = 100_000
HEARD_MAX: Final = 4_096
"""Claims that are told from their copies, which follow within the delay between brokers."""


class Claims:
    """The claims of all gateways, as one of them knows them.

    Args:
        name: Its own.
        first: Greater than every number of its earlier claims.
    """

    def __init__(self, name: str, first: int) -> None:
        self._name = name
        self._number = first
        self._homes: dict[str, BrokerId] = {}
        self._heard: dict[tuple[str, int], None] = {}

    def of(self, client: str, broker: BrokerId, *, came: bool, lasts: bool) -> Claim:
        """Our own claim to ``client``, attached to ``broker``."""
        self._number += 1
        self._settle(client, broker, lasts=lasts)
        return Claim(self._name, self._number, client, broker, came, lasts)

    def is_news(self, claim: Claim) -> bool:
        """Hear another's claim; tell whether it was not heard before."""
        name = claim.gateway, claim.number
        if claim.gateway == self._name or name in self._heard:
            return False
        self._heard[name] = None
        if len(self._heard) > HEARD_MAX:
            del self._heard[next(iter(self._heard))]
        self._settle(claim.client, claim.broker, lasts=claim.lasts)
        return True

    def home(self, client: str) -> BrokerId | None:
        """Where the session of ``client`` is, if it lasts and we heard of it."""
        return self._homes.get(client)

    def _settle(self, client: str, broker: BrokerId, *, lasts: bool) -> None:
        self._homes.pop(client, None)
        if lasts:
            self._homes[client] = broker
            if len(self._homes) > HOMES_MAX:
                del self._homes[next(iter(self._homes))]
