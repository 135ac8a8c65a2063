"""What operators call a broker: a label beside its id, for people. Nothing decides by it.

Two brokers may bear one name, so it is always shown with the id: ``hall-3 (7)``. It is told by its
own broker, in its record among the announcements, and travels to people's terminals, browsers and
log files; so it is held to what does no harm in any of them, by who tells it and by who hears it.

Source: docs/protocol.md 15.
"""

from typing import Final

NAME_BYTES_MAX: Final = 64


def objection_to(name: str) -> str:
    """Why ``name`` is no name of a broker; empty when it is one, or there is none."""
    what = ""
    if len(name) > NAME_BYTES_MAX:
        what = "is too long"
    elif not name.isprintable():  # nor what reorders or hides the text around it
        what = "holds characters that cannot be printed"
    elif len(name.encode()) > NAME_BYTES_MAX:
        what = "is too long"
    elif name != name.strip():
        what = "begins or ends with a space"
    return f"{name[:NAME_BYTES_MAX]!r} {what}" if what else ""


def sound_name(told: object) -> str:
    """The name that was ``told`` by whomever, if it is one, otherwise none."""
    return told if isinstance(told, str) and not objection_to(told) else ""


def named(id: object, name: str) -> str:
    """The broker for people: its id, with its name before it if it has one."""
    return f"{name} ({id})" if name else str(id)
