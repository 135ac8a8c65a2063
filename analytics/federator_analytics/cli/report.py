"""``federator-analytics report INPUT... --out DIR``: every table, and the page that shows them."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from federator_analytics.cli.spark import Master, memory_option
from federator_analytics.digest.figures import summarise
from federator_analytics.digest.tables import read_tables
from federator_analytics.digest.units import duration, percent, ratio, some
from federator_analytics.errors import InputError, InputMissingError, UsageError
from federator_analytics.jobs import report
from federator_analytics.jobs.tables import alone_in, collect_tables
from federator_analytics.report.page import PAGE, write_page
from federator_analytics.session import look_for_spark, require_connector, spark_session


@click.command("report")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--out", required=True, metavar="DIR", help="Where the tables go, a folder or URL.")
@click.option("--page", "page_dir", metavar="DIR", help="Where page and summary go. [as --out]")
@click.option("--title", default="", help="Above the page. [the federation's name]")
@click.option("--json", "as_json", is_flag=True, help="Print summary.json instead of five lines.")
@click.option("--master", type=Master(), help="Where Spark runs. [all cores of this machine]")
@memory_option("--driver-memory", "Of Spark on this machine.")
def command(
    inputs: tuple[str, ...],
    out: str,
    page_dir: str | None,
    title: str,
    as_json: bool,
    master: str | None,
    driver_memory: str,
) -> None:
    """Compute every table from the metrics files below each INPUT, and draw the report.

    INPUT is a landing folder, an agent's spool, or a URL that Spark reads. The tables are Parquet,
    one folder each; report.html and summary.json stand beside them, or where --page says.
    """
    is_remote = "://" in out.removeprefix("file://")
    if is_remote and page_dir is None:
        raise UsageError(
            f"--out {out}: a page is a file of this machine: name its folder by --page"
        )
    folder = _folder("--page", page_dir) if page_dir else _folder("--out", out)
    if not is_remote:
        _folder("--out", out)
    _look_at(inputs)
    look_for_spark(master)
    with (
        alone_in(out),
        spark_session("federator report", master=master, driver_memory=driver_memory) as spark,
    ):
        for option, url in (*(("INPUT", url) for url in inputs), ("--out", out)):
            require_connector(spark, option, url)
        report.run(spark, inputs, out)
        tables = collect_tables(spark, out) if is_remote else None
    if tables is None:
        tables = read_tables(Path(out.removeprefix("file://")))
    summary = summarise(tables, title)
    write_page(tables, summary, folder, made_at=datetime.now(UTC))
    if summary["span"] is None:
        raise InputError(_nothing(summary, inputs))
    click.echo(json.dumps(summary, ensure_ascii=False) if as_json else _lines(summary, folder))


_WANTED = "no record: metrics files (*.jsonl, docs/metrics.md) are wanted"


def _folder(option: str, value: str) -> Path:
    path = Path(value.removeprefix("file://"))
    if "://" in value.removeprefix("file://"):
        raise UsageError(f"{option} {value}: a folder of this machine is wanted")
    if path.exists() and not path.is_dir():
        raise UsageError(f"{option} {value}: is a file, and a folder is wanted")
    return path


def _look_at(inputs: tuple[str, ...]) -> None:
    """Raises when there is nothing to read: seen without Spark, which takes seconds to start.

    Raises:
        InputMissingError: A path of this machine is not there.
        InputError: All are of this machine, and none holds a metrics file.
    """
    has_files = False
    for each in inputs:
        plain = each.removeprefix("file://")
        path = Path(plain)
        if "://" in plain:
            has_files = True
        elif not path.exists():
            raise InputMissingError(f"{each}: no such file or folder")
        else:
            has_files = has_files or path.is_file() or any(path.rglob("*.jsonl*"))
    if not has_files:
        raise InputError(f"{', '.join(inputs)}: {_WANTED}")


def _nothing(summary: dict[str, Any], inputs: tuple[str, ...]) -> str:
    """Why there is no report."""
    read = ", ".join(inputs)
    bad = summary["quality"]["quarantined"]
    if bad:
        reason = next(iter(summary["quality"]["quarantined_by_reason"]))
        return f"{read}: no usable record: {some(bad, 'record')} in quarantine, mostly: {reason}"
    return f"{read}: {_WANTED}"


def _lines(summary: dict[str, Any], folder: Path) -> str:
    """The path, and the report in five lines."""
    delay, load, loss = summary["delay"], summary["load"], summary["loss"]
    overhead = summary["overhead"]["overall"] or {}
    offered = sum(row["offered"] for row in loss["by_qos"])
    lost = percent(loss["missing"] / offered) if offered else "nothing to compare"
    cost = overhead.get("control_messages_per_announcement")
    return "\n".join(
        [
            str((folder / PAGE).resolve()),
            f"health    {summary['sentence']}",
            f"delay     p50 {duration(delay['delay_us_p50'])}, p95 "
            f"{duration(delay['delay_us_p95'])}, p99 {duration(delay['delay_us_p99'])} over "
            f"{some(delay['publications'], 'publication')}",
            f"overhead  {ratio(cost)} control messages per announcement (bound "
            f"{ratio(overhead.get('bound_2l'))}), "
            f"{ratio(overhead.get('copies_per_publication'))} copies per publication",
            f"loss      {some(loss['missing'], 'publication')} missing ({lost}), "
            f"{loss['out_of_order']} out of order",
            f"span      {some(load['brokers'], 'broker')}, {some(load['links'], 'link')}, "
            f"{some(summary['span']['records'], 'record')}, "
            f"{some(summary['quality']['quarantined'], 'record')} in quarantine",
        ]
    )
