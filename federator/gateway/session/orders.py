"""How a session stands, and what it asks of the process around it besides bytes to pass on."""

from dataclasses import dataclass
from enum import Enum

from federator.gateway.wire import Reason


class State(Enum):
    """How a session stands with its broker; ``session`` draws how one follows another."""

    GREETING = "greeting"
    JOINING = "joining"
    RESTORING = "restoring"
    HEALING = "healing"
    LIVE = "live"
    AWAY = "away"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Close the client's connection; what it is told stands in ``to_client`` already."""

    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class LeaveBroker:
    """Close the broker's connection once ``to_broker`` is out.

    ``with_will`` it is broken, so that the broker publishes the client's will.
    """

    with_will: bool


@dataclass(frozen=True, slots=True)
class FindBroker:
    """Attach the client to another broker than the one that ``refused`` it, or that it lost."""

    refused: bool  # the broker is there and will not have the client now


@dataclass(frozen=True, slots=True)
class AskSettled:
    """Call ``on_settled(token)`` once the federation knows ``filters``, or after a bound."""

    token: int
    filters: tuple[str, ...]
    client_waits: bool  # meanwhile, for its SUBACK


@dataclass(frozen=True, slots=True)
class Heal:
    """Call ``heal`` with what was missed: the new broker has the subscriptions."""


@dataclass(frozen=True, slots=True)
class HealRest:
    """Call ``give`` with what was missed still, in a moment: now they are known everywhere."""


Order = Dismiss | LeaveBroker | FindBroker | AskSettled | Heal | HealRest
