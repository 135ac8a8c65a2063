import os
import sys

import pytest
from pyspark.sql import SparkSession

# No test's Java lives long enough to earn back what its optimising compiler costs. Those that tests
# start as programs of their own inherit it.
os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1"
os.environ["SPARK_DAEMON_JAVA_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"]


@pytest.fixture(scope="session")
def spark():
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.ui.enabled", False)
        # Tables are small here: to compile Java for each query takes longer than to interpret it.
        .config("spark.sql.codegen.wholeStage", False)
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()
