import os
import sys

import pytest
from pyspark.sql import SparkSession

# No test's Java lives long enough to earn back what its optimising compiler costs, and Spark's own
# classes need no check each time. Those that tests start as programs of their own inherit it.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
# Tables are small here: to compile Java for each query takes longer than to interpret it.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
os.environ["SPARK_DAEMON_JAVA_OPTS"] = JAVA
os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
    [JAVA, *(f"-D{key}={value}" for key, value in INTERPRETED.items())]
)


@pytest.fixture(scope="session")
def spark():
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.ui.enabled", False)
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC")
        .config(map=INTERPRETED)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()
