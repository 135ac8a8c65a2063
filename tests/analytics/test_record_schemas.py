import msgspec
import pytest
from federator_analytics.schemas.fields import TYPES
from federator_analytics.schemas.records import FIELDS, HEAD, RECORD_LINE
from federator_analytics.schemas.reports import REPORT_TABLES

from federator.protocol.telemetry.records import TABLES
from federator.protocol.types import EPOCH_LEAP_MAX
from federator.runtime.process.clocks import wall_clock_ms
from tests.analytics.landing import example, land


def test_one_line_schema_holds_every_key_of_every_table_and_none_twice():
    names = RECORD_LINE.fieldNames()

    assert len(names) == len(set(names))
    for fields in FIELDS.values():
        for field in (*HEAD, *fields):
            assert RECORD_LINE[field.name].dataType == TYPES[field.kind]


def test_the_example_has_exactly_the_keys_that_its_tables_want():
    for told in example(seconds=2).values():
        for line in told:
            fields = (*HEAD, *FIELDS[line["table"]])
            assert {f.name for f in fields if not f.nullable} <= set(line)
            assert set(line) <= {f.name for f in fields}


def test_an_example_lands_as_the_collector_lands(tmp_path):
    paths = land(tmp_path, example(seconds=15))

    assert len(paths) == 6
    assert paths[0].parent.parent.name == "date=2026-09-21"
    assert paths[0].name == "1-0000000000000001-1-10.jsonl"


@pytest.mark.parametrize("table", FIELDS)
def test_readers_allow_what_writers_may_leave_out_and_want_no_more_than_they_write(table):
    written = msgspec.inspect.type_info(TABLES[table]).fields
    may_be_null = {field.encode_name: takes_null(field.type) for field in written}

    for field in (*HEAD, *FIELDS[table]):
        if field.name != "table" and not field.nullable:
            assert may_be_null[field.name] is False, field.name


def takes_null(kind):
    """Whether a type of ``msgspec.inspect`` allows null."""
    kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    return any(isinstance(one, msgspec.inspect.NoneType) for one in kinds)


def test_no_report_table_names_a_column_twice():
    for name, schema in REPORT_TABLES.items():
        assert len(schema.fieldNames()) == len(set(schema.fieldNames())), name


def test_an_event_may_carry_an_epoch():
    """``agent_started`` does: milliseconds since 1970, more than any count is believed to be."""
    (value,) = (field for field in FIELDS["events"] if field.name == "value")

    assert value.low < 0
    assert value.high > wall_clock_ms() + EPOCH_LEAP_MAX
