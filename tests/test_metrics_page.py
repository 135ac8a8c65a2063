"""docs/metrics.md lists exactly the fields of the records, in order, and every kind of event."""

import re
from pathlib import Path

import msgspec

from federator.protocol.telemetry.records import TABLES, Record
from federator.runtime.telemetry.stream import KINDS

PAGE = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text("utf-8")

LANDED = ("collector_gap", "collector_skip")
"""Kinds that collectors write."""

WORDS = {
    "integer": {"integer"},
    "id": {"integer"},
    "integer, signed": {"integer"},
    "integer, signed, or null": {"integer", "null"},
    "integer or null": {"integer", "null"},
    "id or null": {"integer", "null"},
    "0 or 1": {"integer"},
    "1": {"enum"},
    "text": {"string", "enum"},
    "text or null": {"string", "null"},
    "`in` or `out`": {"enum"},
    "list of integers": {"array"},
    "list of [bucket, publications]": {"array"},
}


def fields_on_page(table):
    """(name, type) of each row below the marker of ``table``."""
    rest = PAGE.split(f"<!-- table: {table} -->\n", 1)[1]
    rows = rest.split("\n\n", 1)[0].splitlines()[2:]
    return [re.match(r"\| `(\w+)` \| (.+?) \|", row).groups() for row in rows]


def kinds_of(field_type):
    """JSON types that a field may have."""
    schema = msgspec.json.schema(field_type)
    options = schema.get("anyOf", [schema])
    return {"enum" if "enum" in option else option["type"] for option in options}


def test_every_table_is_described_field_by_field_and_nothing_else_is():
    envelope = [field.name for field in msgspec.structs.fields(Record)]
    assert [name for name, _ in fields_on_page("envelope")] == ["table", *envelope]
    assert re.findall(r"<!-- table: (\w+) -->", PAGE) == ["envelope", *TABLES]

    for table, kind in TABLES.items():
        own = [f for f in msgspec.structs.fields(kind) if f.name not in envelope]
        page = fields_on_page(table)
        assert [name for name, _ in page] == [f.name for f in own], table
        for field, (name, word) in zip(own, page, strict=True):
            assert kinds_of(field.type) <= WORDS[word], (table, name)
            assert ("null" in kinds_of(field.type)) == ("null" in WORDS[word]), (table, name)


def test_every_kind_of_event_is_described_and_no_other():
    rows = PAGE.split("| kind | fields |\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    named = [kind for row in rows for kind in re.findall(r"`(\w+)`", row.split("|")[1])]

    assert sorted(named) == sorted((*KINDS, *LANDED))
