"""``script/bench analytics-stream``: a stream that is killed, beside a report, to row and type."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from federator_analytics.jobs import report
from federator_analytics.schemas.reports import REPORT_TABLES
from federator_analytics.session import spark_session
from pyspark.sql import DataFrame, SparkSession

from tests.analytics.bench import CHECKED, DIFFERENT, simulated
from tests.analytics.landing import typed

PATIENCE_S = 3_600
LIVES_S = 15.0
"""At most how long a stream lives on once it has folded a micro-batch more."""
FILES_PER_TRIGGER = "100"
EXAMPLES = 3


@click.command()
@click.option("--records", type=click.IntRange(1_000), default=CHECKED, show_default=True)
@click.option("--brokers", type=int, default=25, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--kills", type=click.IntRange(0), default=5, show_default=True)
@click.option("--cores", type=int, default=os.cpu_count(), show_default=True)
@click.option("--driver-memory", default="4g", show_default=True, help="The JVM's heap.")
@click.option("--scratch", type=click.Path(file_okay=False, path_type=Path), help="[a new folder]")
def command(
    records: int,
    brokers: int,
    seed: int,
    kills: int,
    cores: int,
    driver_memory: str,
    scratch: Path | None,
) -> None:
    """Hold every table of a stream that was killed against the report of the same records."""
    with tempfile.TemporaryDirectory(dir=scratch, prefix="federator-bench-") as folder:
        home = Path(folder)
        log, out = home / "log", home / "stream"
        told = simulated(log, brokers, records, seed, compress=False)
        click.echo(f"{told['records']:,} records in {told['files']:,} files")
        folded = stream_with_kills(log, out, kills=kills, seed=seed, cores=cores)
        click.echo(f"killed after micro-batches {folded}, and brought to the end")
        found = differences(log, out, home / "report", cores=cores, memory=driver_memory)
    click.echo("\n".join([*found, "different"] if found else ["every table is the same"]))
    sys.exit(DIFFERENT if found else 0)


def stream_with_kills(log: Path, out: Path, *, kills: int, seed: int, cores: int) -> list[int]:
    """Stream ``log`` into ``out``, killed with SIGKILL ``kills`` times; then to the end.

    Returns:
        The micro-batches that were folded when it was killed, each time.

    Raises:
        RuntimeError: It ended by itself before it was killed, or not well in the end.
    """
    chance, folded = random.Random(seed), []
    for _ in range(kills):
        job = start(log, out, "--files-per-trigger", FILES_PER_TRIGGER, cores=cores)
        parts, late_s = out / "_stream" / "parts", time.monotonic() + PATIENCE_S
        before = newest(parts)
        while newest(parts) == before and job.poll() is None and time.monotonic() < late_s:
            time.sleep(0.5)
        time.sleep(chance.uniform(0, LIVES_S))
        if job.poll() is not None:
            raise RuntimeError(f"the stream ended by itself: exit code {job.returncode}")
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        folded.append(newest(parts))
    last = start(log, out, "--once", cores=cores)
    try:
        if last.wait(PATIENCE_S):
            raise RuntimeError(f"the stream failed: exit code {last.returncode}")
    finally:
        last.kill()
    return folded


def differences(log: Path, out: Path, again: Path, *, cores: int, memory: str) -> list[str]:
    """What is not alike in the tables in ``out`` and a report of ``log``, made in ``again``."""
    found = []
    with spark_session("bench", master=f"local[{cores}]", driver_memory=memory) as spark:
        report.run(spark, [str(log)], str(again))
        for name in REPORT_TABLES:
            found += _unlike_rows(name, _table(spark, out, name), _table(spark, again, name))
    ours, theirs = typed(out), typed(again)
    found += [f"{name}: of other types" for name in REPORT_TABLES if ours[name] != theirs[name]]
    return found


def _unlike_rows(name: str, streamed: DataFrame, reported: DataFrame) -> list[str]:
    both = ("stream", streamed, reported), ("report", reported, streamed)
    return [
        f"{name}: only in the {where}: {row}"
        for where, one, other in both
        for row in one.exceptAll(other).take(EXAMPLES)
    ]


def _table(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    return spark.read.parquet(str(folder / name))


def newest(parts: Path) -> int:
    """The last micro-batch that was folded; -1 if none was."""
    names = [path.name for path in parts.glob("[!.]*")]
    return max((int(name.split("-")[1]) for name in names), default=-1)


def start(log: Path, out: Path, *options: str, cores: int) -> subprocess.Popen[bytes]:
    """The stream as a process group of its own: its JVM dies with it."""
    command = [sys.executable, "-m", "federator_analytics", "stream", str(log), "--out", str(out)]
    command += ["--master", f"local[{cores}]", *options]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    command()
