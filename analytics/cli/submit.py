"""``federator-analytics submit -- VERB ARGS``: the verb runs on a cluster, unchanged."""

from pathlib import Path

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
    master: str,
    executor_memory: str,
    driver_memory: str,
    packages: str | None,
    archives: str | None,
    worker_python: str | None,
    conf: tuple[str, ...],
    spark_home: Path | None,
    verb: tuple[str, ...],
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
    return submit(
        Submission(
            master=master,
            arguments=verb,
            executor_memory=executor_memory,
            driver_memory=driver_memory,
            packages=packages,
            archives=archives,
            worker_python=worker_python,
            conf=conf,
            spark_home=spark_home,
        )
    )
