"""``federator-analytics``: the tables of a federation; no other package of analytics prints."""

import re

import click

from federator.command_line import run, verbs, wheel
from federator_analytics import errors
from federator_analytics.errors import AnalyticsError

VERBS = {
    "report": ("report", "Compute every table from metrics files, and draw the report."),
    "stream": ("stream", "Keep the same tables current while records arrive."),
    "serve": ("serve", "Show a dashboard over the tables."),
    "submit": ("submit", "Run a verb on a Spark cluster."),
}
"""Verb to module of this package and one line of help. The module's command is ``command``."""

_OURS = re.compile(r"^(?:federator_analytics\.errors\.)?(\w+Error): (.+)$", re.MULTILINE)
"""One of our errors in the text of a Spark error: what was raised in a worker process."""


@click.command(
    cls=verbs(
        {verb: (f"federator_analytics.cli.{at}", about) for verb, (at, about) in VERBS.items()},
        brought_by=wheel(of="mqtt_federator_analytics"),
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
@click.version_option(
    package_name="mqtt-federator-analytics", message="federator-analytics %(version)s"
)
def federator_analytics(debug: bool) -> None:
    """Delay, overhead and load of a federation, from what its agents measure."""


def main(arguments: list[str] | None = None) -> None:
    """Run one verb and exit as ``sysexits.h`` says."""
    run(federator_analytics, "federator-analytics", arguments, within=_raised_by_a_worker)


def _raised_by_a_worker(error: BaseException) -> AnalyticsError | None:
    for name, text in _OURS.findall(str(error)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, AnalyticsError):
            return kind(text)
    return None
