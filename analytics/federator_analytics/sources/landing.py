"""Landing folders: segment files of record lines, all at once or as they come.

A folder of spools is a landing folder too. Folders are searched to any depth for ``*.jsonl`` and
``*.jsonl.gz`` (of a cut one, what can be read); names that begin with a dot or an underscore are
still being written and are not looked at. A file is read whole, of whatever file system Spark
knows: so each line's number is known, and a segment has at most ``session.SEGMENT_BYTES_MAX``.
"""

import re
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from federator_analytics.errors import InputMissingError
from federator_analytics.schemas.fields import struct
from federator_analytics.sources.lines import BLOCKS

SEGMENTS = "*.{jsonl,jsonl.gz}"
FILES_PER_TRIGGER = 1_000
"""Most files that one micro-batch takes: at 8 MB a file, what a laptop's disk holds at once."""
_FILE = struct("path string", "modificationTime timestamp", "length long", "content binary?")
"""A file as Spark's format ``binaryFile`` gives it."""
_READ = {"recursiveFileLookup": "true", "pathGlobFilter": SEGMENTS}


def read_lines(spark: SparkSession, inputs: Sequence[str]) -> DataFrame:
    """BLOCKS of every segment below ``inputs`` (folders or files, local or on object storage).

    Raises ``InputMissingError``: one of them is not there.
    """
    try:
        return _blocks(spark.read.format("binaryFile").options(**_READ).load(list(inputs)))
    except AnalysisException as error:
        raise _missing(error, inputs) from error


def stream_lines(
    spark: SparkSession, folder: str, *, files_per_trigger: int = FILES_PER_TRIGGER
) -> DataFrame:
    """BLOCKS of every segment in ``folder``, and of those that come.

    Raises ``InputMissingError``: the folder is not there.
    """
    reader = spark.readStream.format("binaryFile").schema(_FILE)
    reader = reader.options(**_READ, maxFilesPerTrigger=files_per_trigger)
    try:
        return _blocks(reader.load(folder))
    except AnalysisException as error:
        raise _missing(error, [folder]) from error


def literal(path: str) -> str:
    """``path`` as an input that names this one file, whatever characters are in its name."""
    return re.sub(r"([][{}*?\\])", r"\\\1", path)


def _blocks(read: DataFrame) -> DataFrame:
    return read.select(
        "content", F.col("path").alias("file"), F.lit(1).cast("long").alias("line")
    ).select(*BLOCKS.fieldNames())


def _missing(error: AnalysisException, inputs: Sequence[str]) -> Exception:
    """The error to raise instead of Spark's."""
    if error.getCondition() != "PATH_NOT_FOUND":
        return error
    told = error.getMessageParameters() or {}
    path = told.get("path", ", ".join(inputs)).removeprefix("file:")
    return InputMissingError(f"{path}: not there; a landing folder of *.jsonl files is wanted")
