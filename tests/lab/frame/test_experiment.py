"""Settings are options, and an outcome is lines, JSON, an exit code and the folder that stays."""

import json
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from federator.errors import LinkError
from lab.frame.experiment import Result, experiment
from lab.frame.settings import numbers, options, setting


@dataclass(frozen=True)
class Settings:
    """What can be asked for."""

    rate_hz: float = setting(50.0, "msg/s.", 1, 500, option="--rate")
    rounds: int | None = setting(None, "", 1)
    hops: tuple[int, ...] = setting("1,3", parse=numbers, form="N[,N]")
    places: tuple[str, ...] = setting((), option="--place", among=("middle", "corner"))
    plant: bool = setting(default=False, about="Lose something.")
    unseen: int = 7

    def __post_init__(self):
        if self.rate_hz == 13:
            raise ValueError("--rate: another number wanted")


@dataclass(frozen=True)
class Outcome(Result):
    """What came of it."""

    lost: int
    folder: str

    @property
    def held(self):
        return self.lost == 0

    def lines(self):
        return [f"{self.lost} lost"]


async def lose(settings, folder, tell):
    """Lose something, if it is planted."""
    tell(f"{settings.rate_hz:g} msg/s")
    if settings.rounds == 3:
        raise LinkError("no broker")
    return Outcome(int(settings.plant), str(folder))


VERB = experiment("lose", Settings, lose)


def asked(*arguments, sparse=False):
    found = []

    @click.command()
    @options(Settings, sparse=sparse)
    def verb(given):
        found.append(given)

    ended = CliRunner().invoke(verb, arguments)
    return found[0] if found else ended.output


def test_options_are_the_fields_of_settings():
    assert asked() == Settings()
    assert Settings().hops == (1, 3)
    given = asked("--rate", "2", "--rounds", "4", "--hops", "5", "--place", "corner", "--plant")
    assert given == Settings(2.0, 4, (5,), ("corner",), plant=True)


def test_of_sparse_options_there_is_what_was_given():
    given = asked("--hops", "2,4", sparse=True)

    assert {name: value for name, value in given.items() if value} == {"hops": (2, 4)}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--rate", "501"), "501.0 is not in the range"),
        (("--hops", "1,x"), "'1,x': numbers like 1,3 wanted"),
        (("--place", "edge"), "'edge' is not one of"),
        (("--rate", "13"), "--rate: another number wanted"),
        (("--unseen", "1"), "No such option"),
    ],
)
def test_what_cannot_be_is_told(arguments, complaint):
    assert complaint in asked(*arguments)


def test_an_outcome_that_holds_leaves_nothing_behind():
    ended = CliRunner().invoke(VERB, ["--json"], standalone_mode=False)

    found = json.loads(ended.stdout)
    assert ended.return_value == 0
    assert found == {"held": True, "lost": 0, "folder": found["folder"]}
    assert not Path(found["folder"]).exists()
    assert ended.stderr == "50 msg/s\n"


def test_an_outcome_that_does_not_hold_leaves_its_logs():
    ended = CliRunner().invoke(VERB, ["--plant"], standalone_mode=False)

    *lines, logs = ended.stdout.splitlines()
    assert ended.return_value == 1
    assert lines == ["50 msg/s", "1 lost", "NOT held"]
    kept = Path(logs.removeprefix("logs: "))
    assert kept.is_dir()
    kept.rmdir()


def test_what_did_not_start_leaves_its_logs(tmp_path):
    arguments = ["--rounds", "3", "--keep", str(tmp_path / "kept")]

    ended = CliRunner().invoke(VERB, arguments, standalone_mode=False)

    assert isinstance(ended.exception, LinkError)
    assert ended.stderr == f"logs: {tmp_path / 'kept'}\n"


def test_a_folder_that_is_kept_is_a_new_one(tmp_path):
    (tmp_path / "there").touch()

    ended = CliRunner().invoke(VERB, ["--keep", str(tmp_path)])

    assert "not empty" in ended.output


def test_the_help_is_what_the_run_says():
    assert "Lose something, if it is planted." in CliRunner().invoke(VERB, ["--help"]).output
