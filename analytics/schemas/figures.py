"""The placement paper's sweeps: the tables of its figures."""

from pyspark.sql.types import (
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

SWEEP_POINTS = StructType(
    [
        StructField("sweep", StringType(), nullable=False),
        StructField("x", DoubleType(), nullable=False),
        StructField("seed", IntegerType(), nullable=False),
        StructField("scale", DoubleType(), nullable=False),
    ]
)
"""One row per computation: one value of a swept parameter, one seed."""

FIGURE_VALUES = StructType(
    [
        StructField("figure", IntegerType(), nullable=False),
        StructField("series", StringType(), nullable=False),
        StructField("x", DoubleType(), nullable=False),
        StructField("seed", IntegerType(), nullable=False),
        StructField("value", DoubleType(), nullable=False),
    ]
)
"""One row per figure, series, x and seed: the one table from which every figure is drawn."""

FIGURE_CURVES = StructType(
    [
        StructField("figure", IntegerType(), nullable=False),
        StructField("series", StringType(), nullable=False),
        StructField("x", DoubleType(), nullable=False),
        StructField("seeds", LongType(), nullable=False),
        StructField("mean", DoubleType(), nullable=True),
        StructField("deviation", DoubleType(), nullable=True),
    ]
)
"""One row per figure, series and x. The deviation is the sample's; NULL for one seed."""
