"""Turns pydantic's errors into one line for an operator.

Of several errors an unknown key comes first: it usually explains a missing key. The line shows
values but no secrets.

``tomllib`` keeps no line numbers. So we scan the text again by lines, for table headers, keys, and
open strings and brackets. A key inside an inline table is reported at the line of the key that
holds the table.
"""

import difflib
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from federator.config.section import Location, Section, keys_of

_SHOWN_CHARACTERS_MAX = 60
_HEADER = re.compile(r"^\s*(\[\[|\[)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_\-.]+|"[^"\n]*"|'[^'\n]*'|\s*\.\s*)+?)\s*=""")
_KEY_PART = re.compile(r"""[A-Za-z0-9_\-]+|"[^"\n]*"|'[^'\n]*'""")
_TOKEN = re.compile(r'"""|\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}]', re.DOTALL)
_SECRET_KEYS = ("password",)
_UNKNOWN = "unexpected_keyword_argument"
_WANTED = {
    "dataclass_type": "it should be a table",
    "tuple_type": "it should be a list",
    "int_type": "it should be a whole number",
    "float_type": "it should be a number",
    "bool_type": "it should be true or false",
    "string_type": "it should be text in quotes",
}


def first_complaint(
    error: ValidationError, root: type[Section], line_of: Callable[[Location], int | None]
) -> tuple[Location, str]:
    """The location of the first error, and ``what: how to mend`` with the number of other
    errors."""
    details = error.errors(include_url=False)

    def order(detail: ErrorDetails) -> tuple[bool, int]:
        return detail["type"] != _UNKNOWN, line_of(_location(detail)) or 0

    detail = min(details, key=order)
    location = _location(detail)
    text = _text(detail, location, root)
    if len(details) > 1:
        text += f" (and {len(details) - 1} more)"
    return location, text


def _location(detail: ErrorDetails) -> Location:
    at = getattr(_rule(detail), "at", "")
    return (*detail["loc"], *(located(at) if at else ()))


def _rule(detail: ErrorDetails) -> ValueError | None:
    """The error that one of our rules raised."""
    error: ValueError | None = (detail.get("ctx") or {}).get("error")
    return error if isinstance(error, ValueError) else None


def located(dotted: str) -> Location:
    """Parse a location such as ``neighbours.0.url``, as rules write it."""
    return tuple(int(part) if part.isdigit() else part for part in dotted.split("."))


def _text(detail: ErrorDetails, location: Location, root: type[Section]) -> str:
    kind, key = detail["type"], dotted(location)
    if (rule := _rule(detail)) is not None:
        message = str(rule)
        if location != tuple(detail["loc"]):
            return message  # a rule between fields names its keys itself
        return f"{key} = {message}" if message.startswith(("'", '"')) else f"{key}: {message}"
    if kind == _UNKNOWN:
        keys = sorted(_keys_at(root, location[:-1]))
        near = difflib.get_close_matches(str(location[-1]), keys, n=1, cutoff=0.5)
        mend = f"did you mean {near[0]}" if near else f"keys here: {', '.join(keys)}"
        return f"unknown key {_shown(key)}: {mend}"
    if kind == "missing":
        sections = {"broker": "[broker] with id and url", "brokers": "[[brokers]] with id and url"}
        return f"{key} is missing: add {sections.get(key, f'{key} = ...')}"
    if kind == "tuple_type" and isinstance(detail["input"], dict):
        return f"[{key}] is one table, and there may be several: write [[{key}]] for each"
    wanted = _WANTED.get(kind) or f"it should {detail['msg'].partition(' should ')[2]}"
    if kind == "string_pattern_mismatch":
        wanted = f"it should match {(detail.get('ctx') or {})['pattern']}"
    if str(location[-1]) in _SECRET_KEYS:
        return f"{key} is not valid: {wanted}"
    return f"{key} = {_shown(detail['input'])}: {wanted}"


def dotted(location: Location) -> str:
    """Write a location for people: ``neighbours[0].url``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "..."


def _keys_at(root: type[Section], location: Location) -> list[str]:
    """Names of the keys of the table at ``location``."""
    kind: Any = root
    for part in location:
        kind = get_args(kind)[0] if isinstance(part, int) else keys_of(kind)[part].kind
    return list(keys_of(kind))


def _parts(dotted: str) -> Location:
    return tuple(part.strip("\"'") for part in _KEY_PART.findall(dotted))


class _Openness:
    """Whether a line ends inside a multi-line string or an open bracket."""

    def __init__(self) -> None:
        self.delimiter = ""
        self.depth = 0

    def feed(self, line: str) -> None:
        at = 0
        while at < len(line):
            if self.delimiter:
                end = line.find(self.delimiter, at)
                if end < 0:
                    return
                at, self.delimiter = end + 3, ""
                continue
            token = _TOKEN.search(line, at)
            if token is None:
                return
            at, text = token.end(), token.group()
            if text in ('"""', "'''"):
                self.delimiter = text
            elif text in "[{":
                self.depth += 1
            elif text in "]}":
                self.depth = max(0, self.depth - 1)


def _keys(text: str) -> Iterator[tuple[Location, int]]:
    table: Location = ()
    sizes: dict[Location, int] = {}
    openness = _Openness()
    for number, line in enumerate(text.splitlines(), start=1):
        if openness.delimiter or openness.depth:
            openness.feed(line)
            continue
        if header := _HEADER.match(line):
            table = _parts(header.group(2))
            if header.group(1) == "[[":
                sizes[table] = sizes.get(table, -1) + 1
                table = (*table, sizes[table])
            yield table, number
            continue
        if key := _KEY.match(line):
            yield (*table, *_parts(key.group(1))), number
            openness.feed(line[key.end() :])


def line_of(text: str, location: Location) -> int | None:
    """The line of ``location``, or of the nearest key that holds it; ``None`` when it has none."""
    lines = dict(reversed(list(_keys(text))))  # where a key stands twice, the first
    holders = (location[:length] for length in range(len(location), 0, -1))
    return next((lines[place] for place in holders if place in lines), None)
