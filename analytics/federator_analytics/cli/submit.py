"""``federator-analytics submit -- VERB ARGS``: the verb runs on a cluster, unchanged.

Idea: a verb takes its session from ``federator_analytics.session``, which inside spark-submit takes
what spark-submit was told. So one zip of our own code for the workers, and a main program of two
lines, are all there is to submitting. The zip is plain Python: libraries with compiled parts cannot
be imported from a zip, so they are installed on the workers or come as ``--archives``.
"""

import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import click

from federator_analytics.cli.spark import Master, memory_option
from federator_analytics.errors import UnavailableError
from federator_analytics.session import (
    LOOPBACK,
    QUIET,
    is_on_this_machine,
    look_for_spark,
    stay_on_this_machine,
)

SHIPPED = ("federator_analytics", "federator")
"""Packages of ours that code on the workers imports."""

_MAIN = "from federator_analytics.cli import main\n\nmain()\n"


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What spark-submit is told: ``arguments`` are the verb's, the others the options of the verb
    ``submit``. ``conf``: ``KEY=VALUE`` each, stronger than ours.
    """

    master: str
    arguments: tuple[str, ...]
    executor_memory: str
    driver_memory: str
    packages: str | None
    archives: str | None  # FILE#NAME: unpacked in each executor's folder as NAME
    worker_python: str | None  # by default this one
    conf: tuple[str, ...]
    spark_home: Path | None  # by default the installed pyspark


def submit(what: Submission) -> int:
    """Run it to its end; the verb's exit code. SIGTERM is passed on.

    Raises ``UnavailableError``: Java, spark-submit or the master is missing.
    """
    look_for_spark(what.master)
    program = spark_home(what.spark_home) / "bin" / "spark-submit"
    if not program.is_file():
        raise UnavailableError(f"{program} is not there: point --spark-home at a Spark")
    with tempfile.TemporaryDirectory(prefix="federator-submit-") as folder:
        zipped, main = Path(folder, "federator.zip"), Path(folder, "submitted.py")
        ship(zipped)
        main.write_text(_MAIN)
        command = [str(program), *options(what, zipped), str(main), *what.arguments]
        with subprocess.Popen(command, env=_environment(what)) as process, _passing_on(process):
            return process.wait()


def ship(path: Path) -> None:
    """Write our packages as a zip to ``path``."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in SHIPPED:
            root = _folder(package)
            for file in sorted(root.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, Path(package, file.relative_to(root)))


def options(what: Submission, zipped: Path) -> list[str]:
    """What stands before the main program on spark-submit's command line."""
    told = ["--master", what.master, "--name", f"federator {what.arguments[0]}"]
    told += ["--driver-memory", what.driver_memory, "--executor-memory", what.executor_memory]
    told += ["--py-files", str(zipped)]
    conf = {"spark.driver.extraJavaOptions": QUIET}
    if what.worker_python is not None:
        conf["spark.pyspark.python"] = what.worker_python
        conf["spark.pyspark.driver.python"] = sys.executable
    if is_on_this_machine(what.master):
        conf |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    for pair in [*(f"{key}={value}" for key, value in conf.items()), *what.conf]:
        told += ["--conf", pair]
    for option, value in (("--packages", what.packages), ("--archives", what.archives)):
        if value is not None:
            told += [option, value]
    return told


def spark_home(told: Path | None = None) -> Path:
    """The Spark to use: the one told, else the installed pyspark, which is a whole one."""
    return told if told is not None else _folder("pyspark")


def _folder(package: str) -> Path:
    origin = getattr(find_spec(package), "origin", None)
    assert isinstance(origin, str), f"{package} is a package in a folder"
    return Path(origin).parent


def _environment(what: Submission) -> dict[str, str]:
    environment = {**os.environ, "SPARK_HOME": str(spark_home(what.spark_home))}
    if what.worker_python is None:
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
    else:
        environment.pop("PYSPARK_PYTHON", None)
    if is_on_this_machine(what.master):
        stay_on_this_machine(environment)
    return environment


@contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """While inside, who terminates us terminates ``process``, and we wait for its end."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.command("submit", context_settings={"ignore_unknown_options": False})
@click.option(
    "--master", type=Master(), required=True, help="spark://HOST:PORT, yarn, k8s://..., local[N]."
)
@memory_option("--executor-memory", "Of each executor.")
@memory_option("--driver-memory", "Of this machine's part.")
@click.option("--packages", help="Maven packages, comma separated: for object storage.")
@click.option(
    "--archives",
    help="A packed virtual environment, FILE.tar.gz#NAME, for workers that lack the libraries.",
)
@click.option("--python", "worker_python", help="The workers' Python, e.g. NAME/bin/python.")
@click.option("--conf", "conf", multiple=True, metavar="KEY=VALUE", help="Further configuration.")
@click.option(
    "--spark-home",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="SPARK_HOME",
    help="Whose bin/spark-submit is used. [$SPARK_HOME, else the installed pyspark's]",
)
@click.argument("verb", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    conf: tuple[str, ...],
    verb: tuple[str, ...],
    **options: Any,  # noqa: ANN401  # fields of Submission by name
) -> int:
    """Run VERB with its arguments by spark-submit; its exit code is ours.

    Our own code is shipped to the workers as a zip. The libraries it needs (pyarrow, and paho-mqtt
    for the live source) must be installed there, or come with --archives.

    \b
        federator-analytics submit --master spark://hub:7077 -- report s3a://metrics --out s3a://out
    """
    for pair in conf:
        if "=" not in pair:
            raise click.BadParameter(f"{pair}: KEY=VALUE is wanted", param_hint="--conf")
    return submit(Submission(arguments=verb, conf=conf, **options))
