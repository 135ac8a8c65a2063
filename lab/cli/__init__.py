"""``federator-lab``: what proves the product."""

from importlib import import_module

import click

from federator.command_line import reference_option, run, verbs, wheel

VERBS = {
    "grid": ("lab.cli.grid.command", "Run many real brokers and agents on this machine."),
    "chaos": ("lab.cli.chaos", "Hurt real brokers and agents, and count every message."),
    "mixed": (
        "lab.mixed.run",
        "Hold reports against clients' counts while everybody comes and goes.",
    ),
    "steered": (
        "lab.steered.run",
        "Narrow links with a steerer and without one, beside each other.",
    ),
    "steered-demands": (
        "lab.steered.demands",
        "Seeded demands, steered, beside the exact answer.",
    ),
    "steered-steady": ("lab.steered.steady", "Does a steerer let steady flows stay?"),
    "nat": ("lab.nat.run", "Hold a site behind real NAT against one that can be reached."),
    "hub-death": ("lab.leaves.hub_death", "Kill a hub whose leaves have another one in reserve."),
    "core-death": ("lab.core_death", "Kill or move the core of a mesh under traffic."),
    "leaf-cost": ("lab.leaves.cost", "Read what a leaf pays beside worlds of several sizes."),
    "over-delivery": ("lab.leaves.in_vain", "Add up what a bounded cover carries in vain."),
    "on-path": ("lab.on_path.run", "Put a machine that does harm on the path between agents."),
    "ways": ("lab.ways", "Measure what a link carries in WebSockets beside one by TCP."),
    "upgrade": ("lab.upgrade", "Change agents of a former commit under traffic, one by one."),
    "walks": ("lab.walks.run", "Count the files that one publication, or one kill, passes."),
    "mosquitto-tests": ("lab.cli.mosquitto_tests", "Run Mosquitto's own tests through a gateway."),
    "console-pictures": (
        "lab.cli.console:pictures",
        "Take pictures of a console before real brokers.",
    ),
    "console-fluidity": ("lab.cli.console:fluidity", "Measure how fluid a console's map is."),
    "sim": ("lab.cli.sim", "Run the protocol in a simulated world."),
    "sim-large": ("lab.cli.sim_large", "Run hubs and leaves by the thousand in a simulated world."),
    "bench": ("lab.cli.bench.command", "Measure brokers, bridges and agents."),
    "bench-live": (
        "lab.cli.event_log:live",
        "Measure how far the stream of analytics lags behind.",
    ),
    "event-log": ("lab.cli.event_log", "Write a large, realistic event log made by the simulator."),
    "paper": ("lab.cli.paper", "Remake the tables and figures of the papers, ours beside theirs."),
}
"""Verb to module and one line of help. The module's command is ``command``."""


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
        VERBS,
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
