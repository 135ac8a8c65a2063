"""Verbs, exit codes, and what a verb loads."""

import os
import subprocess
import sys

import click
import pytest

from federator import cli
from federator.errors import ConfigError, DecodeError, LinkError
from lab.cli import federator_lab


@pytest.fixture
def broken_verb(monkeypatch):
    """Make ``check-config`` end with an error of our choice."""

    def broken(error: BaseException) -> None:
        @click.command(name="check-config")
        def command() -> None:
            raise error

        monkeypatch.setattr("federator.cli.setup.check_config.command", command)

    return broken


def test_of_a_verb_that_is_none_the_nearest_is_named(ended, capsys):
    assert ended("chek-config") == 64

    assert "no verb 'chek-config': 'check-config'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["chek-config"],
        ["--bogus"],
        ["check-config", "--bogus"],
        ["check-config", "stray"],
        ["topology", "--format", "png"],
        ["topology", "--what-if", "remove=all"],
        ["topology", "--what-if", "drop=5"],
        ["topology", "--what-if", "cut=5"],
        ["explain"],
        ["tap", "--count", "0"],
        ["tap", "--kind", "x"],
    ],
)
def test_a_wrong_command_line_is_64_in_one_line(arguments, ended, capsys):
    assert ended(*arguments) == 64

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("federator: usage: ")
    assert "--help" in printed.err
    assert printed.err.count("\n") == 1


def test_no_verb_shows_the_verbs_and_is_64(ended, capsys):
    assert ended() == 64

    assert "check-config" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_is_no_error(arguments, ended, capsys):
    assert ended(*arguments) == 0

    assert capsys.readouterr().err == ""


def test_every_verb_can_be_loaded_and_is_called_what_it_is_called():
    context = click.Context(cli.federator)
    for verb in cli.federator.list_commands(context):
        command = cli.federator.get_command(context, verb)
        assert command is not None
        assert command.name == verb
        assert command.help


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("f:1: what: how", exit_code=77), 77, "federator: f:1: what: how\n"),
        (LinkError("mqtt://h: refused"), 69, "federator: mqtt://h: refused\n"),
        (KeyboardInterrupt(), 130, "\n"),
        (
            ExceptionGroup("g", [ValueError("x"), ExceptionGroup("h", [LinkError("first")])]),
            69,
            "federator: first\n",
        ),
        (
            RuntimeError("two\nlines"),
            70,
            "federator: internal error: RuntimeError: two lines: "
            "run federator --debug VERB for the traceback, and report it\n",
        ),
        (ExceptionGroup("g", [DecodeError("d")]), 69, "federator: d\n"),
    ],
)
def test_an_error_is_one_line_and_its_code(error, code, line, broken_verb, ended, capfd):
    broken_verb(error)

    assert ended("check-config") == code

    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", line)


def test_debug_shows_where_a_mistake_of_ours_is(broken_verb, ended, capsys):
    broken_verb(RuntimeError("x"))

    assert ended("--debug", "check-config") == 70

    assert "Traceback" in capsys.readouterr().err


def test_the_daemon_does_not_load_what_only_other_verbs_need():
    program = (
        "import sys, federator.cli.daemons.run\n"
        "heavy = {'numpy', 'highspy', 'scipy', 'hypothesis', 'aiomqtt', 'paho', 'lab'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert loaded.stdout == b"[]\n"


def test_output_into_a_closed_pipe_ends_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    verb = [sys.executable, "-m", "federator", "check-config", "--reference"]

    ran = subprocess.run(verb, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)

    assert (ran.returncode, ran.stderr) == (1, b"")


def verbs(command, context):
    """All commands below ``command`` that do something."""
    if not isinstance(command, click.Group):
        yield command
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        yield from verbs(inner, click.Context(inner, parent=context))


@pytest.mark.parametrize(("root", "least"), [(cli.federator, 30), (federator_lab, 20)])
def test_every_default_is_a_value_that_its_option_takes(root, least):
    checked = 0
    for verb in verbs(root, click.Context(root)):
        context = click.Context(verb)
        for option in verb.params:
            default = option.get_default(context)
            if isinstance(default, str | int | float):
                option.type_cast_value(context, default)
                checked += 1
    assert checked > least
