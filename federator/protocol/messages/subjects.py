"""Whom a control message is about.

In most federations anybody may be: words are passed on. In one of a leaf and its hub there are only
the two, and a leaf that speaks of others has been captured, or is mistaken.

Source: docs/protocol.md 20.
"""

from typing import Final

from federator.protocol.messages.control import Message
from federator.protocol.types import BrokerId

_ONE: Final = ("core", "origin", "broker")
_SEVERAL: Final = ("path", "route")


def subjects(message: Message) -> set[BrokerId]:
    """The brokers that ``message`` says something of, or in whose name; not its sender."""
    found: set[BrokerId] = set()
    for name in _SEVERAL:
        found.update(getattr(message, name, ()))
    for name in _ONE:
        if (one := getattr(message, name, None)) is not None:
            found.add(one)
    return found
