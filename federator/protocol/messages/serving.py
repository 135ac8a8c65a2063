"""How a leaf announces which of its hubs serves it.

A leaf with two hubs has a link to each, and names the serving one in its announcement, which both
receive: a record ``$fed/served/<hub>/<since>``, a string that no client's topic matches. The named
hub exchanges publications with the leaf; the other one only keeps what the leaf would get.
``since`` is the leaf's wall clock in microseconds: what it made before then went through the hub
that served it before; 0 when there was none.

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
    """The hub that serves a leaf, and since when."""

    hub: BrokerId
    since_us: int


def served_record(served: Served) -> str:
    """The record that the leaf announces."""
    return f"{PREFIX}{served.hub}/{served.since_us}"


def is_served_record(text: str) -> bool:
    """Whether ``text`` looks like such a record."""
    return text.startswith(PREFIX)


def parse_served(text: str) -> Served | None:
    """The content of ``text``, if it is such a record."""
    hub, _, since = text.removeprefix(PREFIX).partition("/")
    plain = hub.isascii() and hub.isdecimal() and since.isascii() and since.isdecimal()
    if not (is_served_record(text) and plain and len(text) <= CHARS_MAX):
        return None
    if int(hub) > ID_MAX or int(since) > SINCE_MAX:
        return None
    return Served(BrokerId(int(hub)), int(since))


def latest(records: Iterable[str]) -> Served | None:
    """The last decision of a leaf, if it seems to announce several; ``None``: there is none."""
    parsed = (parse_served(record) for record in records)
    valid = [served for served in parsed if served is not None]
    return max(valid, key=lambda served: (served.since_us, served.hub), default=None)
