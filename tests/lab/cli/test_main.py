"""Verbs of the laboratory, and that the product does without it."""

import click
import pytest

from federator import cli as product
from lab import cli


@pytest.mark.parametrize(
    "arguments",
    [
        ["gird"],
        ["sim", "--joining", "--messages"],
        ["grid", "--auto", "2"],
        ["grid", "--auto", "5", "--rows", "3"],
    ],
)
def test_a_wrong_command_line_is_64_in_one_line(arguments, capsys):
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)

    printed = capsys.readouterr()
    assert raised.value.code == 64
    assert printed.out == ""
    assert printed.err.startswith("federator-lab: usage: ")
    assert printed.err.count("\n") == 1


def test_every_verb_can_be_loaded_and_is_called_what_it_is_called():
    context = click.Context(cli.federator_lab)
    for verb in cli.federator_lab.list_commands(context):
        command = cli.federator_lab.get_command(context, verb)
        assert command is not None
        assert command.name == verb
        assert command.help


def test_no_verb_of_the_laboratory_is_an_operators():
    assert not set(cli.VERBS) & set(product.VERBS)
