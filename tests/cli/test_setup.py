"""Verbs that set an agent up, without a terminal; test_setup_verbs has those with one."""

import re
import sys
from pathlib import Path

import pytest

from federator.cli import main
from tests.transcripts import play, scenes

VARYING = (
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "DAY"),
    (re.compile(r'("expires": )\d+'), r"\1TIME"),
    (re.compile(r"^#:schema .*"), "#:schema FILE"),
)
DRAWN = re.compile(r"\b[0-9a-f]{16}\b")
"""Serials and fingerprints: the first that a scene prints is drawn-1, wherever it is printed."""


class Stage:
    """One folder, and verbs typed there.

    ``federator WORD ...`` prints what the verb does, each line once and behind the exit code if
    that is not 0. ``file NAME TEXT`` writes a file, ``cat NAME`` prints one, ``mode NAME`` its mode
    or ``mode NAME MODE`` sets it, and ``ls`` prints what is there. ``bridges LINE ...`` writes
    m.conf, a line each. ``without PACKAGE`` is as if that were not installed.
    """

    def __init__(self, folder, capsys, monkeypatch):
        self.folder, self.capsys, self.monkeypatch = folder, capsys, monkeypatch
        monkeypatch.chdir(folder)
        self.drawn = {}

    def do(self, command, *words):
        for line in self._lines(command, *words):
            for pattern, kind in VARYING:
                line = pattern.sub(kind, line)
            line = DRAWN.sub(self._number, line)
            yield line.replace(str(self.folder), "HERE")

    def _number(self, found):
        return self.drawn.setdefault(found[0], f"drawn-{len(self.drawn) + 1}")

    def _lines(self, command, *words):
        match command, words:
            case "federator", _:
                with pytest.raises(SystemExit) as ended:
                    main(list(words))
                printed = self.capsys.readouterr()
                code = ended.value.code
                yield from ([f"{code}"] if code else [])
                lines = (printed.out + printed.err).splitlines()
                yield from (" ".join(line.split()) for line in lines)
            case "without", [package]:
                self.monkeypatch.setitem(sys.modules, package, None)
            case "file", [name, text]:
                (self.folder / name).parent.mkdir(exist_ok=True)
                (self.folder / name).write_text(text.encode().decode("unicode_escape"))
                (self.folder / name).chmod(0o600)
            case "bridges", _:
                (self.folder / "m.conf").write_text("\n".join(words) + "\n")
            case "cat", [name]:
                yield from (self.folder / name).read_text().splitlines()
            case "mode", [name]:
                yield f"{(self.folder / name).stat().st_mode & 0o777:o}"
            case "mode", [name, mode]:
                (self.folder / name).chmod(int(mode, 8))
            case "ls", []:
                yield from sorted(path.name for path in self.folder.iterdir())


@scenes(Path(__file__).with_name("setup.txt"))
def test_verbs_set_an_agent_up(path, number, tmp_path, capsys, monkeypatch):
    play(path, number, Stage(tmp_path, capsys, monkeypatch))
