"""A broker's id that reads as people call it: in every text of the report and the dashboard.

It is the id: it counts, sorts, joins and goes into JSON as the number. Only as text it is
``hall-3 (7)``, so whoever writes ``f"broker {row['broker']}"`` need not know of names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from federator.protocol.messages.broker_names import named, sound_name

KEYS = frozenset(
    ("broker", "origin", "destination", "sender", "receiver", "neighbour", "subject", "a", "b")
)
"""Keys of report tables whose values are ids of brokers."""

NAME_SHOWN = 16
"""Characters of a name where there is little room."""


class Broker(int):
    """The id of a broker that has a name."""

    name: str

    def __new__(cls, id: int, name: str) -> "Broker":
        """The broker ``id``, called ``name``."""
        broker = super().__new__(cls, id)
        broker.name = name
        return broker

    def __str__(self) -> str:
        return named(int(self), self.name)


def name_of(id: int) -> str:
    """What the broker is called, empty when it has no name."""
    return id.name if isinstance(id, Broker) else ""


def cut(name: str, most: int = NAME_SHOWN) -> str:
    """The name in as many characters, where there is little room."""
    return name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def short(id: int) -> str:
    """The broker where there is little room: the name is cut, the id is whole."""
    return named(int(id), cut(name_of(id)))


def way(a: int, b: int, between: str) -> str:
    """Two brokers on an axis, which cuts what is too long at its end: so the ids come first."""
    names = f": {name_of(a) or int(a)}, {name_of(b) or int(b)}" if name_of(a) or name_of(b) else ""
    return f"{int(a)} {between} {int(b)}{names}"


def names_of(brokers: Sequence[Mapping[str, Any]]) -> dict[int, Broker]:
    """The brokers that have a name, by id; what is no name was told by somebody hostile."""
    told = ((row["broker"], sound_name(row.get("name"))) for row in brokers)
    return {id: Broker(id, name) for id, name in told if name}


def with_names(
    rows: Sequence[Mapping[str, Any]], names: Mapping[int, Broker]
) -> Sequence[Mapping[str, Any]]:
    """The rows, with the ids of brokers as these."""
    keys = KEYS & rows[0].keys() if rows and names else ()
    if not keys:
        return rows
    return [row | {key: names.get(row[key], row[key]) for key in keys} for row in map(dict, rows)]
