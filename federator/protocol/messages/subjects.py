"""Which brokers a control message is about.

In most federations it may be any broker: agents forward messages. A federation of a leaf and its
hub has only these two, and a leaf that speaks of others is compromised, or misconfigured.

Source: docs/protocol.md 20.
"""

from typing import Final

from federator.protocol.messages.control import Message
from federator.protocol.types import BrokerId

_ONE: Final = ("core", "origin", "broker")
_SEVERAL: Final = ("path", "route")


def subjects(message: Message) -> set[BrokerId]:
    """The brokers that ``message`` is about, or speaks for; not its sender."""
    brokers: set[BrokerId] = set()
    for name in _SEVERAL:
        brokers.update(getattr(message, name, ()))
    for name in _ONE:
        if (one := getattr(message, name, None)) is not None:
            brokers.add(one)
    return brokers
