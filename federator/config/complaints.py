"""From what pydantic found to one line for an operator.

Of several mistakes the unknown key comes first: it usually explains the key that is missing.
Values are shown, secrets never.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from federator.config.positions import Location

_SHOWN_CHARACTERS_MAX = 60
_SECRET_KEYS = ("password",)
_WANTED = {
    "model_type": "it should be a table",
    "tuple_type": "it should be a list",
    "int_type": "it should be a whole number",
    "bool_type": "it should be true or false",
    "string_type": "it should be text in quotes",
}


@dataclass(frozen=True, slots=True)
class Complaint:
    """``text`` is ``what: how to mend`` about the value at ``location``."""

    location: Location
    text: str


def first_complaint(
    error: ValidationError, root: type[BaseModel], line_of: Callable[[Location], int | None]
) -> Complaint:
    """The mistake to mend first, and how many remain."""
    details = error.errors(include_url=False)

    def order(detail: ErrorDetails) -> tuple[bool, int]:
        return detail["type"] != "extra_forbidden", line_of(_location(detail)) or 0

    detail = min(details, key=order)
    location = _location(detail)
    text = _text(detail, location, root)
    if len(details) > 1:
        text += f" (and {len(details) - 1} more)"
    return Complaint(location, text)


def _location(detail: ErrorDetails) -> Location:
    at = (detail.get("ctx") or {}).get("at", "")
    inner = tuple(int(p) if p.isdigit() else p for p in at.split(".")) if at else ()
    return (*detail["loc"], *inner)


def _text(detail: ErrorDetails, location: Location, root: type[BaseModel]) -> str:
    kind, key = detail["type"], dotted(location)
    if kind == "rule":
        message = detail["msg"]
        if location != tuple(detail["loc"]):
            return message  # a rule between fields names its keys itself
        return f"{key} = {message}" if message.startswith(("'", '"')) else f"{key}: {message}"
    if kind == "extra_forbidden":
        known = sorted(_keys_at(root, location[:-1]))
        near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
        mend = f"did you mean {near[0]}" if near else f"keys here: {', '.join(known)}"
        return f"unknown key {_shown(key)}: {mend}"
    if kind == "missing":
        sections = {"broker": "[broker] with id and url", "brokers": "[[brokers]] with id and url"}
        return f"{key} is missing: add {sections.get(key, f'{key} = ...')}"
    wanted = _WANTED.get(kind) or "it should " + detail["msg"].removeprefix("Input should ")
    if kind == "string_pattern_mismatch":
        wanted = f"it should match {(detail.get('ctx') or {})['pattern']}"
    if str(location[-1]) in _SECRET_KEYS:
        return f"{key} is not valid: {wanted}"
    return f"{key} = {_shown(detail['input'])}: {wanted}"


def dotted(location: Location) -> str:
    """``neighbours[0].url``."""
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


def _keys_at(root: type[BaseModel], location: Location) -> list[str]:
    """Names of the keys of the table at ``location``."""
    model: Any = root
    for part in location:
        if isinstance(part, int):
            model = get_args(model)[0]
        else:
            fields = {info.alias or name: info for name, info in model.model_fields.items()}
            model = fields[str(part)].annotation
    return [info.alias or name for name, info in model.model_fields.items()]
