"""Programs of ours that are forked from an interpreter that has imported everything already.

To import an agent takes a processor a second; a grid starts nine, and a chaos run starts them again
and again. So one interpreter in the background imports agent, gateway and collector once, and each
that is wanted is a fork of it: the same ``main`` with the same arguments, in a session of its own,
child of whoever wanted it and ended with it. Whoever measures an agent's memory or its start takes
``children.spawn`` instead.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from federator.config.gateway import GatewaySettings
from federator.config.settings import Settings
from federator.config.validation import adapter
from lab.grid.processes import children
from lab.grid.processes.children import Process, mortal, python

PRELOADED: Final = (
    "federator.cli.daemons.agent_settings",
    "federator.cli.daemons.collect",
    "federator.cli.daemons.gateway",
    "federator.cli.daemons.run",
    "federator.runtime.agent.app",
    "uvloop",
)
VERBS: Final = ("run", "gateway", "collect")
"""Of ``federator``: what is forked. All else is started as it is."""

PROGRAM = "lab.grid.processes.warm"
"""What the interpreter runs: this module, or one that calls ``main`` with more to prepare."""

ORDER_BYTES_MAX: Final = 1 << 20
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
POLL_S: Final = 0.01


class _Forked:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        end_s = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end_s is not None and timeout is not None and time.monotonic() > end_s:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(POLL_S)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Interpreter:
    """What is forked from; it ends with us."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                mortal(python(PROGRAM, str(theirs.fileno()))),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def fork(self, arguments: list[str], *, log: Path) -> Process:
        order = {"arguments": arguments, "cwd": os.getcwd(), "environment": dict(os.environ)}
        with log.open("ab") as output:
            # The fork's own parent ends at once: the kernel then makes it our child.
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self._socket, [json.dumps(order).encode()], [output.fileno()])
                pid = int(self._socket.recv(64))
            finally:
                _prctl(PR_SET_CHILD_SUBREAPER, 0)
        return _Forked(pid)

    def stop(self) -> None:
        """End it; what was forked goes on."""
        self._socket.close()
        self._server.wait()


_started: list[_Interpreter] = []


def spawn(command: list[str], *, log: Path) -> Process:
    """As ``children.spawn``, but an agent, a gateway or a collector is forked."""
    if command[:3] != python("federator") or command[3] not in VERBS:
        return children.spawn(command, log=log)
    if not _started:
        _started.append(_Interpreter())
        atexit.register(_started[0].stop)
    return _started[0].fork(command[3:], log=log)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _serve(orders: socket.socket) -> list[str]:
    """Fork for each order; returns in each fork, with the arguments it has to run with."""
    wanted_by = os.getppid()
    while True:
        order, outputs, *_ = socket.recv_fds(orders, ORDER_BYTES_MAX, 1)
        if not order:
            sys.exit()
        (output,) = outputs
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            os.close(output)
        elif os.fork():
            os._exit(0)
        else:
            return _settle(json.loads(order), output, wanted_by, orders)


def _settle(order: dict[str, Any], output: int, wanted_by: int, orders: socket.socket) -> list[str]:
    """Become what a process of its own is: session, output, environment, death with its parent."""
    while os.getppid() != wanted_by:
        time.sleep(0)  # until the process between has ended
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    orders.send(b"%d" % os.getpid())
    orders.close()
    arguments: list[str] = order["arguments"]
    return arguments


def main(prepare: Callable[[], None] = lambda: None) -> None:
    """Be the interpreter, and each program that is forked from it, which is prepared first."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    for module in PRELOADED:
        __import__(module)
    for root in (Settings, GatewaySettings):
        adapter(root)
    gc.collect()
    gc.freeze()  # what is shared with the forks is to stay shared
    sys.argv = ["federator", *_serve(orders)]
    prepare()
    runpy.run_module("federator", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
