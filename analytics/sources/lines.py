"""Raw lines to typed records: one strict parse of each line, for every table at once.

Spark's JSON parser is lenient in three ways that would change figures silently, so each is closed
here: a wrong type gives NULL (the corrupt-record column tells); a string is made of any other
value (the text after the key must begin with a quote); what follows the first object on a line is
ignored (the line is parsed as the value of a key of a larger object, where nothing may follow).

This says only *whether* a line is good, for good lines are nearly all: ``quarantine`` says why not.
"""

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from analytics.schemas.fields import struct
from analytics.schemas.records import (
    BUCKET_MAX,
    CHOICES,
    COUNT_MAX,
    FIELDS,
    HEAD,
    INSTANT_US_MAX,
    RECORD_LINE,
    Field,
)

LINES = struct("raw string", "file string?", "block long?")
"""Raw lines as every source gives them. ``block``: where in ``file`` Spark began to read."""

_PARSED, _CORRUPT = "_parsed", "_corrupt"
_WRAPPED = StructType([StructField("record", RECORD_LINE), StructField(_CORRUPT, StringType())])
_JSON = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
}


def parse(lines: DataFrame) -> DataFrame:
    """LINES to RECORD_LINE's columns, LINES' columns, and ``good``: whether all is as it must be.

    ``ordinal`` grows by one from line to line of one block. Empty lines are no lines. ``raw`` is
    NULL where the line is good.
    """
    wrapped = F.from_json(F.concat(F.lit('{"record":'), "raw", F.lit("}")), _WRAPPED, _JSON)
    numbered = lines.withColumn("ordinal", F.monotonically_increasing_id())
    told = numbered.where(F.trim("raw") != "").withColumn(_PARSED, wrapped)
    whole = F.col(f"{_PARSED}.{_CORRUPT}").isNull()
    judged = told.withColumn("good", F.coalesce(whole & _sound(F.col("raw")), F.lit(False)))
    return judged.select(
        f"{_PARSED}.record.*",
        "good",
        F.when(~F.col("good"), F.col("raw")).alias("raw"),
        "file",
        "block",
        "ordinal",
    )


def _of(name: str) -> Column:
    """A key of the parsed record, which is taken apart at the very end: it is wide."""
    return F.col(f"{_PARSED}.record.{name}")


def _sound(line: Column) -> Column:
    """Whether each key of the line's table is there and in range; NULL or false if not."""
    tables = iter(FIELDS.items())
    name, fields = next(tables)
    chain = F.when(_of("table") == name, _fields_sound(fields, line))
    for name, fields in tables:
        chain = chain.when(_of("table") == name, _fields_sound(fields, line))
    return _fields_sound(HEAD, line) & chain


def _fields_sound(fields: tuple[Field, ...], line: Column) -> Column:
    rules = [in_range(field, line) for field in fields]
    if any(field.name == "sender" for field in fields):
        rules.append(sender_told())
    return reduce(and_, rules)


def in_range(field: Field, line: Column) -> Column:
    """Whether the parsed value of ``field`` is allowed. ``line`` is the raw text."""
    value = _of(field.name)
    match field.kind:
        case "long":
            rule = value.between(field.low, field.high)
        case "string" if field.name in CHOICES:
            rule = value.isin(*CHOICES[field.name])
        case "string" if field.name == "table":
            rule = value.isNotNull()
        case "string":
            rule = value.isNotNull() & is_text(field.name, line)
        case "sketch":
            rule = sketch_sound(value)
        case _:
            rule = F.forall(value, lambda us: us.between(-INSTANT_US_MAX, INSTANT_US_MAX))
    return value.isNull() | rule if field.nullable else rule


def is_text(key: str, line: Column) -> Column:
    """Whether the value of ``key`` is a JSON string. A quote within a string has a backslash."""
    return line.contains(f'"{key}":"') | line.rlike(rf'"{key}"\s*:\s*"')


def sketch_sound(sketch: Column) -> Column:
    """Pairs of a bucket and a count, which add up to ``publications``."""
    pairs = F.forall(
        sketch,
        lambda pair: (
            (F.size(pair) == 2) & pair[0].between(0, BUCKET_MAX) & pair[1].between(1, COUNT_MAX)
        ),
    )
    total = F.aggregate(sketch, F.lit(0).cast("long"), lambda so_far, pair: so_far + pair[1])
    return F.when(pairs, total == _of("publications"))


def sender_told() -> Column:
    """Only the first hop has no sender."""
    return _of("sender").isNull() == (_of("hop") == 0)
