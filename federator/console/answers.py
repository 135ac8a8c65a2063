"""What agents answer to a console's questions, as far as it is shown: checked, and cut to size.

An agent may be of another release, or lie. What it says of others is not taken from it (a row is of
the broker whose agent was asked), what is no answer is left out, and however many rows one agent
tells, every other one's are shown before its second hundred.

Source: docs/console.md; docs/protocol.md 15.
"""

from collections.abc import Iterator, Mapping
from itertools import chain, islice, zip_longest
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from federator.errors import DecodeError
from federator.protocol.messages.fields import Id
from federator.protocol.types import BrokerId

FOUND_MAX: Final = 500
"""Rows and filters of a search that are shown."""
OF_ONE_MAX: Final = 200
"""Rows and filters that one agent may tell; it tells no more by itself."""
LISTED_MAX: Final = 1_024

_Text = Annotated[str, msgspec.Meta(max_length=65_535)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Ids = Annotated[tuple[Id, ...], msgspec.Meta(max_length=LISTED_MAX)]
_T = TypeVar("_T")


class FoundRow(msgspec.Struct, frozen=True):
    """What one client does at the broker whose agent tells it."""

    client: _Text
    action: Literal["pub", "sub"]
    topic: _Text
    on: bool = True
    keeps: bool = False
    gateway: bool = False


class Found(msgspec.Struct, frozen=True):
    """An agent's answer to ``search``."""

    rows: tuple[FoundRow, ...] = ()
    rows_total: _Count = 0
    filters: tuple[_Text, ...] = ()
    reported: bool = False
    whole: bool = True


class MeshPart(msgspec.Struct, frozen=True):
    """An agent's answer to ``mesh``."""

    core: Id | None = None
    local: bool = False
    member: bool = False
    next_hops: _Ids = ()


class ExplainedFilter(msgspec.Struct, frozen=True):
    """Why a publication is carried for one filter."""

    filter: _Text
    why: _Text = ""


class ExplainedGroup(msgspec.Struct, frozen=True):
    """A shared group that gets a publication."""

    group: _Text
    filter: _Text


class Explained(msgspec.Struct, frozen=True):
    """An agent's answer to ``explain``."""

    why: _Text
    next_hops: _Ids = ()
    filters: Annotated[tuple[ExplainedFilter, ...], msgspec.Meta(max_length=LISTED_MAX)] = ()
    groups: Annotated[tuple[ExplainedGroup, ...], msgspec.Meta(max_length=LISTED_MAX)] = ()


def read_answer(kind: type[_T], body: Mapping[str, Any], *, called: str = "") -> _T:
    """The answer of this ``kind``, which is ``called`` so where it is none; by its kind otherwise.

    Raises:
        DecodeError: It is none.
    """
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise DecodeError(f"{called or kind.__name__}: {error}") from error


def together(answers: Mapping[BrokerId, Found]) -> dict[str, Any]:
    """What agents found, each among its own clients, as one answer."""
    rows = _by_turns(
        [(broker, row) for row in found.rows[:OF_ONE_MAX]] for broker, found in answers.items()
    )
    told = _by_turns(found.filters[:OF_ONE_MAX] for found in answers.values())
    filters = list(dict.fromkeys(told))
    return {
        "rows": [
            {**msgspec.to_builtins(row), "broker": broker}
            for broker, row in sorted(islice(rows, FOUND_MAX), key=_order)
        ],
        "rows_total": sum(found.rows_total for found in answers.values()),
        "filters": sorted(filters[:FOUND_MAX]),
        "filters_total": len(filters),
        "reported": any(found.reported for found in answers.values()),
        "whole": all(found.whole for found in answers.values()),
        "asked": len(answers),
    }


def _order(told: tuple[BrokerId, FoundRow]) -> tuple[str, BrokerId, str, str]:
    broker, row = told
    return row.client, broker, row.action, row.topic


def _by_turns(lists: Any) -> Iterator[Any]:  # noqa: ANN401
    """One of each list, then the second of each, and so on."""
    nothing = object()
    turns = zip_longest(*lists, fillvalue=nothing)
    return (each for each in chain.from_iterable(turns) if each is not nothing)
