"""Run Mosquitto's tests of a broker one beside the other, and hold what fails against a list.

Each is a program that starts a broker, speaks to it in raw packets and ends with 0 when all was as
expected. They call ``../../src/mosquitto``, where a script of ours calls ``stand_in``.
"""

import asyncio
import contextlib
import os
import re
import shlex
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.errors import ConfigError
from lab.conformance.stand_in import GATEWAY_LOG, MODE
from lab.grid.processes.children import python
from lab.grid.processes.ports import free_ports

GROUPS: Final = ("01", "02", "03", "04", "05", "07", "12", "13")
"""Connecting, subscribing, publishing, retained values, sessions, wills, properties, malformed
packets. The others need bridges, plugins that must be compiled, or certificates for one name."""

TEST_S: Final = 600.0
PATIENCE: Final = ("for i in range(0, 20):", "for i in range(0, 300):")
"""How often the tests look, ten times a second, whether a broker listens; a gateway takes longer to
start than a broker."""

_LISTED = re.compile(r"^\s*\((\d), '\./((\d\d)-[\w-]+)\.py'\)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Test:
    """One test: its name without ``.py``, and how many ports it listens on."""

    name: str
    ports: int


@dataclass(frozen=True, slots=True)
class Result:
    """How a test ended; ``output`` is what it printed."""

    name: str
    passed: bool
    attempts: int
    seconds: float
    output: str


def tests_in(folder: Path, patterns: Sequence[str]) -> list[Test]:
    """The tests of our groups that Mosquitto itself runs, or those of them that are named like one
    of ``patterns``.
    """
    text = (folder / "broker" / "test.py").read_text("utf-8")
    return [
        Test(name, int(ports))
        for ports, name, group in _LISTED.findall(text)
        if group in GROUPS and (not patterns or any(each in name for each in patterns))
    ]


def known_failures(folder: Path, tests: Sequence[Test], *, direct: bool) -> dict[str, str]:
    """Tests that fail as they must, each with its reason: those that Mosquitto lists and does not
    bring, and through the gateway those of our list.
    """
    missing = (each.name for each in tests if not (folder / "broker" / f"{each.name}.py").exists())
    known = dict.fromkeys(missing, "Mosquitto lists it and does not bring it.")
    if not direct:
        text = Path(__file__).with_name("differences.toml").read_text("utf-8")
        known |= {str(name): str(reason) for name, reason in tomllib.loads(text).items()}
    return known


def prepare(folder: Path, *, direct: bool) -> None:
    """Let the tests in ``folder`` start our stand-in.

    Raises:
        ConfigError: They are not the tests that we know.
    """
    module = folder / "mosq_test.py"
    text = module.read_text("utf-8")
    if text.count(PATIENCE[0]) != 1:
        raise ConfigError(f"{module}: is not of the version that is known", exit_code=65)
    module.write_text(text.replace(*PATIENCE), encoding="utf-8")
    program = folder.parent / "src" / "mosquitto"
    program.parent.mkdir()
    root = Path(__file__).parents[2]
    call = shlex.join(["env", f"PYTHONPATH={root}", f"{MODE}={'broker' if direct else 'gateway'}"])
    call += " " + shlex.join(python("lab.conformance.stand_in"))
    program.write_text(f'#!/bin/sh\nexec {call} "$@"\n', encoding="utf-8")
    program.chmod(0o755)


async def run(
    folder: Path,
    tests: Sequence[Test],
    *,
    at_once: int,
    attempts: int,
    tell: Callable[[Result], None],
) -> None:
    waiting, failed = [*tests][::-1], []

    async def work() -> None:
        while waiting:
            test = waiting.pop()
            result = await _run_one(folder, test, 1)
            if result.passed or attempts == 1:
                tell(result)
            else:
                failed.append(test)

    async with asyncio.TaskGroup() as tasks:
        for index in range(at_once):
            tasks.create_task(work(), name=f"tests {index}")
    for test in failed:
        for attempt in range(2, attempts + 1):
            result = await _run_one(folder, test, attempt)
            if result.passed or attempt == attempts:
                tell(result)
                break


async def _run_one(folder: Path, test: Test, attempt: int) -> Result:
    began = time.monotonic()
    ports = sorted(free_ports(test.ports))  # the stand-in begins with the last
    log = folder.parent / f"{test.name}.gateway.log"
    log.unlink(missing_ok=True)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        f"./{test.name}.py",
        *map(str, ports),
        cwd=folder / "broker",
        env={**os.environ, GATEWAY_LOG: str(log)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    told = b""
    try:
        async with asyncio.timeout(TEST_S):
            told, _ = await process.communicate()
        passed = process.returncode == 0
    except TimeoutError:
        passed, told = False, f"not over after {TEST_S:g} s".encode()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and the broker that a test left behind
        await process.wait()
    seconds = time.monotonic() - began
    return Result(test.name, passed, attempt, seconds, told.decode(errors="replace"))
