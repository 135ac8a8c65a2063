"""Raw lines to typed records, strictly, in Python: one call of msgspec per line.

A line is good if it is one JSON object of a known table, in which each key of that table has its
type and lies in its range. msgspec checks all of that while it reads, an order of magnitude faster
than Spark's JSON parser, from the same ``FIELDS`` that documents are made of; two rules that tie
keys together are checked after it. msgspec says only *whether* a line is good, for good lines are
nearly all; why a bad one is bad is found in plain Python (``reason``), a second and slow reading of
the rules, and the first reason in the order of the keys is told.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

import msgspec

from federator_analytics.schemas.fields import struct
from federator_analytics.schemas.records import (
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

UNREADABLE = (ValueError, RecursionError)
"""What lines raise that are none: msgspec's errors, Python's of text that is not UTF-8, and that of
what is nested too deeply."""


def reason(line: str) -> str:
    """Why ``line``, which is bad, is bad."""
    torn = line.startswith("{") and not line.rstrip().endswith("}")
    try:
        told = json.loads(line, parse_constant=_refuse)
    except UNREADABLE:
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


def _fits(text: str, field: Field) -> bool:
    return field.low <= len(text) <= field.high


def _in_range(value: object, field: Field, told: Keys) -> bool:
    match value:
        case int():
            return field.low <= value <= field.high
        case str():
            return value in CHOICES.get(field.name, (value,)) and _fits(value, field)
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


BLOCKS = struct("content binary", "file string?", "line long?")
"""Whole lines as every source gives them. ``line``: the number of the first; NULL if unknown.

A file whose name ends in ``.gz`` is compressed.
"""
RAW_MAX = 1_000
"""Characters kept of a bad line."""
_PIECE_BYTES = 2**16
_GZIP = 16
"""Tells zlib that gzip's header is around."""

Record = Any
"""A ``msgspec.Struct`` of ``RECORDS``: made at run time, so no type checker knows its keys."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A line that is no record. ``line``: counted from 1, where its place is known."""

    file: str | None
    line: int | None
    reason: str
    raw: str


def _kind(field: Field) -> Any:  # noqa: ANN401  # no type says "a type"
    """The type, with its range, that msgspec is to hold a key to."""
    instant = Annotated[int, msgspec.Meta(ge=-INSTANT_US_MAX, le=INSTANT_US_MAX)]
    bucket = Annotated[int, msgspec.Meta(ge=0, le=BUCKET_MAX)]
    count = Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]
    match field.kind:
        case "long":
            return Annotated[int, msgspec.Meta(ge=field.low, le=field.high)]
        case "string" if field.name in CHOICES:
            return Literal[CHOICES[field.name]]
        case "string" if field.high < COUNT_MAX:
            return Annotated[str, msgspec.Meta(min_length=field.low, max_length=field.high)]
        case "string":
            return str
        case "sketch":
            return list[tuple[bucket, count]]
        case _:
            return list[instant]


def _record(table: str, fields: tuple[Field, ...]) -> type[msgspec.Struct]:
    keys = [field for field in (*HEAD, *fields) if field.name != "table"]
    must = [(field.name, _kind(field)) for field in keys if not field.nullable]
    may = [(field.name, _kind(field) | None, None) for field in keys if field.nullable]
    return msgspec.defstruct(table, [*must, *may], tag_field="table", tag=table, gc=False)


RECORDS = {table: _record(table, fields) for table, fields in FIELDS.items()}
"""Table to what a record of it is."""
_decode: Callable[[bytes], Record] = msgspec.json.Decoder(
    Union[tuple(RECORDS.values())]  # noqa: UP007  # made at run time
).decode
encode: Callable[[Record], bytes] = msgspec.json.encode
"""A record as a line again, of the keys that version 1 knows."""


def parse(
    content: bytes, file: str | None = None, line: int | None = None
) -> tuple[list[Record], list[Bad]]:
    """The records of one block, in order, and its bad lines. Empty lines are no lines.

    The arguments are a row of BLOCKS.
    """
    cut: list[Bad] = []
    if file is not None and file.endswith(".gz"):
        content, whole = _inflated(content)
        if not whole:
            cut = [Bad(file, None, "truncated", "")]
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    try:
        records = list(map(_decode, lines))
    except UNREADABLE:
        pass
    else:
        if all(map(_agrees, records)):
            return records, cut
    return _one_by_one(lines, file, line, cut)


def _one_by_one(
    lines: list[bytes], file: str | None, first: int | None, bad: list[Bad]
) -> tuple[list[Record], list[Bad]]:
    records = []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            record = _decode(line)
        except UNREADABLE:
            record = None
        if record is not None and _agrees(record):
            records.append(record)
        else:
            text = line.decode(errors="replace").rstrip("\r")
            place = None if first is None else first + number
            bad.append(Bad(file, place, reason(text), text[:RAW_MAX]))
    return records, bad


def _agrees(record: Record) -> bool:
    """Whether keys that are tied together are so. Only the first hop has no sender."""
    kind = type(record)
    if kind is RECORDS["deliveries"]:
        return bool(sum(count for _, count in record.delay) == record.publications)
    if kind is RECORDS["hops"]:
        return bool((record.sender is None) == (record.hop == 0))
    return True


def _inflated(content: bytes) -> tuple[bytes, bool]:
    """What can be read of a compressed file, and whether that is all of it."""
    pieces: list[bytes] = []
    reader = zlib.decompressobj(zlib.MAX_WBITS | _GZIP)
    for start in range(0, len(content), _PIECE_BYTES):
        piece = content[start : start + _PIECE_BYTES]
        while piece:
            if reader.eof:  # another file behind the first, as gzip allows
                reader = zlib.decompressobj(zlib.MAX_WBITS | _GZIP)
            try:
                pieces.append(reader.decompress(piece))
            except zlib.error:
                return b"".join(pieces), False
            piece = reader.unused_data
    return b"".join(pieces), reader.eof
