"""Shared by our programs: verbs that are imported when used, and errors as one line.

A verb's module is imported when the verb is used: ``federator run`` on a gateway must not pay for
what a solver needs. Errors become one line and an exit code of ``sysexits.h`` here and nowhere
else.
"""

import difflib
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import NoReturn

import click

from federator import __version__
from federator.errors import FederatorError

USAGE, SOFTWARE, INTERRUPTED = 64, 70, 130
"""Exit codes of ``sysexits.h``, and the shell's code for Ctrl-C."""

OURS = ("federator", "federator_analytics", "lab")
"""Our own packages: a missing module of theirs is a bug, not a missing extra."""


class ExtraMissingError(FederatorError):
    """Packages that only this verb needs are not installed."""


def wheel(extra: str | None = None, *, of: str = "mqtt_federator") -> str:
    """The wheel of this release that brings more packages, as an argument for pip.

    A file and not a name: a package index may have another project under our name.
    """
    return f"{of}-{__version__}-py3-none-any.whl" + (f"[{extra}]" if extra else "")


def verbs(
    modules: Mapping[str, tuple[str, str]], *, brought_by: str | None = None
) -> type[click.Group]:
    """A group that knows the names of its verbs without importing them.

    Args:
        modules: Verb to the module that has it as ``command`` (or ``MODULE:NAME``), and one line
            of help.
        brought_by: The argument for pip that installs the packages of these verbs, if they need
            more than the daemon: see ``wheel``.
    """

    class Verbs(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return list(modules)

        def resolve_command(
            self, ctx: click.Context, args: list[str]
        ) -> tuple[str | None, click.Command | None, list[str]]:
            near = difflib.get_close_matches(args[0], modules, n=1)
            if near and args[0] not in modules:
                ctx.fail(f"no verb {args[0]!r}: {near[0]!r}?")
            return super().resolve_command(ctx, args)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return _command(modules[cmd_name][0], brought_by) if cmd_name in modules else None

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Verbs"):
                formatter.write_dl([(verb, about) for verb, (_, about) in modules.items()])

    return Verbs


def _command(place: str, brought_by: str | None) -> click.Command:
    module, _, name = place.partition(":")
    command: click.Command = getattr(imported(module, brought_by), name or "command")
    return command


def imported(module: str, brought_by: str | None) -> ModuleType:
    """Import one of our modules.

    Raises:
        ExtraMissingError: It needs packages that ``brought_by`` brings.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if brought_by is None or missing in OURS:
            raise
        text = f"{missing} is not installed: run pip install '{brought_by}'"
        raise ExtraMissingError(text) from None


def reference_option(
    show: Callable[[], None],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option ``--reference``: print the program's page of the documentation, and exit."""

    def called(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            show()
            context.exit()

    return click.option(
        "--reference",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=called,
        help="Print every verb and option, as Markdown.",
    )


def run(
    program: click.Group,
    name: str,
    arguments: list[str] | None = None,
    *,
    within: Callable[[BaseException], FederatorError | None] = lambda _: None,
) -> NoReturn:
    """Run one verb and exit with a code of ``sysexits.h``.

    Args:
        arguments: Those of the process, unless given.
        within: Finds one of our errors in an error of a library.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        outcome = program.main(arguments, prog_name=name, standalone_mode=False)
    except BaseException as error:
        sys.exit(explained(error, name, within, debug="--debug" in arguments))
    sys.exit(outcome if isinstance(outcome, int) else 0)


def explained(
    error: BaseException,
    name: str,
    within: Callable[[BaseException], FederatorError | None] = lambda _: None,
    *,
    debug: bool,
) -> int:
    """Print one line about the ``error`` that ends the program ``name``; return the exit code."""
    cause = _cause(error)
    cause = within(cause) or cause
    match cause:
        case SystemExit():
            return cause.code if isinstance(cause.code, int) else 0
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case click.exceptions.NoArgsIsHelpError():
            click.echo(cause.format_message(), err=True)
            return USAGE
        case click.ClickException():
            click.echo(f"{name}: usage: {_usage(cause, name)}", err=True)
            return USAGE
        case FederatorError():
            click.echo(f"{name}: {cause}", err=True)
            return cause.exit_code
        case _:
            return _internal_error(error, cause, name, debug=debug)


def _internal_error(error: BaseException, cause: BaseException, name: str, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    hint = "report it" if debug else f"run {name} --debug VERB for the traceback, and report it"
    text = f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}"
    click.echo(f"{name}: internal error: {text}: {hint}", err=True)
    return SOFTWARE


def _cause(error: BaseException) -> BaseException:
    """The first of a group's errors that an operator can mend, otherwise the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    causes = [_cause(inner) for inner in error.exceptions]
    return min(causes, key=lambda cause: not isinstance(cause, FederatorError))


def _usage(error: click.ClickException, name: str) -> str:
    message = re.sub(r"\.$", "", error.format_message()).replace("\n", " ")
    context = getattr(error, "ctx", None)
    return f"{message}: see {context.command_path if context is not None else name} --help"
