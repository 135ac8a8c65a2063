"""The states of a session, and what it asks of its driver besides sending bytes."""

from dataclasses import dataclass
from enum import Enum

from federator.gateway.wire import Reason


class State(Enum):
    """The state of a session; the docstring of ``session`` draws the transitions."""

    GREETING = "greeting"
    JOINING = "joining"
    RESTORING = "restoring"
    HEALING = "healing"
    LIVE = "live"
    AWAY = "away"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Close the client's connection; its last packet is in ``to_client`` already."""

    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class LeaveBroker:
    """Close the broker's connection after ``to_broker`` is sent.

    ``with_will``: break it, so that the broker publishes the client's will.
    """

    with_will: bool


@dataclass(frozen=True, slots=True)
class FindBroker:
    """Attach the client to another broker than the one that ``refused`` it, or was lost."""

    refused: bool  # the broker is alive but does not accept the client now


@dataclass(frozen=True, slots=True)
class AskSettled:
    """Call ``on_settled(token)`` once the federation knows ``filters``, or after a time limit.

    The client's SUBACK is held meanwhile.
    """

    token: int
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heal:
    """Call ``heal`` with missed publications: the new broker has the subscriptions."""


Order = Dismiss | LeaveBroker | FindBroker | AskSettled | Heal
