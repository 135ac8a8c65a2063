"""A Spark standalone cluster on this machine: a master and workers from the installed pyspark.

Everything listens on loopback, at ports the system chooses, in bounded memory; a process is ended
by its id. The workers find only what a cluster's workers would: Python and the libraries, not our
sources, which must come by spark-submit.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

from federator_analytics.cli.submit import spark_home

from lab.grid.processes.children import mortal

START_S = 120
"""A JVM on a busy machine; far above what it takes."""


@contextlib.contextmanager
def cluster(folder, *, workers=2, worker_memory="1g"):
    """The master's URL, once all workers have registered."""
    with contextlib.ExitStack() as stack:
        master = _start(stack, folder, "Master", "--port", "0", "--webui-port", "0")
        url = _said(master, r"Starting Spark master at (spark://\S+)")[0]
        for number in range(workers):
            options = ["--port", "0", "--webui-port", "0", "--cores", "1"]
            options += ["--memory", worker_memory, "--work-dir", str(folder / f"work-{number}")]
            _start(stack, folder, "Worker", *options, url)
        _said(master, "Registering worker", times=workers)
        yield url


def _start(stack, folder, role, *options):
    log = folder / f"{role}-{time.monotonic_ns()}.log"
    home = spark_home()
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role.lower()}.{role}"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_MASTER_HOST": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            mortal([*command, "--host", "127.0.0.1", *options]),
            stdout=file,
            stderr=file,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    stack.callback(_end, process)
    return log, process


def _end(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _said(started, pattern, *, times=1):
    log, process = started
    end_s = time.monotonic() + START_S
    while True:
        text = log.read_text(errors="replace")
        found = re.findall(pattern, text)
        if len(found) >= times:
            return found
        assert process.poll() is None, text[-2000:]
        assert time.monotonic() < end_s, f"not {times} times {pattern}: {text[-2000:]}"
        time.sleep(0.1)
