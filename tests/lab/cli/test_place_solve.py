"""``federator-lab paper place-solve``: what it says, and how it refuses a bad problem."""

import json

import pytest
from click.testing import CliRunner

from lab import cli
from lab.cli.paper.place import solve_command as solve

PROBLEM = {
    "devices": [{"capacity": 100, "power": 1}, {"capacity": 100, "power": 2}],
    "links": [[0, 1]],
    "network_power": 3,
    "broker_work": 2,
    "topics": [{"clients": [1, 2]}],
    "services": [{"users": [4, 0], "work": 3, "user_work": 7, "topics": {"0": 5}}],
}
OWING = {"users": [4, 0], "work": 3, "user_work": 7, "topics": {"0": -5}}


@pytest.mark.parametrize("method", ["search", "exact"])
def test_solve_says_where_and_how_sure_it_is(tmp_path, method):
    (tmp_path / "problem.json").write_text(json.dumps(PROBLEM))

    result = CliRunner().invoke(solve, [str(tmp_path / "problem.json"), "--method", method])

    assert result.exit_code == 0, result.output
    assert "broker of topic 0  0" in result.output
    assert "power 65 mW, proven within 0 %" in result.output


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"devices": []}, "missing required field `topics`"),
        ({**PROBLEM, "links": []}, "links: no way leads from device 0 to [1]"),
        ({**PROBLEM, "version": 2}, "contains unknown field `version`"),
        (
            {**PROBLEM, "topics": [{"client": []}]},
            "topics[0]: Object contains unknown field",
        ),
        ({**PROBLEM, "network_power": -1}, "network_power must be finite and not negative, got -1"),
        ({**PROBLEM, "broker_work": 10**400}, "broker_work: Number out of range"),
        ({**PROBLEM, "devices": [{"capacity": -1, "power": 1}] * 2}, "capacity must be finite and"),
        ({**PROBLEM, "services": [OWING]}, "shared_traffic must be finite and not negative"),
        ({**PROBLEM, "links": [[0, 2]]}, "[0, 2] is no pair of devices 0 to 1"),
        ({**PROBLEM, "network_power": "much"}, "network_power: Expected `float`, got `str`"),
    ],
)
def test_a_bad_problem_is_told_in_one_line(tmp_path, capsys, content, complaint):
    problem = tmp_path / "problem.json"
    problem.write_text(json.dumps(content))

    with pytest.raises(SystemExit) as ended:
        cli.main(["paper", "place-solve", str(problem)])

    told = capsys.readouterr().err
    assert ended.value.code == 65
    assert complaint in told
    assert told.count("\n") == 1
