"""``script/bench analytics``: how the report's time grows, and what it costs beside a bare scan.

Each size is simulated once, or found in ``--logs``. A *bare scan* reads every line of the same
files, parses every field of every record with the same schema (``spark.read.schema(RECORD_LINE)
.json``), counts, and uses each field, by a checksum: for ``count()`` alone Spark would parse
nothing. What that takes is told beside it (*lines*: ``spark.read.text(...).count()``). Each of
them and the report get a process and a JVM of their own; time is from the session's start on, with
what the JVM still has to load and compile. Peak memory is the resident set of the JVM (heap, code
and buffers together) and of its Python workers, as if each had its most at once. Processor seconds
are theirs too, and bear other load on the machine better than time does.
"""

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import click
from federator_analytics.jobs.report import run
from federator_analytics.schemas.records import RECORD_LINE
from federator_analytics.session import spark_session
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.analytics.yardstick import Yardstick, differences

ROOT = Path(__file__).parents[2]
CHECKED = 10_000_000
GROWTH_MAX, RATIO_MAX, MEMORY_GB_MAX = 1.1, 2.5, 8.0
DIFFERENT = 1


@click.command()
@click.option("--records", multiple=True, type=click.IntRange(1_000), help="[1, 10, 100 million]")
@click.option("--brokers", type=int, default=25, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--gzip", "compress", is_flag=True, help="Compressed segments: a tenth of the disk.")
@click.option("--cores", type=int, default=os.cpu_count(), show_default=True)
@click.option("--driver-memory", default="4g", show_default=True, help="The JVM's heap.")
@click.option("--check", is_flag=True, help="Only compare all tables with the yardstick's.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--logs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where logs are kept, by size; one that is there is taken.",
)
@click.option("--scratch", type=click.Path(file_okay=False, path_type=Path), help="[a new folder]")
@click.option("--measure", nargs=3, hidden=True, help="What a process of ours does.")
def command(
    records: tuple[int, ...],
    brokers: int,
    seed: int,
    compress: bool,
    cores: int,
    driver_memory: str,
    check: bool,
    json_file: Path | None,
    logs: Path | None,
    scratch: Path | None,
    measure: tuple[str, str, str] | None,
) -> None:
    """Measure the batch report, or hold it against an independent computation."""
    if measure:
        click.echo(json.dumps(_measure(*measure, cores=cores, memory=driver_memory)))
        return
    sizes = records or ((CHECKED,) if check else (1_000_000, 10_000_000, 100_000_000))
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=scratch, prefix="federator-bench-") as folder:
            home = Path(folder)
            log = (logs or home) / str(size)
            row = {"wanted": size, **simulated(log, brokers, size, seed, compress)}
            options = [f"--cores={cores}", f"--driver-memory={driver_memory}"]
            if not check:
                row |= {what: _child(what, log, home, options) for what in ("lines", "scan")}
            row["report"] = _child("report", log, home, options)
            if check:
                row["different"] = differences(Yardstick(log, home), home / "report")
            rows.append(row)
            click.echo(_line(row))
    if json_file:
        json_file.write_text(json.dumps({"machine": platform.platform(), "rows": rows}, indent=1))
    if check:
        different = any(row["different"] for row in rows)
        click.echo("different" if different else "every table is the same")
        sys.exit(DIFFERENT if different else 0)
    _verdicts(rows)


def simulated(out: Path, brokers: int, size: int, seed: int, compress: bool) -> dict[str, Any]:
    """Write a log of ``size`` records, unless it is there; what is known of it."""
    told_in = out.with_name(f"{out.name}.json")
    if told_in.exists():
        known: dict[str, Any] = json.loads(told_in.read_text())
        return known
    words = ["event-log", f"--brokers={brokers}", f"--records={size}", f"--seed={seed}"]
    words += [f"--out={out}", "--json", *(["--gzip"] if compress else [])]
    begun = time.monotonic()
    said: dict[str, Any] = json.loads(_run("lab", words))
    told = {key: said[key] for key in ("records", "copies", "files", "bytes")}
    told["simulate_s"] = round(time.monotonic() - begun, 1)
    told_in.write_text(json.dumps(told))
    return told


def _child(what: str, log: Path, home: Path, options: list[str]) -> dict[str, float]:
    words = [*options, "--measure", what, str(log), str(home / "report")]
    told: dict[str, float] = json.loads(_run("tests.analytics.bench", words))
    return told


def _run(module: str, words: list[str]) -> str:
    """The last line that a Python process says."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    return done.stdout.decode().splitlines()[-1]


def _measure(what: str, log: str, out: str, *, cores: int, memory: str) -> dict[str, float]:
    with spark_session("bench", master=f"local[{cores}]", driver_memory=memory) as spark:
        begun, cpu = time.monotonic(), _spark(spark)[0]
        counts: dict[str, float] = {}
        files = spark.read.option("recursiveFileLookup", "true")
        match what:
            case "lines":
                counts["read"] = files.text(log).count()
            case "scan":
                every = F.hash(*RECORD_LINE.fieldNames()).cast("long")
                found = files.schema(RECORD_LINE).json(log)
                counted = found.agg(F.count("*"), F.sum(every)).first()
                assert counted is not None
                counts["read"] = counted[0]
            case _:
                run(spark, [log], out)
        took = time.monotonic() - begun
        after, peak = _spark(spark)
    return counts | {
        "seconds": round(took, 1),
        "cpu_s": round(after - cpu, 1),
        "rss_gb": round(peak, 2),
    }


def _spark(spark: SparkSession) -> tuple[float, float]:
    """Processor seconds of the JVM and its Python workers; the most memory each had, in GB."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "the session runs"
    return _used(int(jvm.java.lang.ProcessHandle.current().pid()))


def _used(process: int) -> tuple[float, float]:
    """Of a process, its children that have ended, and those that live, and so on."""
    home = Path("/proc", str(process))
    try:
        fields = (home / "stat").read_text().rpartition(")")[2].split()
        lines = (home / "status").read_text().splitlines()
        children = [task.read_text().split() for task in home.glob("task/*/children")]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, 0.0  # it has just ended
    ticks = sum(map(int, fields[11:15]))
    cpu_s = ticks / os.sysconf("SC_CLK_TCK")
    peaks_kb = (int(line.split()[1]) for line in lines if "VmHWM" in line)
    gb = next(peaks_kb, 0) * 1024 / 1e9  # none: it has ended, and nobody asked for its code yet
    for child in chain.from_iterable(children):
        more = _used(int(child))
        cpu_s, gb = cpu_s + more[0], gb + more[1]
    return cpu_s, gb


def _line(row: dict[str, Any]) -> str:
    parts = [f"{row['records']:,} records, {row['bytes'] / 1e9:.2f} GB, {row['files']:,} files"]
    parts += [
        f"{what} {told['seconds']:,} s, cpu {told['cpu_s']:,} s, {told['rss_gb']} GB"
        for what in ("lines", "scan", "report")
        if (told := row.get(what))
    ]
    for table, lines in row.get("different", {}).items():
        parts += [f"\n  {table}: {lines[0]}", *(f"\n    {line}" for line in lines[1:])]
    return "; ".join(parts)


def _verdicts(rows: list[dict[str, Any]]) -> None:
    for key in ("seconds", "cpu_s"):
        for one, other in pairwise(rows):
            times = math.log(other["report"][key] / one["report"][key])
            grown = times / math.log(other["records"] / one["records"])
            at = f"{one['records']:,} to {other['records']:,}"
            click.echo(f"exponent of growth, {key}, {at}: {grown:.2f} (wanted <= {GROWTH_MAX})")
        for row in rows:
            ratio, beside = (row["report"][key] / row[what][key] for what in ("scan", "lines"))
            at = f"{row['records']:,}"
            click.echo(
                f"report / bare scan, {key}, {at}: {ratio:.2f} (wanted <= {RATIO_MAX}); "
                f"report / counting lines: {beside:.1f}"
            )
    peak = max(row["report"]["rss_gb"] for row in rows)
    click.echo(f"peak memory: {peak} GB (wanted <= {MEMORY_GB_MAX})")


if __name__ == "__main__":
    command()
