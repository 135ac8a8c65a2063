"""The command line: verbs, exit codes, and the only place that prints.

A verb's module is imported when the verb is used: ``federator run`` on a gateway must not pay for
what the bench or the simulator needs. Errors become one line and an exit code of ``sysexits.h``
here and nowhere else.
"""

import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

import click

from federator.errors import ConfigError, FederatorError

USAGE, UNAVAILABLE, SOFTWARE, INTERRUPTED = 64, 69, 70, 130
"""Exit codes of ``sysexits.h``, and the shell's word for a Ctrl-C."""

_VERBS = {
    "run": ("run", "Be the agent of one broker, until stopped."),
    "gateway": ("gateway", "Be a gateway, by which clients outlive their brokers."),
    "collect": ("collect", "Land the metrics streams of a federation in a folder."),
    "check-config": ("check_config", "Say whether a configuration can be used."),
    "doctor": ("doctor", "Ask the broker whether it can take part, and what is missing."),
    "status": ("status", "Show how the agent of this machine is doing."),
    "top": ("top", "Show agents at work, live: rates, delays, links, queues, meshes."),
    "topology": ("topology", "Draw the federation as the agent sees it."),
    "explain": ("explain", "Say where a publication on TOPIC goes, and why."),
    "trace": ("trace", "Send a probe the way of TOPIC, and print hop by hop times."),
    "controller": ("controller", "Show who steps in for whom when a broker dies, and why."),
    "keys": ("keys", "Make, show and take back the keys of a signed federation."),
    "drain": ("drain", "Move the clients of BROKER away before maintenance."),
    "undrain": ("undrain", "Let the clients of BROKER come back."),
    "tap": ("tap", "Show the control traffic of this broker, decoded, live."),
    "diag": ("diag", "Gather what a bug report needs in one archive, without secrets."),
    "grid": ("grid", "Run many real brokers and agents on this machine."),
    "chaos": ("chaos", "Hurt real brokers and agents, and count every message."),
    "sim": ("sim", "Run the protocol in a simulated world."),
    "plan": ("plan", "Plan routes under limited bandwidth."),
    "place": ("place", "Decide which topics live at the edge, and where brokers and cores run."),
    "codecs": ("codecs", "Decide which brokers add repair packets where links lose."),
    "bench": ("bench", "Measure brokers, bridges and agents."),
}
"""Verb to module of this package and one line of help. The module's command is ``command``."""


class _Verbs(click.Group):
    """Knows the names of the verbs without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for verb in _VERBS if find_spec(_module(verb)) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS or find_spec(_module(cmd_name)) is None:
            return None
        command: click.Command = import_module(_module(cmd_name)).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, _VERBS[verb][1]) for verb in self.list_commands(ctx)])


def _module(verb: str) -> str:
    return f"federator.cli.{_VERBS[verb][0]}"


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
@click.option(
    "--reference",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, wanted: _print_reference(context) if wanted else None,
    help="Print every verb and option, as Markdown.",
)
@click.version_option(package_name="federator", message="federator %(version)s")
def federator(debug: bool) -> None:
    """Many unmodified MQTT brokers act as one."""


def _print_reference(context: click.Context) -> None:
    click.echo(import_module("federator.cli.reference").reference(federator), nl=False)
    context.exit()


def main(arguments: list[str] | None = None) -> None:
    """Run one verb and exit as ``sysexits.h`` says."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        outcome = federator.main(arguments, prog_name="federator", standalone_mode=False)
    except BaseException as error:
        sys.exit(_explain(error, debug="--debug" in arguments))
    sys.exit(outcome if isinstance(outcome, int) else 0)


def _explain(error: BaseException, *, debug: bool) -> int:
    """Print one line about ``error``; the exit code."""
    cause = next(iter(_leaves(error)))
    match cause:
        case SystemExit():
            return cause.code if isinstance(cause.code, int) else 0
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case click.exceptions.NoArgsIsHelpError():
            click.echo(cause.format_message(), err=True)
            return USAGE
        case click.ClickException():
            click.echo(f"federator: usage: {_usage(cause)}", err=True)
            return USAGE
        case ConfigError():
            click.echo(f"federator: {cause}", err=True)
            return cause.exit_code
        case FederatorError():
            click.echo(f"federator: {cause}", err=True)
            return UNAVAILABLE
        case _:
            return _own_up(error, cause, debug=debug)


def _own_up(error: BaseException, cause: BaseException, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    hint = "report it" if debug else "run federator --debug VERB for the traceback, and report it"
    text = f"{type(cause).__name__}: {' '.join(str(cause).split())[:200]}"
    click.echo(f"federator: internal error: {text}: {hint}", err=True)
    return SOFTWARE


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """What a task group wrapped, what an operator can mend first."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    found = [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    yield from sorted(found, key=lambda leaf: not isinstance(leaf, FederatorError))


def _usage(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".").replace("\n", " ")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "federator"
    return f"{message}: see {path} --help"
