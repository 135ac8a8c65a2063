"""docs/tour.md, typed into a terminal for a recording: ``python -m tests.docs.tour`` (script/tour).

The commands are the page's own, run with real brokers and agents, and what they print is what they
printed. Only waiting is cut: a command that looks is shown when it prints what the page says. The
pages before it, which make the brokers and their keys, are run unseen.
``python -m tests.docs.tour --cut CAST`` shortens the pauses of a recording.
"""

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.docs.page import Shell, Step, do, follow_in, steps

DOCS = Path(__file__).parents[2] / "docs"
TOUR = DOCS / "tour.md"
BEFORE = {
    "tutorial.md": "## 4. Publish at one",
    "how-to/add-a-broker.md": "## 4. Start it",
}
"""The pages that the tour goes on from, and the headings up to which."""
KEY_S, LINE_S, READ_MIN_S, READ_MAX_S = 0.045, 0.5, 2.4, 9.0


def begin(shell: Shell, folder: Path, replaced: Mapping[str, str]) -> None:
    """Do what stands before the tour."""
    for name, heading in BEFORE.items():
        before, found, _ = (DOCS / name).read_text("utf-8").partition(heading)
        assert found, f"{name} has no {heading!r}"
        page = folder / Path(name).name
        page.write_text(before)
        follow_in(shell, page, replaced)


def titles() -> list[tuple[int, str]]:
    """Line and text of the tour's headings."""
    lines = TOUR.read_text("utf-8").splitlines()
    return [(at, line[3:]) for at, line in enumerate(lines, 1) if line.startswith("## ")]


def _show(text: str, colour: str = "") -> None:
    sys.stdout.write(f"{colour}{text}\x1b[0m" if colour else text)
    sys.stdout.flush()


def _type(line: str) -> None:
    _show("$ ", "\x1b[1;32m")
    for key in line:
        _show(key)
        time.sleep(KEY_S)
    _show("\n")


def _play(shell: Shell, step: Step) -> None:
    lines = step.commands.strip().splitlines()
    parts = [Step(step.line, line, step.printed if line == lines[-1] else None) for line in lines]
    for part in parts:
        printed = do(shell, part, f"tour.md:{step.line}", {})
        _type(part.commands)
        _show(printed)
        shown = printed.count("\n")
        time.sleep(min(READ_MAX_S, READ_MIN_S + LINE_S * shown))


def cut(cast: Path) -> None:
    """Begin with the first event, and shorten each pause to the longest for reading."""
    header, *rest = cast.read_text("utf-8").splitlines()
    lines = [header]
    before_s, at_s = json.loads(rest[0])[0], 0.0  # what was run unseen is gone
    for line in rest:
        recorded_s, kind, text = json.loads(line)
        at_s += min(recorded_s - before_s, READ_MAX_S)
        before_s = recorded_s
        lines.append(json.dumps([round(at_s, 3), kind, text], ensure_ascii=False))
    cast.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    """Play the tour, or shorten a recording's pauses."""
    if sys.argv[1:2] == ["--cut"]:
        cut(Path(sys.argv[2]))
    else:
        play()


def play() -> None:
    """Type the tour's commands, and show what they print."""
    with tempfile.TemporaryDirectory() as name, Shell(Path(name)) as shell:
        begin(shell, Path(name), {})
        titles_left = titles()
        for step in steps(TOUR):
            while titles_left and titles_left[0][0] < step.line:
                _show(f"\n# {titles_left.pop(0)[1]}\n", "\x1b[36m")
                time.sleep(READ_MIN_S)
            _play(shell, step)
        _show("\x1b[0m")  # an event, so that the last screen stays as long as the others


if __name__ == "__main__":
    main()
