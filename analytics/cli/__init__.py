"""The command line of analytics: verbs, exit codes, and the only place of it that prints.

A verb's module is imported when the verb is used: Spark takes seconds to import and start, and
``federator-analytics --help`` must not. Errors become one line and an exit code of ``sysexits.h``
here and nowhere else.
"""

import re
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec

import click

from analytics import errors
from analytics.errors import AnalyticsError, UnavailableError
from federator.errors import ConfigError, FederatorError

USAGE, DATA, UNAVAILABLE, SOFTWARE, INTERRUPTED = 64, 65, 69, 70, 130
"""Exit codes of ``sysexits.h``, and the shell's word for a Ctrl-C."""

_VERBS = {
    "report": ("report", "Compute every table from metrics files, and draw the report."),
    "stream": ("stream", "Keep the same tables current while records arrive."),
    "serve": ("serve", "Show a dashboard over the tables."),
    "simulate": ("simulate", "Write a large, realistic event log made by the simulator."),
    "bench-live": ("bench_live", "Measure how far stream lags behind."),
    "submit": ("submit", "Run a verb on a Spark cluster."),
}
"""Verb to module of this package and one line of help. The module's command is ``command``."""

_OURS = re.compile(r"^(?:analytics\.errors\.)?(\w+Error): (.+)$", re.MULTILINE)
"""One of our errors in the text of a Spark error: what was raised in a worker process."""


class _Verbs(click.Group):
    """Knows the names of the verbs without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for verb in _VERBS if find_spec(_module(verb)) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        try:
            command: click.Command = import_module(_module(cmd_name)).command
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing in ("analytics", "federator"):
                raise
            text = f"{missing} is not installed: run pip install federator[analytics]"
            raise UnavailableError(text) from None
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, _VERBS[verb][1]) for verb in self.list_commands(ctx)])


def _module(verb: str) -> str:
    return f"analytics.cli.{_VERBS[verb][0]}"


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
@click.version_option(package_name="federator", message="federator-analytics %(version)s")
def federator_analytics(debug: bool) -> None:
    """Delay, overhead and load of a federation, from what its agents measure."""


def main(arguments: list[str] | None = None) -> None:
    """Run one verb and exit as ``sysexits.h`` says."""
    arguments = sys.argv[1:] if arguments is None else arguments
    prog = "federator-analytics"
    try:
        outcome = federator_analytics.main(arguments, prog_name=prog, standalone_mode=False)
    except BaseException as error:
        sys.exit(_explain(error, debug="--debug" in arguments))
    sys.exit(outcome if isinstance(outcome, int) else 0)


def _explain(error: BaseException, *, debug: bool) -> int:
    """Print one line about ``error``; the exit code."""
    match error:
        case SystemExit():
            return error.code if isinstance(error.code, int) else 0
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case click.exceptions.NoArgsIsHelpError():
            click.echo(error.format_message(), err=True)
            return USAGE
        case click.ClickException():
            _say(f"usage: {_usage(error)}")
            return USAGE
        case AnalyticsError() | ConfigError():
            _say(str(error))
            return error.exit_code
        case FederatorError():
            _say(str(error))
            return UNAVAILABLE
        case _:
            return _explain_foreign(error, debug=debug)


def _explain_foreign(error: BaseException, *, debug: bool) -> int:
    """An error of a library; one of ours that was raised in a worker process is found in it."""
    for name, text in _OURS.findall(str(error)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, AnalyticsError):
            _say(text)
            return kind.exit_code
    if debug:
        traceback.print_exception(error)
    hint = "report it" if debug else "run federator-analytics --debug VERB for the traceback"
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    _say(f"internal error: {text}: {hint}")
    return SOFTWARE


def _say(text: str) -> None:
    click.echo(f"federator-analytics: {text}", err=True)


def _usage(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".").replace("\n", " ")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "federator-analytics"
    return f"{message}: see {path} --help"
