import os
import sys

import pytest
from pyspark.sql import SparkSession

from tests.analytics import java

os.environ |= java.environment(java.options())  # what tests start as programs inherits it


@pytest.fixture(scope="session")
def spark():
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.ui.enabled", False)
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC")
        .config(map=java.INTERPRETED)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # as our sessions
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()
