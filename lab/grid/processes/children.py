"""Starting programs that must not outlive us, asking them over HTTP, and ending them.

``setpriv`` sets the parent-death signal before it becomes the program, so a ``kill -9`` of ours
ends them all; each has its own session, so Ctrl-C at the terminal reaches only us, who end them in
order.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, Self

from federator.errors import LinkError


class Process(Protocol):
    """A program that runs, as much of ``subprocess.Popen`` as is asked for here."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, once it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises ``subprocess.TimeoutExpired``."""

    def send_signal(self, sig: int) -> None:
        """Signal it, unless it has ended."""

    def kill(self) -> None:
        """End it by force."""


class Started(ABC):
    """An async context manager over ``start`` and ``stop``."""

    @abstractmethod
    async def start(self) -> None:
        """Start all of it. Raises ``LinkError``: it did not start."""

    @abstractmethod
    async def stop(self) -> object:
        """End what was started, all of it or a part."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()


START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.02
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest line that a helper may be told or print: the result of a long run."""


def mortal(command: list[str]) -> list[str]:
    """``command``, made to die with us where the system offers it."""
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []), *command]


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


class Spawn(Protocol):
    """How a program is started whose output is appended to ``log``."""

    def __call__(self, command: list[str], *, log: Path) -> Process:
        """Start ``command``."""


def spawn(command: list[str], *, log: Path) -> subprocess.Popen[bytes]:
    """Start ``command`` as a mortal child whose output is appended to ``log``."""
    with log.open("ab") as output:
        return subprocess.Popen(
            mortal(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def toml(keys: Mapping[str, object], *, header: str = "") -> list[str]:
    """Lines of a configuration file. Values are written as JSON's, which TOML reads alike."""
    lines = ["", header] if header else []
    return lines + [f"{key} = {json.dumps(value)}" for key, value in keys.items()]


Sections = Mapping[str, Mapping[str, Any]]
"""Keys by section, as in the file: ``{"mesh": {"redundancy": 1}}``."""


def toml_sections(sections: Sections, more: Sections) -> list[str]:
    """``toml`` of all sections; keys of ``more`` win."""
    lines = []
    for name in {**sections, **more}:
        lines += toml({**sections.get(name, {}), **more.get(name, {})}, header=f"[{name}]")
    return lines


async def end(process: Process) -> bool:
    """End ``process`` with SIGTERM, by force after ``STOP_TIMEOUT_S``; whether it obeyed."""
    if process.poll() is not None:
        return True
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)  # a paused process obeys nothing
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            return False
        await asyncio.sleep(POLL_S)
    return True


class Child(Started):
    """A program that runs until it is ended; an async context manager that starts and stops it.

    ``what`` it is goes into messages to people, what it prints to ``log_path``.
    """

    def __init__(self, what: str, log_path: Path) -> None:
        self.log_path = log_path
        self._what = what
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise LinkError(f"{self._what} was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start it, unless it runs, and return once it answers.

        Raises ``LinkError``: it ended or did not answer in time; the text ends with its log.
        """
        if self.running:
            return
        self._launch()
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while not await self._answers():
                if not self.running:
                    raise LinkError(f"{self._what} ended at once:\n{self.log_tail()}")
                if time.monotonic() > deadline:
                    late = f"did not answer within {START_TIMEOUT_S:g} s"
                    raise LinkError(f"{self._what} {late}:\n{self.log_tail()}")
                await asyncio.sleep(POLL_S)
        except BaseException:  # also when cancelled: leave nothing behind
            self.kill9()
            raise

    @abstractmethod
    def _launch(self) -> None:
        """Write its configuration and spawn it as ``_process``."""

    @abstractmethod
    async def _answers(self) -> bool:
        """Whether it serves by now."""

    async def stop(self) -> bool:
        """End it with SIGTERM, by force when it does not obey; whether it obeyed."""
        return self._process is None or await end(self._process)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def kill9(self) -> None:
        """End it as a crash does: no Will, nothing saved. Returns when it is gone."""
        if self._process is not None and self.running:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)

    def pause(self) -> None:
        """Stop it without closing a socket: the silent failure."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def log_lines(self) -> list[str]:
        if not self.log_path.exists():
            return []
        return self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()

    def log_tail(self, lines: int = 10) -> str:
        return "\n".join(self.log_lines()[-lines:])


async def orders() -> AsyncIterator[dict[str, Any]]:
    """Yield, in a ``Helper``'s process, the objects it is told, until its stdin ends."""
    lines = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    while line := await lines.readline():
        yield json.loads(line)


def answer(message: dict[str, Any]) -> None:
    """Send, from a ``Helper``'s process, one object to whoever started it."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Helper(Started):
    """A child of ours that takes and gives one JSON object per line, and ends with its stdin."""

    def __init__(self, command: list[str], *, log: Path) -> None:
        self._command = command
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    async def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *mortal(self._command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                limit=LINE_BYTES_MAX,
            )

    async def tell(self, message: dict[str, Any]) -> None:
        stdin = self._running().stdin
        assert stdin is not None
        stdin.write(json.dumps(message).encode() + b"\n")
        await stdin.drain()

    async def hear(self) -> dict[str, Any]:
        """The next object. Raises ``LinkError``: the program ended."""
        stdout = self._running().stdout
        assert stdout is not None
        line = await stdout.readline()
        if not line:
            tail = self._log.read_text(errors="replace")[-2_000:]
            raise LinkError(f"{' '.join(self._command[1:])} ended:\n{tail}")
        message: dict[str, Any] = json.loads(line)
        return message

    async def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Tell it one object, and hear the next.

        Raises ``LinkError``: the program ended, or its answer holds an ``error``.
        """
        await self.tell(order)
        found = await self.hear()
        if "error" in found:
            raise LinkError(str(found["error"]))
        return found

    async def stop(self) -> None:
        """Close its stdin and wait for its end, by force when it does not obey."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise LinkError(f"{' '.join(self._command[1:])} was never started")
        return self._process


HTTP_TIMEOUT_S: Final = 15.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[int], Awaitable[Streams]]


async def connect(port: int) -> Streams:
    """Connect to a port of this machine. Raises ``OSError``: nobody listens."""
    return await asyncio.open_connection("127.0.0.1", port)


async def get(port: int, path: str, *, who: str, connect: Connect = connect) -> tuple[int, bytes]:
    """Status code and body of a page.

    Raises:
        LinkError: No answer in time, or none of HTTP.
        OSError: Nobody listens.
    """
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(HTTP_TIMEOUT_S):
            answer = await _exchange(connect, port, request.encode())
            # A child that stood still until the request's time was over hangs up without a word.
            answer = answer or await _exchange(connect, port, request.encode())
    except TimeoutError as error:
        raise LinkError(f"{who}: {path} took too long") from error
    head, separator, body = answer.partition(b"\r\n\r\n")
    fields = head.split(b" ", 2)
    if not separator or len(fields) < 2:
        raise LinkError(f"{who}: {path} answered {answer[:80]!r}")
    return int(fields[1]), body


async def _exchange(connect: Connect, port: int, request: bytes) -> bytes:
    reader, writer = await connect(port)
    try:
        writer.write(request)
        return await reader.read(-1)
    finally:
        writer.close()


class Serving(Child):
    """A ``Child`` with pages at ``http_port``, to which ``connect`` leads."""

    http_port: int
    status_path: str = "/status"

    def __init__(self, what: str, log_path: Path, connect: Connect = connect) -> None:
        super().__init__(what, log_path)
        self._connect = connect

    async def status(self) -> dict[str, Any]:
        """What it tells of itself. Raises as ``page``."""
        found: dict[str, Any] = await self.page(self.status_path)
        return found

    async def page(self, path: str) -> Any:  # noqa: ANN401  # a document
        """One of its pages. Raises ``LinkError``: it did not answer as it should."""
        try:
            code, body = await self.get(path)
        except OSError as error:
            raise LinkError(f"{self._what}: {error}") from error
        if code != 200:
            raise LinkError(f"{self._what}: {path} answered {code}")
        return json.loads(body)

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status code and body of a page. Raises as the function ``get``."""
        return await get(self.http_port, path, who=self._what, connect=self._connect)

    async def _answers(self) -> bool:
        try:
            return bool(await self.status())
        except LinkError:
            return False
