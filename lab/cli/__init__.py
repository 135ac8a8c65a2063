"""``federator-lab``: what proves the product. The only package of the laboratory that prints."""

from importlib import import_module

import click

from federator.command_line import reference_option, run, verbs, wheel

VERBS = {
    "grid": ("grid.command", "Run many real brokers and agents on this machine."),
    "chaos": ("chaos", "Hurt real brokers and agents, and count every message."),
    "mixed": ("mixed", "Hold reports against clients' counts while everybody comes and goes."),
    "steered": ("steered", "Narrow links with a steerer and without one, beside each other."),
    "steered-demands": (
        "steered_live:demands",
        "Seeded demands, steered, beside the exact answer.",
    ),
    "steered-steady": ("steered_live:steady_command", "Does a steerer let steady flows stay?"),
    "nat": ("nat", "Hold a site behind real NAT against one that can be reached."),
    "hub-death": ("hub_death", "Kill a hub whose leaves have another one in reserve."),
    "core-death": ("core_death", "Kill or move the core of a mesh under traffic."),
    "leaf-cost": ("leaf_cost", "Read what a leaf pays beside worlds of several sizes."),
    "over-delivery": ("over_delivery", "Add up what a bounded cover carries in vain."),
    "on-path": ("on_path", "Put a machine that does harm on the path between agents."),
    "ways": ("ways", "Measure what a link carries in WebSockets beside one by TCP."),
    "mosquitto-tests": ("mosquitto_tests", "Run Mosquitto's own tests through a gateway."),
    "console-pictures": ("console:pictures", "Take pictures of a console before real brokers."),
    "console-fluidity": ("console:fluidity", "Measure how fluid a console's map is."),
    "sim": ("sim", "Run the protocol in a simulated world."),
    "sim-large": ("sim_large", "Run hubs and leaves by the thousand in a simulated world."),
    "bench": ("bench.command", "Measure brokers, bridges and agents."),
    "bench-live": ("event_log:live", "Measure how far the stream of analytics lags behind."),
    "event-log": ("event_log", "Write a large, realistic event log made by the simulator."),
    "paper": ("paper", "Remake the tables and figures of the papers, ours beside theirs."),
}
"""Verb to module of this package and one line of help. The module's command is ``command``."""


HEAD = """\
# The laboratory's command line

`federator-lab VERB`: what proves the product, from a checkout; an installed package does not bring
it. `script/setup` makes it, as `.venv/bin/federator-lab`. `federator-lab VERB --help` says the same
as this page. Exit codes are those of `sysexits.h`; where a verb has others its text says so.

With `--json` a verb prints its figures as one JSON object, named with their units, and all else on
standard error. What is infinite or not a number is `null`. Where `--json` names a file or prints
more objects than one, the verb says so.

This page is written by `federator-lab --reference > docs/lab.md`.
"""


@click.command(
    name="federator-lab",
    cls=verbs(
        {verb: (f"lab.cli.{at}", about) for verb, (at, about) in VERBS.items()},
        brought_by=wheel("dev"),
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
@reference_option(lambda: _print_reference())
@click.version_option(package_name="mqtt-federator-lab", message="federator-lab %(version)s")
def federator_lab(debug: bool) -> None:
    """Prove that many unmodified MQTT brokers act as one."""


def _print_reference() -> None:
    click.echo(import_module("federator.cli.reference").reference(federator_lab, HEAD), nl=False)


def main(arguments: list[str] | None = None) -> None:
    """Run one verb and exit as ``sysexits.h`` says."""
    run(federator_lab, "federator-lab", arguments)
