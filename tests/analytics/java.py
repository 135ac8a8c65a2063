"""How the Java of the tests' Sparks is started: cheaply, for none of them lives long.

A start of Spark is mostly the loading of thousands of classes. Java can keep them in an archive,
as they are once loaded, and each start that maps it takes half the processor time. It is made by

    python -m tests.analytics.java

once for a Java and a Spark, in the environment of Python; without it tests are slower, and nothing
else. See java(1), "Application Class Data Sharing".
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from tests.analytics.landing import example, land

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""No test's Java lives long enough to earn back what its optimising compiler costs, and Spark's own
classes need no check each time."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Tables are small here: to compile Java for each query takes longer than to interpret it."""

MAKING_S = 3600
"""Tests with real brokers may want the processors meanwhile."""


def archive():
    """The archive's path, which tells of which Java and Spark it is; it need not exist."""
    java = Path(shutil.which("java") or "java").resolve()
    key = f"{java} {java.stat().st_mtime_ns if java.exists() else 0} {pyspark.__version__}"
    return Path(sys.prefix, f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa")


def options():
    """Of every Java that tests start: of Spark's driver, of its executors and of its daemons."""
    made = archive()
    if not made.exists():
        return OPTIONS
    return f"{OPTIONS} -XX:SharedArchiveFile={made} -Xlog:disable"  # it need not say if it cannot


def environment(java):
    """What Spark's own programs read: they start Java with ``java``, and no compiled queries."""
    settings = [f"-D{key}={value}" for key, value in INTERPRETED.items()]
    return {"SPARK_DAEMON_JAVA_OPTS": java, "SPARK_SUBMIT_OPTS": " ".join([java, *settings])}


def make(path):
    """Write the classes that a streaming job needs, which are nearly all that any test needs."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        land(Path(folder, "in"), example(seconds=2))
        made = Path(folder, "classes.jsa")
        verb = [
            "stream",
            f"{folder}/in",
            "--out",
            f"{folder}/out",
            "--once",
            "--master",
            "local[1]",
        ]
        job = subprocess.run(  # ends with its Java, which writes to the same pipe
            [sys.executable, "-m", "federator_analytics", *verb],
            env=os.environ | environment(f"{OPTIONS} -XX:ArchiveClassesAtExit={made}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAKING_S,
            check=False,
        )
        if not made.exists():
            sys.exit(f"no archive of Spark's classes was made:\n{job.stdout}")
        made.replace(path)


if __name__ == "__main__":
    if not (path := archive()).exists():
        make(path)
