"""What agents say about their spools, read leniently: the JSON that docs/metrics.md describes.

Readers here stand outside of the daemon: they know its topics and its JSON, not its types. What
does not decode is nothing, and what has keys we do not know is read without them.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

VERSION = 1
_BATCH = re.compile(rb'"batch" ?: ?(\d{1,18})[,}]')


@dataclass(frozen=True, slots=True)
class Head:
    """What a spool holds, as its agent says; at ``at_us`` of the agent's clock."""

    broker: int
    spool: str
    first: int
    last: int
    at_us: int


@dataclass(frozen=True, slots=True)
class Again:
    """A message of an answer: ``lines`` of batches ``first`` to ``last``, and what is held."""

    spool: str
    first: int
    last: int
    held_first: int
    held_last: int
    lines: list[bytes]


@dataclass(frozen=True, slots=True)
class Guide:
    """Whom the agent of ``broker`` knows: id to URL, of those that are not gone."""

    broker: int
    urls: dict[int, str]


def topic(federation: str, *levels: str) -> str:
    """One of the federation's topics."""
    return "/".join(("$fed", federation, *levels))


def read_head(payload: bytes) -> Head | None:
    """From ``metrics/head``."""
    told = _object(payload)
    numbers = _numbers(told, "broker", "first", "last", "at_us")
    spool = told.get("spool")
    if numbers is None or told.get("v") != VERSION or not isinstance(spool, str):
        return None
    broker, first, last, at_us = numbers
    return Head(broker, spool, first, last, at_us)


def read_again(payload: bytes) -> Again | None:
    """From ``metrics/again/<token>``."""
    header, _, body = payload.partition(b"\n")
    told = _object(header)
    numbers = _numbers(told, "batch_first", "batch_last", "held_first", "held_last")
    spool = told.get("spool")
    if numbers is None or told.get("v") != VERSION or not isinstance(spool, str):
        return None
    lines = [line for line in body.split(b"\n") if line]
    first, last, held_first, held_last = numbers
    return Again(spool, first, last, held_first, held_last, lines)


def read_guide(payload: bytes) -> Guide | None:
    """From ``guide``, whose version is that of the guide, not of the metrics."""
    told = _object(payload)
    broker, listed = told.get("broker"), told.get("brokers", ())
    if not isinstance(broker, int) or not isinstance(listed, list):
        return None
    urls: dict[int, str] = {}
    for entry in listed:
        if isinstance(entry, dict) and entry.get("state") != "gone":
            id_, url = entry.get("id"), entry.get("address")
            if isinstance(id_, int) and isinstance(url, str):
                urls[id_] = url
    return Guide(broker, urls)


def ask(*, spool: str, first: int, last: int, to: str) -> bytes:
    """For ``metrics/ask``."""
    told = {"v": VERSION, "spool": spool, "first": first, "last": last, "to": to}
    return json.dumps(told).encode()


def batch_of(line: bytes, otherwise: int) -> int:
    """The batch a record line says it is of."""
    found = _BATCH.search(line)
    return int(found[1]) if found else otherwise


def _object(text: bytes) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _numbers(told: dict[str, Any], *keys: str) -> list[int] | None:
    values = [told.get(key) for key in keys]
    whole = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    return whole if len(whole) == len(keys) else None
