"""Small tables that the driver made, given to Spark within the plan: to read them takes no job."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def here(spark: SparkSession, rows: Sequence[tuple[object, ...]], schema: StructType) -> DataFrame:
    """These rows, as one partition."""
    told = [dict(zip(schema.fieldNames(), row, strict=True)) for row in rows]
    return spark.createDataFrame(
        pa.Table.from_pylist(told, to_arrow_schema(schema)), schema
    ).coalesce(1)
