"""How a leaf says which of its hubs serves it.

A leaf with two hubs has a link to each, and says in its announcement, which both hear, by whom it
is served: a record ``$fed/served/<hub>/<since>``, a string that no client's topic matches. The hub
it names exchanges publications with it; the other one only keeps what the leaf would get. ``since``
is the leaf's wall clock in microseconds: what it made before then came through whoever served it
before; 0 when nobody did.

Source: docs/protocol.md 20.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from federator.protocol.types import BrokerId

PREFIX: Final = "$fed/served/"
ID_MAX: Final = 2**32 - 1
SINCE_MAX: Final = 2**63 - 1
CHARS_MAX: Final = len(PREFIX) + 10 + 1 + 19


class Served(NamedTuple):
    """By whom a leaf is served, and since when."""

    hub: BrokerId
    since_us: int


def served_record(served: Served) -> str:
    """What the leaf announces."""
    return f"{PREFIX}{served.hub}/{served.since_us}"


def is_served_record(text: str) -> bool:
    """Whether ``text`` looks like one."""
    return text.startswith(PREFIX)


def parse_served(text: str) -> Served | None:
    """What ``text`` says, if it is such a record."""
    hub, _, since = text.removeprefix(PREFIX).partition("/")
    plain = hub.isascii() and hub.isdecimal() and since.isascii() and since.isdecimal()
    if not (is_served_record(text) and plain and len(text) <= CHARS_MAX):
        return None
    if int(hub) > ID_MAX or int(since) > SINCE_MAX:
        return None
    return Served(BrokerId(int(hub)), int(since))


def latest(records: Iterable[str]) -> Served | None:
    """The last decision of a leaf, should it seem to announce several; ``None``: there is none."""
    said = (parse_served(record) for record in records)
    found = [each for each in said if each is not None]
    return max(found, key=lambda each: (each.since_us, each.hub), default=None)
