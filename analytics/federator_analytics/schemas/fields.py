"""Schemas in few words: ``struct("origin long, delay_us_mean double?")``; ``?``: may be NULL.

Integers are all 64 bits wide: a broker id needs 33, and one width spares every join a cast.
``here`` makes small tables of them that the driver gives to Spark within the plan.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

TYPES: dict[str, types.DataType] = {
    "long": types.LongType(),
    "double": types.DoubleType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "timestamp": types.TimestampType(),
    "longs": types.ArrayType(types.LongType()),
    "sketch": types.ArrayType(types.ArrayType(types.LongType())),
}
"""``sketch``: a delay histogram, a list of ``[bucket, publications]``."""


def struct(*fields: str) -> StructType:
    """A schema from ``"name type"`` or ``"name type?"`` (NULL may be), in order.

    ``fields``: each is one field, or several with commas between.
    """
    told = [field.split() for text in fields for field in text.split(",")]
    return StructType(
        [StructField(name, TYPES[kind.rstrip("?")], kind.endswith("?")) for name, kind in told]
    )


def here(spark: SparkSession, rows: Sequence[tuple[object, ...]], schema: StructType) -> DataFrame:
    """A table of these rows, as one partition."""
    told = [dict(zip(schema.fieldNames(), row, strict=True)) for row in rows]
    return spark.createDataFrame(
        pa.Table.from_pylist(told, to_arrow_schema(schema)), schema
    ).coalesce(1)
