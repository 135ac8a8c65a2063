"""A page of the documentation that is run as it is printed.

A fenced block ``sh`` holds commands for one shell that stays open to the end of the page; the
block ``text`` right after it, if there is one, what they print. Blocks with other names
(``console``, ``toml``) are not run.

A reader takes seconds between two commands and a test takes none. So a block that only looks
(``status``, ``cat``, ...) is repeated until it prints what the page says, or until the deadline;
others run once.

Ports, and other words that name a place, are replaced in commands and in what is expected, nothing
else is. What differs from run to run, times and numbers drawn by chance, is compared as a kind
(``VARYING``), and a line ``...`` stands for any lines.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import IO, Self, cast

DEADLINE_S = 60.0
POLL_S = 0.1
LOOKS = re.compile(
    r"federator (status|topology|explain|doctor|check-config|controller status)\b"
    r"|(cat|grep) "
)
JOB_ENDED = re.compile(r"bash: line \d+: +\d+ (Killed|Terminated|Done|Exit) ")
FENCE = re.compile(r"^```(?P<kind>[\w-]*)[^\n]*\n(?P<text>.*?)^```$", re.M | re.S)

VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "DAY"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "HEX"),
    (re.compile(r"rtt [\d.]+ ms"), "rtt N ms"),
    (re.compile(r"^\d\d:\d\d:\d\d\.\d{3} ", re.M), "CLOCK "),
    (re.compile(r"^\d{10}: mosquitto version [\d.]+ ", re.M), "mosquitto "),
    (re.compile(r"\b(term|word) \d+"), r"\1 N"),
    (re.compile(r"\b(epoch|bytes)=\d+"), r"\1=N"),
)
VARYING_COLUMNS = {"epoch", "seq", "rtt_ms", "heard_ms_ago", "load"}


@dataclass(frozen=True)
class Step:
    """One block of commands and what it prints, ``None`` where the page does not say."""

    line: int
    commands: str
    printed: str | None

    @property
    def only_looks(self) -> bool:
        """Whether it may be repeated."""
        lines = self.commands.strip().splitlines()
        return all(LOOKS.match(line) for line in lines)


def steps(page: Path) -> list[Step]:
    """The commands of a page, in order."""
    text = page.read_text("utf-8")
    blocks = list(FENCE.finditer(text))
    found = []
    for at, block in enumerate(blocks):
        if block["kind"] != "sh":
            continue
        after = blocks[at + 1] if at + 1 < len(blocks) else None
        between = text[block.end() : after.start()] if after else ""
        printed = (
            after["text"] if after and after["kind"] == "text" and not between.strip() else None
        )
        found.append(Step(text.count("\n", 0, block.start()) + 1, block["text"], printed))
    return found


class Shell:
    """One bash, and whatever it started: all of it ends with the context."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self._folder = folder
        self._environment = environment
        self._number = 0

    def __enter__(self) -> Self:
        beside = Path(sys.executable).parent
        path = f"{beside}:{os.environ['PATH']}:/usr/local/sbin:/usr/sbin"
        root = str(Path(__file__).parents[2])
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("FEDERATOR_")}
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self._folder,
            env={
                **inherited,
                "PATH": path,
                "PYTHONPATH": root,
                "LC_ALL": "C.UTF-8",
                **self._environment,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._in = cast(IO[str], self._bash.stdin)
        self._out = cast(IO[str], self._bash.stdout)
        self._in.write("trap 'kill -KILL 0' EXIT\n")  # also when the test itself is killed
        return self

    def __exit__(self, *error: object) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        self._in.close()
        self._out.close()

    def run(self, commands: str) -> str:
        """What ``commands`` print, errors too; without bash's own word on jobs that ended."""
        self._number += 1
        mark = f"=== {self._number} ==="
        self._in.write(f"{commands.rstrip()}\necho; echo '{mark}'\n")
        self._in.flush()
        lines: list[str] = []
        while (line := self._out.readline()) != mark + "\n":
            assert line, f"the shell ended: {''.join(lines)}"
            if not JOB_ENDED.match(line):
                lines.append(line)
        return "".join(lines).removesuffix("\n")


def follow(page: Path, folder: Path, replaced: Mapping[str, str], **environment: str) -> None:
    """Do in ``folder`` what ``page`` says, with some words ``replaced``.

    Raises:
        AssertionError: Something else is printed than the page says; names the line.
    """
    follow_all([page], folder, replaced, **environment)


def follow_all(
    pages: list[Path], folder: Path, replaced: Mapping[str, str], **environment: str
) -> None:
    """The same for several pages, one after the other, in one shell."""
    with Shell(folder, **environment) as shell:
        for page in pages:
            follow_in(shell, page, replaced)


def follow_in(shell: Shell, page: Path, replaced: Mapping[str, str]) -> None:
    """The same for one page, in a shell that is open already."""
    for step in steps(page):
        do(shell, step, f"{page.name}:{step.line}", replaced)


def do(shell: Shell, step: Step, name: str, replaced: Mapping[str, str]) -> str:
    """Run one step until it prints what the page says; returns what it printed.

    Raises:
        AssertionError: It does not; names the step.
    """
    commands = _replace(step.commands, replaced)
    end_s = time.monotonic() + DEADLINE_S
    while True:
        printed = shell.run(commands)
        if step.printed is None:
            return printed
        wanted = _replace(step.printed, replaced)
        if agree(wanted, printed):
            return printed
        if not step.only_looks or time.monotonic() > end_s:
            break
        time.sleep(POLL_S)
    difference = "\n".join(
        unified_diff(plain(wanted), plain(printed), "the page", "printed", lineterm="", n=50)
    )
    raise AssertionError(f"{name}: {commands.strip()}\n{difference}\n--- as printed\n{printed}")


def _replace(text: str, replaced: Mapping[str, str]) -> str:
    for old, new in replaced.items():
        text = text.replace(old, new)
    return text


def agree(wanted: str, printed: str) -> bool:
    """Whether ``printed`` is what the page says, up to what varies."""
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == "..." else _line(line) + r"\n" for line in plain(wanted)
    )
    return re.fullmatch(pattern, "".join(line + "\n" for line in plain(printed))) is not None


def _line(line: str) -> str:
    return r"[^\n]*".join(re.escape(part) for part in line.split("..."))


def plain(text: str) -> list[str]:
    """The lines with what varies named by its kind, and with single spaces."""
    for pattern, kind in VARYING:
        text = pattern.sub(kind, text)
    lines, varying = [], set[int]()
    for line in text.strip("\n").splitlines():
        cells = re.split(r" {2,}", line.strip())
        if len(cells) > 2 and VARYING_COLUMNS & set(cells):
            varying = {at for at, cell in enumerate(cells) if cell in VARYING_COLUMNS}
        elif not line.startswith(" ") and line != "...":
            varying = set()
        else:
            cells = ["N" if at in varying else cell for at, cell in enumerate(cells)]
        lines.append(" ".join(" ".join(cells).split()))
    return lines
