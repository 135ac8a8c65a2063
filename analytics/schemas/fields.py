"""Schemas in few words: ``struct("origin long", "delay_us_mean double?")``; ``?``: may be NULL.

Integers are all 64 bits wide: a broker id needs 33, and one width spares every join a cast.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TYPES: dict[str, DataType] = {
    "long": LongType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "longs": ArrayType(LongType(), containsNull=True),
    "sketch": ArrayType(ArrayType(LongType(), containsNull=True), containsNull=True),
}
"""``sketch``: a delay histogram, a list of ``[bucket, publications]``."""


def struct(*fields: str) -> StructType:
    """A schema from ``"name type"`` or ``"name type?"`` (NULL may be), in order."""
    told = [[*field.removesuffix("?").split(), field[-1]] for field in fields]
    return StructType([StructField(name, TYPES[kind], end == "?") for name, kind, end in told])
