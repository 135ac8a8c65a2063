"""Starting Spark: on this machine, on a cluster, or inside spark-submit, and ending it again.

Intuition: whoever runs a report should meet Spark only when something is missing, and then as one
line. So Java is looked for before Spark is started, a master is knocked at before Spark waits a
minute for it, and Spark's own log is cut down to errors. Times are UTC everywhere, and on one
machine nothing listens but on loopback.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from federator_analytics.errors import InputMissingError, UnavailableError

JAVA_WANTED = 17
"""The oldest Java that this Spark runs on."""

JAVA_ANSWER_S = 20.0
MASTER_ANSWER_S = 5.0
DRIVER_MEMORY = "2g"
LOCAL_PARTITIONS = 32
"""Partitions of a shuffle here: Spark's 200 cost a small report more than its data does."""
HUGE_METHOD_BYTES = "8000"
"""A longer method is interpreted for ever by Java: Spark is to make several of it."""
TABLE_WRITERS = "32"
"""Files that a task of the staging may have open, one per partial: else it sorts by these first."""
OPEN_COST_BYTES = str(2**18)
"""What opening a segment is worth in reading; by Spark's 4 MB each small one would be a task."""
COMPILED_KEPT = "2000"
"""Pieces of a query that stay compiled: Spark keeps 100, fewer than one refresh of the tables has,
and so would compile each of them again every time."""
SEGMENT_BYTES_MAX = str(2**28)
"""The size of a segment, which is held in memory some times over: agents make 8 MB."""
HANDED_BYTES = str(2**25)
"""Blocks of lines that a Python worker gets at a time are so large, if they are several."""
LOOPBACK = "127.0.0.1"
YARN_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Where Spark looks for the configuration of a cluster of Hadoop."""
LATE_OPTIMISED = "".join(
    f" -XX:Tier4{what}Threshold={count}"
    for what, count in {
        "Invocation": 50_000,
        "MinInvocation": 6_000,
        "Compile": 150_000,
        "BackEdge": 400_000,
    }.items()
)
"""Java's best compiler is to come ten times later: of the code that Spark makes of a query, little
runs long enough to be worth it, and what parses and sorts is soon past these counts too."""
QUIET = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
"""An option of the driver's Java: log errors only."""


def look_for_spark(master: str | None) -> None:
    """Check for what Spark needs where it is to run, before it is started and anything is written.

    Args:
        master: As of ``spark_session``.

    Raises:
        UnavailableError: Java or the master is missing or too old.
        InputMissingError: The configuration of the cluster is not there.
    """
    if not _is_submitted():
        find_java()
    if master is not None and master.startswith("spark://"):
        knock(master)
    if master == "yarn":
        _look_for_yarn()


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started the JVM


def _look_for_yarn() -> None:
    folders = {name: os.environ[name] for name in YARN_FOLDERS if name in os.environ}
    if not folders:
        raise InputMissingError(
            f"--master yarn: {' or '.join(YARN_FOLDERS)} is not set: the folder of the cluster's "
            "configuration is wanted"
        )
    if not any(map(os.path.isdir, folders.values())):
        told = ", ".join(f"{name}={folder}" for name, folder in folders.items())
        raise InputMissingError(
            f"--master yarn: {told}: no such folder: that of the cluster's configuration is wanted"
        )


def require_connector(spark: SparkSession, option: str, url: str) -> None:
    """Check that Spark can reach what ``option`` names.

    Raises ``UnavailableError``: it has nothing for URLs of this kind.
    """
    if "://" not in url:
        return
    scheme, java = urlsplit(url).scheme, spark.sparkContext
    try:
        file_system = java._jvm.org.apache.hadoop.fs.FileSystem  # type: ignore[union-attr]
        file_system.getFileSystemClass(scheme, java._jsc.hadoopConfiguration())
    except Py4JError as error:
        wanted = "name it with `submit --packages` (docs/analytics.md, On object storage)"
        raise UnavailableError(
            f"{option} {url}: Spark has no connector for {scheme}://: {wanted}"
        ) from error


@contextlib.contextmanager
def spark_session(
    name: str,
    *,
    master: str | None = None,
    driver_memory: str = DRIVER_MEMORY,
    java_options: str = "",
    config: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session that is stopped at the end.

    Args:
        name: What the cluster's page shows.
        master: ``local[N]``, ``spark://HOST:PORT`` and so on. ``None``: what spark-submit said,
            else all cores of this machine.
        driver_memory: As Java writes it; has no effect inside spark-submit, which sets it itself.
        java_options: Further options of Java; likewise.
        config: Further Spark configuration; stronger than ours.

    Raises ``UnavailableError``: Spark does not start.
    """
    submitted = _is_submitted()
    chosen = _config(
        master, submitted=submitted, driver_memory=driver_memory, java_options=java_options
    )
    told = chosen.get("spark.master", "")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers take any python3
    if is_on_this_machine(told):
        stay_on_this_machine(os.environ)
    builder = SparkSession.builder.appName(name)
    for key, value in (chosen | dict(config or {})).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except (PySparkRuntimeError, Py4JError) as error:
        first = " ".join(str(error).split())
        raise UnavailableError(f"Spark did not start: {first[:200]}") from error
    if submitted:
        session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def _config(
    master: str | None, *, submitted: bool, driver_memory: str, java_options: str
) -> dict[str, str]:
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # as the stream writes
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.codegen.hugeMethodLimit": HUGE_METHOD_BYTES,
        "spark.sql.maxConcurrentOutputFileWriters": TABLE_WRITERS,
        "spark.sql.files.openCostInBytes": OPEN_COST_BYTES,
        "spark.sql.sources.binaryFile.maxLength": SEGMENT_BYTES_MAX,
        "spark.sql.execution.arrow.maxBytesPerBatch": HANDED_BYTES,
        "spark.sql.codegen.cache.maxEntries": COMPILED_KEPT,
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # a walk of the stack per column
    }
    if submitted and master is None:
        return chosen
    chosen["spark.master"] = master = master or "local[*]"
    if not submitted:
        chosen["spark.driver.memory"] = driver_memory
        chosen["spark.driver.extraJavaOptions"] = f"{QUIET}{LATE_OPTIMISED} {java_options}"
    if master.startswith("local"):
        chosen["spark.sql.shuffle.partitions"] = str(LOCAL_PARTITIONS)
    if is_on_this_machine(master):
        chosen |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return chosen


def stay_on_this_machine(environment: MutableMapping[str, str]) -> None:
    """Else Spark ends where the machine's own name leads to no address, as in a bare container."""
    environment.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def is_on_this_machine(master: str) -> bool:
    """Whether all of Spark runs here, so that nothing need be reached from outside."""
    host = urlsplit(master).hostname
    return master.startswith("local") or host in ("localhost", LOOPBACK)


def find_java() -> int:
    """The major version of the Java that Spark will start.

    Raises ``UnavailableError``: there is none, or one too old.
    """
    wanted = f"Java {JAVA_WANTED} or newer is wanted: install it, or point JAVA_HOME at it"
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else "java"
    if shutil.which(program) is None:
        place = f"in JAVA_HOME={home}" if home else "on the path, and JAVA_HOME is not set"
        raise UnavailableError(f"no Java {place}: {wanted}")
    try:
        answer = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"{program} -version does not answer ({error}): {wanted}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if found is None or int(found[1]) < JAVA_WANTED:
        said = found[1] if found else (answer.stderr.splitlines() or ["nothing"])[0]
        raise UnavailableError(f"{program} is Java {said}: {wanted}")
    return int(found[1])


def knock(master: str) -> None:
    """Check that something listens at ``spark://HOST:PORT[,HOST:PORT...]``.

    Raises ``UnavailableError``: nobody does.
    """
    refused = ""
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            address = (host.strip("[]"), int(port))
            socket.create_connection(address, timeout=MASTER_ANSWER_S).close()
        except (OSError, ValueError, OverflowError) as error:
            refused = str(error)
        else:
            return
    raise UnavailableError(f"no Spark master at {master} ({refused}): spark://HOST:PORT is wanted")
