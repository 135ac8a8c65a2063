"""Every mistake in a configuration: one line that names what to mend, the right code, quickly."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from federator.cli import main
from tests.config.conftest import BROKERS, FOLLOWED, GOOD
from tests.transcripts import play, scenes

HERE = Path(__file__).parent
SECONDS_MAX = 2.0
DAEMONS = {
    "bad_configurations": ("check-config", GOOD),
    "bad_files": ("check-config", GOOD),
    "bad_former": (
        "check-config",
        f'former = "leaf.toml"\nsecurity = "open"\nstate_dir = "state"\n{GOOD}',
    ),
    "bad_gateways": ("gateway --check", f'name = "gate"\n{BROKERS}'),
    "bad_collectors": ("collect --check", f'landing = "/var/lib/landing"\n{FOLLOWED}'),
    "bad_steerers": ("steer --check", FOLLOWED),
    "bad_consoles": ("console --check", FOLLOWED),
}
"""By transcript, the verb that reads a configuration, and a good one."""
LEAF = """\
role = "leaf"
federation = "fed"
security = "open"
state_dir = "leaf-state"
[broker]
id = 1
url = "mqtt://127.0.0.1:1883"
[[neighbours]]
id = 7
url = "mqtt://127.0.0.1:2883"
"""


class Stage:
    """Spoils a good configuration, and prints the complaint.

    ``replace OLD NEW`` in it, ``add TEXT`` behind it, or have ``only TEXT``; ``begin TEXT`` and
    ``end TEXT``, said before, stand around that. Texts hold escapes as in Python, HERE stands for
    the folder of the configuration, and CERTS for one of certificates.

    ``file NAME MODE TEXT`` is a file beside it, ``leaf OLD NEW`` that of a leaf with that replaced,
    and ``mode MODE`` is the mode of the configuration;
    ``set NAME VALUE`` is a variable of the environment, and ``told WORD ...`` are more words of the
    command line. ``read PATH`` reads another configuration.

    A complaint is printed with the line for the file, and behind its exit code where that is not
    78. A secret in a configuration is "hush", and never in a complaint.
    """

    def __init__(self, daemon, write, certificates, capsys, monkeypatch):
        self.verb, self.good = DAEMONS[daemon]
        self.write, self.capsys, self.monkeypatch = write, capsys, monkeypatch
        self.here, self.certificates = write("").parent, certificates
        self.before = self.after = ""
        self.words, self.mode = [], 0o600

    def do(self, command, *words):
        words = [self._text(word) for word in words]
        match command, words:
            case "begin", [text]:
                self.before = f"{text}\n"
            case "end", [text]:
                self.after = f"{text}\n"
            case "file", [name, mode, text]:
                (self.here / name).write_text(text)
                (self.here / name).chmod(int(mode, 8))
            case "leaf", [old, new]:
                assert old in LEAF
                (self.here / "leaf.toml").write_text(LEAF.replace(old, new, 1))
            case "mode", [mode]:
                self.mode = int(mode, 8)
            case "set", [name, value]:
                self.monkeypatch.setenv(name, value)
            case "told", _:
                self.words = words
            case "replace", [old, new]:
                assert old in self.good
                yield self._outcome(self.good.replace(old, new, 1))
            case "add", [text]:
                yield self._outcome(f"{self.good}{text}\n")
            case "only", [text]:
                yield self._outcome(f"{text}\n")
            case "read", [path]:
                yield self._said(path)

    def _text(self, word):
        text = word.encode().decode("unicode_escape")
        return text.replace("HERE", str(self.here)).replace("CERTS", str(self.certificates))

    def _outcome(self, text):
        path = self.write(self.before + text + self.after)
        path.chmod(self.mode)
        return self._said(str(path)).replace("HERE/federator.toml", "file")

    def _said(self, path):
        begun = time.monotonic()
        with pytest.raises(SystemExit) as ended:
            main([*self.verb.split(), "-c", path, *self.words])
        assert time.monotonic() - begun < SECONDS_MAX
        printed = self.capsys.readouterr()
        if ended.value.code == 0:
            assert printed.err == ""
            return "it can be used"
        assert (printed.out, printed.err.count("\n"), printed.err[-1]) == ("", 1, "\n")
        assert printed.err.strip("\n").isprintable()
        assert "hush" not in printed.err
        line = printed.err.strip().removeprefix("federator: ")
        line = line.replace(str(self.here), "HERE").replace(str(self.certificates), "CERTS")
        line = re.sub(r"^HERE/federator\.toml:(\d+): ", r"line \1: ", line)
        line = line.removeprefix("HERE/federator.toml: ")
        return line if ended.value.code == 78 else f"{ended.value.code}, {line}"


@scenes(*(HERE / f"{name}.txt" for name in DAEMONS))
def test_a_mistake_is_one_line_with_file_line_what_and_how(
    path, number, write, certificates, capsys, monkeypatch
):
    play(path, number, Stage(path.stem, write, certificates, capsys, monkeypatch))


@pytest.mark.parametrize(
    ("verb", "text", "wanted"),
    [
        ("check-config", GOOD.replace("id = 1", f"id = {'9' * 5_000}"), "shorten the value"),
        ("steer", f"{FOLLOWED}[keep]\nhub = 1\ncollects = ['{'x' * 9_000}']\n", "is too long: at"),
    ],
)
def test_a_huge_value_is_not_repeated(verb, text, wanted, write, capsys):
    with pytest.raises(SystemExit) as ended:
        main([verb, "-c", str(write(text))])

    line = capsys.readouterr().err
    assert ended.value.code == 78
    assert wanted in line
    assert len(line) < 1_000


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"a = 1\nb = '\xff'\n", ":2: not UTF-8: write the file as UTF-8"),
        (b"x = " + b"[" * 100_000, ": nested too deeply: no key here needs nesting"),
    ],
)
def test_what_is_no_toml_at_all_is_said_so(content, wanted, tmp_path, capsys):
    path = tmp_path / "f.toml"
    path.write_bytes(content)

    with pytest.raises(SystemExit) as ended:
        main(["check-config", "-c", str(path)])

    assert ended.value.code == 78
    assert capsys.readouterr().err == f"federator: {path}{wanted}\n"


def test_a_file_this_user_may_not_read_is_77(write):
    path = write(GOOD)
    path.chmod(0)
    # Root may read everything, so the reader first becomes nobody to the file system.
    give_up = (
        "import ctypes, os, sys; import federator.cli.setup.check_config\n"
        "from federator.cli import main\n"
        "os.geteuid() == 0 and ctypes.CDLL(None).setfsuid(65534)\n"
        "main(['check-config', '-c', sys.argv[1]])"
    )

    ended = subprocess.run(
        [sys.executable, "-c", give_up, str(path)], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 77, ended.stderr
    assert ended.stderr == (
        f"federator: {path}: not readable by this user: change its owner or mode\n"
    )
