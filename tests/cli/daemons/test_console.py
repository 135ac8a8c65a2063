"""The verb ``console``: what it asks for, and what it needs."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from federator import cli
from federator.cli.daemons.console import command
from federator.console.operators import matches


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch, tmp_path):
    monkeypatch.setattr("federator.cli.daemons.console.DEFAULT_CONFIG", tmp_path / "none.toml")
    for name in ("FEDERATOR_CONSOLE_CONFIG", "FEDERATOR_BROKERS"):
        monkeypatch.delenv(name, raising=False)


def ended(arguments):
    with pytest.raises(SystemExit) as raised:
        cli.main(["console", *arguments])
    return raised.value.code


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 64, "--broker URL is missing"),
        (["--broker", "one"], 78, "--broker: brokers[0].url = 'one' has no scheme"),
        (["-c", "/none.toml"], 66, "/none.toml: no such file: name the configuration"),
        (["--add-operator", "a:b"], 64, "of A-Z a-z 0-9"),
    ],
)
def test_a_mistake_is_one_line_and_its_code(arguments, code, told, capsys):
    assert ended(arguments) == code

    printed = capsys.readouterr()
    assert told in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[http]\nenabled = false", "http.enabled = false: a console is its page: set true"),
        ('history = "javascript:alert(1)"', "history"),
        ('[keys]\noperator_file = "op.key"', "add federation_files"),
        ('[operators]\nfile = "nobody"', "nobody: no such file or directory: correct the path"),
    ],
)
def test_a_configuration_that_cannot_be_used_names_the_key(text, told, tmp_path, capsys):
    path = tmp_path / "console.toml"
    path.write_text(
        f'{text}\n[[brokers]]\nurl = "mqtt://one"\n'
        if "[" not in text
        else f'[[brokers]]\nurl = "mqtt://one"\n{text}\n'
    )

    assert ended(["-c", str(path), "--check"]) in (66, 77, 78)

    printed = capsys.readouterr()
    assert told in printed.err
    assert printed.err.count("\n") == 1


def test_check_reads_the_configuration_and_stops(capsys):
    assert ended(["--broker", "mqtt://one", "--check"]) == 0

    assert "from mqtt://one: the configuration can be used" in capsys.readouterr().out


def test_an_operators_line_holds_a_hash_and_no_password():
    typed = "a long password\na long password\n"
    result = CliRunner().invoke(command, ["--add-operator", "ada"], input=typed)

    name, _, line = result.stdout.strip().splitlines()[-1].partition(":")
    assert name == "ada"
    assert matches(line, "a long password")
    assert "a long password" not in result.stdout


def test_a_short_password_is_refused():
    result = CliRunner().invoke(command, ["--add-operator", "ada"], input="short\nshort\n")

    assert result.exit_code != 0
    assert "10 to 1024 characters" in result.output


def test_without_its_packages_it_says_which_extra_brings_them():
    program = (
        "import sys; sys.modules['starlette'] = None; "
        "from federator.cli import main; main(['console', '--broker', 'mqtt://one', '--check'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stderr.count("\n") == 1
    assert "starlette is not installed: run pip install '" in done.stderr
    assert "[console]'" in done.stderr
