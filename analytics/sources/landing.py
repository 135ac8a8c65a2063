"""Landing folders: segment files of record lines, all at once or as they come.

A folder of spools is a landing folder too. Folders are searched to any depth for ``*.jsonl`` and
``*.jsonl.gz`` (whole ones: of a cut one Spark reads nothing, and fails); names that begin with a
dot or an underscore are still being written and are not looked at.
"""

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.errors import InputMissingError
from analytics.sources.lines import LINES

SEGMENTS = "*.{jsonl,jsonl.gz}"
FILES_PER_TRIGGER = 1_000
"""Most files that one micro-batch takes: at 8 MB a file, what a laptop's disk holds at once."""
_READ = {"recursiveFileLookup": "true", "pathGlobFilter": SEGMENTS}


def read_lines(spark: SparkSession, inputs: Sequence[str]) -> DataFrame:
    """LINES of every segment below ``inputs`` (folders or files, local or on object storage).

    Raises:
        InputMissingError: One of them is not there.
    """
    try:
        return _with_positions(spark.read.options(**_READ).text(list(inputs)))
    except AnalysisException as error:
        raise _missing(error, inputs) from error


def stream_lines(
    spark: SparkSession, folder: str, *, files_per_trigger: int = FILES_PER_TRIGGER
) -> DataFrame:
    """LINES of every segment in ``folder``, and of those that come.

    Raises:
        InputMissingError: The folder is not there.
    """
    reader = spark.readStream.options(**_READ, maxFilesPerTrigger=files_per_trigger)
    try:
        return _with_positions(reader.text(folder))
    except AnalysisException as error:
        raise _missing(error, [folder]) from error


def _with_positions(read: DataFrame) -> DataFrame:
    return read.select(
        F.col("value").alias("raw"),
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
    ).select(*LINES.fieldNames())


def _missing(error: AnalysisException, inputs: Sequence[str]) -> Exception:
    """The error to raise instead of Spark's."""
    if error.getCondition() != "PATH_NOT_FOUND":
        return error
    told = error.getMessageParameters() or {}
    path = told.get("path", ", ".join(inputs)).removeprefix("file:")
    return InputMissingError(f"{path}: not there; a landing folder of *.jsonl files is wanted")
