"""Agents' answers to a console's questions: checked, and limited in size.

An agent may be of another release, or lie. What it says about other brokers is ignored (a row
belongs to the broker whose agent was asked) and malformed answers are left out. However many rows
one agent sends, the others' rows are shown before its second hundred.

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
"""Rows and filters accepted from one agent; an agent sends no more by itself."""
LISTED_MAX: Final = 1_024

_Text = Annotated[str, msgspec.Meta(max_length=65_535)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Ids = Annotated[tuple[Id, ...], msgspec.Meta(max_length=LISTED_MAX)]
_T = TypeVar("_T")


class FoundRow(msgspec.Struct, frozen=True):
    """What one client does at a broker, as its agent reports it."""

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
    """Why a publication is forwarded for one filter."""

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
    """The answer as a ``kind``; errors name it ``called``, or else its kind.

    Raises:
        DecodeError: The body does not match.
    """
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise DecodeError(f"{called or kind.__name__}: {error}") from error


def together(answers: Mapping[BrokerId, Found]) -> dict[str, Any]:
    """Merge what agents found, each among its own clients, into one answer."""
    rows = _by_turns(
        [(broker, row) for row in answer.rows[:OF_ONE_MAX]] for broker, answer in answers.items()
    )
    by_turns = _by_turns(answer.filters[:OF_ONE_MAX] for answer in answers.values())
    filters = list(dict.fromkeys(by_turns))
    return {
        "rows": [
            {**msgspec.to_builtins(row), "broker": broker}
            for broker, row in sorted(islice(rows, FOUND_MAX), key=_order)
        ],
        "rows_total": sum(answer.rows_total for answer in answers.values()),
        "filters": sorted(filters[:FOUND_MAX]),
        "filters_total": len(filters),
        "reported": any(answer.reported for answer in answers.values()),
        "whole": all(answer.whole for answer in answers.values()),
        "asked": len(answers),
    }


def _order(pair: tuple[BrokerId, FoundRow]) -> tuple[str, BrokerId, str, str]:
    broker, row = pair
    return row.client, broker, row.action, row.topic


def _by_turns(lists: Any) -> Iterator[Any]:  # noqa: ANN401
    """One of each list, then the second of each, and so on."""
    nothing = object()
    turns = zip_longest(*lists, fillvalue=nothing)
    return (item for item in chain.from_iterable(turns) if item is not nothing)
