"""``federator``: what an operator types. The only package of the product that prints."""

from importlib import import_module

import click

from federator.command_line import reference_option, run, verbs

VERBS = {
    "run": ("daemons.run", "Be the agent of one broker, until stopped."),
    "gateway": ("daemons.gateway", "Be a gateway, by which clients outlive their brokers."),
    "collect": ("daemons.collect", "Land the metrics streams of a federation in a folder."),
    "steer": ("daemons.steer", "Fit the heavy flows of a federation to its links."),
    "console": ("daemons.console", "Show a whole federation live on one page."),
    "init": ("setup.init", "Ask five questions, and write an agent's configuration."),
    "check-config": ("setup.check_config", "Say whether a configuration can be used."),
    "doctor": ("setup.doctor", "Ask the broker whether it can take part, and what is missing."),
    "status": ("observe.status", "Show how the agent of this machine is doing."),
    "top": ("observe.top", "Show agents at work, live: rates, delays, links, queues, meshes."),
    "topology": ("observe.topology", "Draw the federation as the agent sees it."),
    "explain": ("observe.explain", "Say where a publication on TOPIC goes, and why."),
    "trace": ("observe.trace", "Send a probe the way of TOPIC, and print hop by hop times."),
    "controller": ("observe.controller", "Show who steps in for whom when a broker dies, and why."),
    "keys": ("setup.keys", "Make, show and take back the keys of a signed federation."),
    "drain": ("maintain.drain:drain", "Move the clients of BROKER away before maintenance."),
    "undrain": ("maintain.drain:undrain", "Let the clients of BROKER come back."),
    "tap": ("observe.tap", "Show the control traffic of this broker, decoded, live."),
    "diag": ("observe.diag", "Gather what a bug report needs in one archive, without secrets."),
    "completion": ("setup.completion", "Print what a shell reads to complete verbs by TAB."),
    "plan": ("planning:plan", "Plan routes under limited bandwidth."),
}
"""Verb to a module of this package, with ``command`` or the name behind the colon as its command,
and one line of help."""


@click.command(
    cls=verbs({verb: (f"federator.cli.{at}", about) for verb, (at, about) in VERBS.items()}),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
@reference_option(lambda: _print_reference())
@click.version_option(package_name="mqtt-federator", message="federator %(version)s")
def federator(debug: bool) -> None:
    """Many unmodified MQTT brokers act as one."""


def _print_reference() -> None:
    click.echo(import_module("federator.cli.reference").reference(federator), nl=False)


def main(arguments: list[str] | None = None) -> None:
    """Run one verb and exit as ``sysexits.h`` says."""
    run(federator, "federator", arguments)
