"""Transcripts: commands and what they print, in plain text that people read.

A file holds scenes, with an empty line between two. A scene is a sentence behind ``#``, then a
command a line, and behind ``>`` what it prints::

    # A clean connection ends an older session
    settle
    arrive keeper b --keeps      > + b
    arrive keeper                > - b

``TRANSCRIPTS=rewrite pytest PATH`` replaces what is expected by what commands print now: the
difference is read before it is committed.
"""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

import pytest

REWRITE: Final = os.environ.get("TRANSCRIPTS") == "rewrite"


class Stage(Protocol):
    def do(self, command: str, *words: str) -> Iterable[str]:
        """Obey; what to print."""
        ...


def _read(path: Path) -> list[str]:
    return path.read_text("utf-8").rstrip("\n").split("\n\n")


def scenes(*paths: Path) -> pytest.MarkDecorator:
    """The test takes ``path`` and ``number`` of a scene, and is named by its sentence."""
    found = [
        pytest.param(path, number, id=scene.partition("\n")[0].strip("# "))
        for path in sorted(paths)
        for number, scene in enumerate(_read(path))
    ]
    return pytest.mark.parametrize(("path", "number"), found)


def play(path: Path, number: int, stage: Stage) -> None:
    """Give the scene's commands to ``stage``, and compare what it prints."""
    script = _read(path)
    lines: list[str] = []
    for line in script[number].splitlines():
        command = line.partition(" > ")[0].rstrip()
        if not command.startswith("#"):
            printed = "; ".join(stage.do(*shlex.split(command)))
            command = f"{command:<39} > {printed}" if printed else command
        lines.append(command)
    expected, script[number] = script[number], "\n".join(lines)
    if REWRITE:
        path.write_text("\n\n".join(script) + "\n", "utf-8")
    else:
        assert script[number] == expected
