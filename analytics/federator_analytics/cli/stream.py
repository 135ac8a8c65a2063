"""``federator-analytics stream INPUT --out DIR``: report tables that stay current."""

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from federator_analytics.cli.spark import Master
from federator_analytics.errors import UsageError
from federator_analytics.jobs import stream
from federator_analytics.jobs.tables import alone_in
from federator_analytics.session import look_for_spark, require_connector, spark_session
from federator_analytics.sources.federator_mqtt import register
from federator_analytics.sources.landing import FILES_PER_TRIGGER, stream_lines
from federator_analytics.sources.live.link import read_options

_LIVE = ("mqtt://", "mqtts://")
SHUFFLE_PARTITIONS = "8"
"""Spark's 200 are for days of data; within a micro-batch it does not merge small ones itself."""
LISTED_HERE = "100000"
"""Folders listed without a Spark job, which Spark starts from 33 on: the state is on a disk."""
PLAIN_COLLECTOR = "-XX:+UseParallelGC"
"""Java's collector that stops it a little longer, and takes half the processor time of the other:
each refresh of the tables leaves some 100 MB behind that nobody wants again."""


@click.command("stream")
@click.argument("source", metavar="INPUT")
@click.option("--out", required=True, help="Folder of the tables, and of the stream's state.")
@click.option("--once", is_flag=True, help="End when what is there now is in the tables.")
@click.option(
    "--refresh-s",
    default=stream.REFRESH_S,
    show_default=True,
    type=click.IntRange(1, 86_400),
    help="Seconds between refreshes of the tables.",
)
@click.option(
    "--files-per-trigger",
    default=FILES_PER_TRIGGER,
    show_default=True,
    type=click.IntRange(1),
    help="Most files in one micro-batch.",
)
@click.option("--federation", help="Name of the federation; wanted for an mqtt:// INPUT.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Of the live source: passwordFile, collectorFile and others (docs/analytics.md).",
)
@click.option("--master", type=Master(), help="Spark's; by default all cores of this machine.")
def command(
    source: str,
    out: str,
    once: bool,
    refresh_s: int,
    files_per_trigger: int,
    federation: str | None,
    options: tuple[str, ...],
    master: str | None,
) -> None:
    """Keep the tables of `report` current in DIR while records arrive.

    INPUT is a landing folder, or mqtt://HOST:PORT of any of the brokers. A stream that was killed
    goes on where it was when it is started again with the same INPUT and DIR.
    """
    live = source.startswith(_LIVE)
    if live and federation is None:
        raise UsageError(f"{source}: --federation is wanted with it")
    told = dict(pair.split("=", 1) for pair in options if "=" in pair)
    if len(told) < len(options) or (options and not live):
        raise UsageError("--option: KEY=VALUE, once for each KEY, is wanted, with an mqtt:// INPUT")
    told |= {"broker": source, "federation": federation or ""}
    if live:
        read_options(told)  # what is of no use is told before Spark starts
    few = {
        "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
        "spark.sql.sources.parallelPartitionDiscovery.threshold": LISTED_HERE,
    }
    look_for_spark(master)
    with (
        alone_in(out),
        spark_session(
            "federator stream", master=master, java_options=PLAIN_COLLECTOR, config=few
        ) as spark,
    ):
        if live:
            lines = _live_lines(spark, told)
        else:
            require_connector(spark, "INPUT", source)
            lines = stream_lines(spark, source, files_per_trigger=files_per_trigger)
        stream.run(
            spark,
            lines,
            out,
            once=once,
            refresh_s=refresh_s,
            on_refresh=lambda batch: click.echo(f"tables hold micro-batches to {batch}"),
        )


def _live_lines(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """BLOCKS from the brokers; their position is that in the agent's own log."""
    register(spark)
    read = spark.readStream.format("federator_mqtt").options(**options).load()
    return read.select(
        F.col("line").cast("binary").alias("content"),
        F.concat_ws("-", "broker", "spool", "batch").alias("file"),
        F.lit(None).cast("long").alias("line"),
    )
