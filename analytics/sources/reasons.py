"""Why a line is not a record: the rules of ``lines``, one by one, in words.

``lines`` only says whether a line is good; bad ones are few, so this may be slow and is plain
Python, a second reading of the rules. The first reason in the order of the keys is told.
"""

import json
from collections.abc import Iterable, Iterator

from analytics.schemas.records import (
    BUCKET_MAX,
    CHOICES,
    COUNT_MAX,
    FIELDS,
    HEAD,
    INSTANT_US_MAX,
    RECORD_VERSION,
    Field,
)

Keys = dict[str, object]


def reason(line: str) -> str:
    """Why ``line``, which is bad, is bad."""
    torn = line.startswith("{") and not line.rstrip().endswith("}")
    try:
        told = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return "truncated" if torn else "not JSON"
    if not isinstance(told, dict):
        return "not JSON"
    return next(_reasons(told), "not JSON")


def _refuse(name: str) -> object:
    raise ValueError(name)


def _reasons(told: Keys) -> Iterator[str]:
    version = told.get("v")
    if _is_whole(version) and version != RECORD_VERSION:
        yield "unknown version"
    yield from _of_fields(told, HEAD[:2])
    table = told["table"]
    if not isinstance(table, str) or table not in FIELDS:
        yield "unknown table"
        return
    yield from _of_fields(told, (*HEAD[2:], *FIELDS[table]))
    if table == "hops" and (told.get("sender") is None) != (told["hop"] == 0):
        yield "missing: sender" if told["hop"] else "out of range: sender"


def _of_fields(told: Keys, fields: Iterable[Field]) -> Iterator[str]:
    for field in fields:
        value = told.get(field.name)
        if value is None:
            if not field.nullable:
                yield f"missing: {field.name}"
        elif not _is_of_kind(value, field.kind):
            yield f"wrong type: {field.name}"
        elif not _in_range(value, field, told):
            yield f"out of range: {field.name}"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_of_kind(value: object, kind: str) -> bool:
    match kind:
        case "long":
            return _is_whole(value)
        case "string":
            return isinstance(value, str)
        case "longs":
            return isinstance(value, list) and all(map(_is_whole, value))
        case _:
            return isinstance(value, list) and all(_is_of_kind(pair, "longs") for pair in value)


def _in_range(value: object, field: Field, told: Keys) -> bool:
    match value:
        case int():
            return field.low <= value <= field.high
        case str():
            return value in CHOICES.get(field.name, (value,))
        case list() if field.kind == "longs":
            return all(-INSTANT_US_MAX <= us <= INSTANT_US_MAX for us in value)
        case list():
            pairs = all(
                len(pair) == 2 and 0 <= pair[0] <= BUCKET_MAX and 1 <= pair[1] <= COUNT_MAX
                for pair in value
            )
            return pairs and sum(pair[1] for pair in value) == told["publications"]
        case _:
            return False
