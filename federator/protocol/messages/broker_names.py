"""The name that operators give a broker: a label beside its id, for people; it decides nothing.

Two brokers may have the same name, so it is always shown with the id: ``hall-3 (7)``. A broker
announces its own name, in its record among the announcements, and the name reaches people's
terminals, browsers and log files. So both the sender and each receiver check that it is harmless in
all of them.

Source: docs/protocol.md 15.
"""

from typing import Final

NAME_BYTES_MAX: Final = 64


def objection_to(name: str) -> str:
    """Why ``name`` is not valid as a broker's name; empty when it is valid, or empty itself."""
    what = ""
    if len(name) > NAME_BYTES_MAX:
        what = "is too long"
    elif not name.isprintable():  # nor may it reorder or hide the text around it
        what = "holds characters that cannot be printed"
    elif len(name.encode()) > NAME_BYTES_MAX:
        what = "is too long"
    elif name != name.strip():
        what = "begins or ends with a space"
    return f"{name[:NAME_BYTES_MAX]!r} {what}" if what else ""


def sound_name(name: object) -> str:
    """The received name ``name`` if it is valid, otherwise the empty name."""
    return name if isinstance(name, str) and not objection_to(name) else ""


def named(id: object, name: str) -> str:
    """The broker as shown to people: its id, after its name if it has one."""
    return f"{name} ({id})" if name else str(id)
