"""``federator-lab sim``: the seed first, a command to replay a violation, exit codes."""

import json

from click.testing import CliRunner

from lab.cli.sim import command
from tests.lab.sim.mutants import core_ignores_children


def run(*arguments):
    return CliRunner().invoke(command, [*arguments, "--workers", "1"])


def test_first_line_names_the_first_seed_and_success_is_zero():
    result = run("--seeds", "3", "--seed", "40", "--nodes", "5")

    assert result.exit_code == 0
    assert result.output.splitlines()[0].startswith("seed 40 and the 2 after it")


def test_same_arguments_print_the_same():
    arguments = ("--seeds", "2", "--nodes", "6", "--topology", "ring")

    assert run(*arguments).output == run(*arguments).output


def test_violation_prints_what_and_how_to_replay_it_and_exits_with_one(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    core_ignores_children(monkeypatch)

    result = run("--seeds", "1", "--seed", "7", "--nodes", "6", "--topology", "grid")

    assert result.exit_code == 1
    assert "converges: " in result.output
    last = result.output.splitlines()[-1].strip()
    assert last == f"again: federator-lab sim --replay {tmp_path / 'federator-sim-7.json'}"


def test_json_is_one_object_per_seed_and_a_summary():
    result = run("--seeds", "2", "--nodes", "4", "--json")

    *seeds, summary = map(json.loads, result.output.splitlines())
    assert [one["seed"] for one in seeds] == [0, 1]
    assert all(one["violation"] is None for one in seeds)
    assert summary["violations"] == []
