"""A failing story is made short, written down, and told again."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from federator.errors import DecodeError
from lab.cli.sim import VIOLATED, command
from lab.sim.campaign import draw, run
from lab.sim.shrink import shrink
from lab.sim.story import PARTS, Kind, decode, encode
from tests.lab.sim.mutants import acknowledges_early, owes_nothing


def failing(mutate, monkeypatch):
    mutate(monkeypatch)
    for seed in range(50):
        story = draw(Kind.MESSAGES, seed)
        result = run(story)
        if result.violation is not None and story.faults:
            return story, result
    raise AssertionError("no seed of fifty fails")


def size(story):
    return sum(len(getattr(story, part)) for part in PARTS)


@pytest.mark.full
def test_the_shortest_story_fails_alike_and_nothing_can_be_left_out(monkeypatch):
    story, result = failing(owes_nothing, monkeypatch)

    shortest = shrink(run, story, result)

    assert size(shortest.story) < size(story)
    assert shortest.result.violation.invariant == result.violation.invariant
    for part in PARTS:
        items = getattr(shortest.story, part)
        for at in range(len(items)):
            shorter = replace(shortest.story, **{part: items[:at] + items[at + 1 :]})
            found = run(shorter).violation
            assert found is None or found.invariant != result.violation.invariant


def test_shrinking_ends_at_its_bound(monkeypatch):
    story, result = failing(acknowledges_early, monkeypatch)

    shortest = shrink(run, story, result, runs_max=5)

    assert shortest.runs <= 5
    assert shortest.result.violation is not None


KINDS: tuple[tuple[Kind, dict[str, object]], ...] = (
    (Kind.ROUTES, {"nodes": 6, "steered": True, "edges": True}),
    (Kind.MESSAGES, {}),
    (Kind.MESSAGES, {"hubs": True}),
    (Kind.MESSAGES, {"areas": True}),
    (Kind.FAILOVER, {}),
    (Kind.JOINING, {}),
    (Kind.ATTACK, {}),
)


@pytest.mark.parametrize(("kind", "manner"), KINDS)
def test_a_story_survives_its_file(kind, manner):
    for seed in range(5):
        story = draw(kind, seed, **manner)
        assert decode(encode(story)) == story


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"seed": "one"}'])
def test_what_is_no_story_is_refused(content):
    with pytest.raises(DecodeError, match="story: "):
        decode(content)


def test_a_violation_prints_the_shortest_story_and_the_command_that_tells_it_again(
    monkeypatch, tmp_path
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seed = failing(acknowledges_early, monkeypatch)[0].seed
    path = str(tmp_path / f"federator-sim-{seed}.json")
    run = CliRunner().invoke

    arguments = ["--messages", "--seed", str(seed), "--seeds", "1", "--workers", "1"]
    found = run(command, arguments)
    assert found.exit_code == VIOLATED
    assert found.output.splitlines()[-1].strip() == f"again: federator-lab sim --replay {path}"

    again = run(command, ["--replay", path])
    assert again.exit_code == VIOLATED
    assert "logged_before_acknowledged: " in again.output
    monkeypatch.undo()

    mended = run(command, ["--replay", path])
    assert mended.exit_code == 0
    assert mended.output.splitlines()[-1] == "nothing was violated"
