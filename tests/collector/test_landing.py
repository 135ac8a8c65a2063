"""The landing folder: files that appear whole, and whose names are all that is remembered."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from federator.collector.landing import Landing
from federator.collector.position import Piece
from federator.errors import ConfigError
from tests.transcripts import play, scenes

CHILD = Path(__file__).with_name("landing_child.py")
SPOOL, OTHER = "00000000000000aa", "00000000000000bb"
NOON_US = 1_700_049_600_000_000  # 2023-11-15 12:00
DAY_US = 86_400_000_000


class Stage:
    """A landing folder; ``write 3-7 --day=-1`` lands a file of batches 3 to 7 of the day before.

    It is of broker 5 and its spool aa, and has two bytes, unless told otherwise. ``restart`` prints
    where each spool goes on, and what there is; ``files`` without the broker's spool.
    """

    def __init__(self, landing):
        self.landing = landing

    def do(self, command, *words):
        options = dict(word[2:].split("=") for word in words if word.startswith("--"))
        words = [word for word in words if not word.startswith("--")]
        yield from getattr(self, f"_{command}")(*words, **options) or ()

    def _write(self, *spans, broker="5", spool=SPOOL, day="0", at=None, content="x\n"):
        at_us = NOON_US + int(day) * DAY_US if at is None else int(at)
        for number, span in enumerate(spans):
            first, last = map(int, span.split("-"))
            key = int(broker), OTHER if spool == "bb" else SPOOL
            piece = Piece(key, first, last, at_us + number * DAY_US, (content.encode(),))
            try:
                path = self.landing.write(piece)
            except OSError as error:
                yield error.strerror
            else:
                assert path.read_bytes() == content.encode()

    def _restart(self):
        again = Landing(self.landing.path)
        yield from (f"{broker}-{spool[-2:]} to {n}" for (broker, spool), n in again.scan().items())
        yield f"{again.files} files of {again.bytes} bytes"
        if again.leftovers:
            yield f"{again.leftovers} left over"

    def _files(self):
        paths = sorted(path.relative_to(self.landing.path) for path in self.landing.path.rglob("*"))
        for path in paths:
            if path.suffix or not path.name.startswith(("date=2", "date=1", "date=9", "hour=")):
                yield str(path).replace(SPOOL, "aa").replace(OTHER, "bb")

    def _touch(self, path):
        self._path(path).touch()

    def _obstacle(self, path):
        self._path(path).mkdir()

    def _no_obstacle(self, path):
        self._path(path).rmdir()

    def _path(self, path):
        return self.landing.path / path.replace("aa", SPOOL)

    def _prune(self, days="0", max_bytes="0"):
        noon = datetime.fromtimestamp(NOON_US / 1e6, UTC)
        removed = self.landing.prune(now=noon, keep_days=int(days), keep_bytes=int(max_bytes))
        yield f"removed {removed}: {self.landing.files} files of {self.landing.bytes} bytes left"

    def _folders(self):
        yield " ".join(sorted(path.name for path in self.landing.path.glob("date=*")))


@pytest.fixture
def landing(tmp_path):
    with Landing(tmp_path / "landing") as landing:
        yield landing


@scenes(Path(__file__).with_name("landing.txt"))
def test_transcript(path, number, landing):
    play(path, number, Stage(landing))


def test_a_kill_between_any_two_steps_neither_loses_nor_doubles_nor_leaves_half(tmp_path):
    run = subprocess.run(
        [sys.executable, str(CHILD), str(tmp_path)], capture_output=True, text=True, check=True
    )

    stories = [json.loads(told) for told in run.stdout.splitlines()]

    assert [code for code, *_ in stories] == [9] * (len(stories) - 1) + [0]
    assert len(stories) > 15
    whole = {f"5-{SPOOL}-{n}-{n}.jsonl": f"line {n}\n" for n in (1, 2, 3)}
    for _, killed, in_the_end in stories:
        landed = {name: text for name, text in killed.items() if not name.startswith(".")}
        assert landed.items() <= whole.items()
        assert in_the_end == whole
    assert any(name.startswith(".") for _, killed, _ in stories for name in killed)


def test_a_second_collector_is_kept_out(landing):
    with pytest.raises(ConfigError) as caught, Landing(landing.path):
        pass

    assert caught.value.exit_code == 75
    assert "another collector uses it" in str(caught.value)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError) as caught, Landing(tmp_path / "file" / "landing"):
        pass

    assert caught.value.exit_code == 73
    assert "landing: " in str(caught.value)
