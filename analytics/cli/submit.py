"""``federator-analytics submit -- VERB ARGS``: the verb runs on a cluster, unchanged."""

from pathlib import Path
from typing import Any

import click

from analytics.jobs.submit import Submission, submit


@click.command("submit", context_settings={"ignore_unknown_options": False})
@click.option("--master", required=True, help="spark://HOST:PORT, yarn, k8s://..., local[N].")
@click.option("--executor-memory", default="2g", show_default=True, help="Of each executor.")
@click.option("--driver-memory", default="2g", show_default=True, help="Of this machine's part.")
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
