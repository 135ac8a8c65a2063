"""Programs of ours that are forked from an interpreter that has imported everything already.

To import an agent takes a processor a second, and this suite starts more than a thousand. So one
interpreter in the background imports agent, gateway and collector once, and each that a test
starts is a fork of it: the same ``main`` with the same arguments, in a session of its own, child
of the test's process and ended with it. What a cold start is like is held by the tests that run
``federator`` as a command of its own.
"""

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

import uvloop

from lab.grid.processes.children import mortal, python
from tests.real import turns

PRELOADED = (
    "federator.cli.daemons.collect",
    "federator.cli.daemons.gateway",
    "federator.cli.daemons.run",
    "uvloop",
)
VERBS = ("run", "gateway", "collect")
"""Of ``federator``: what is forked. All else is started as it is."""

ORDER_BYTES_MAX = 1 << 20
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
POLL_S = 0.01


def _prctl(option, value):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Forked:
    """As much of ``subprocess.Popen`` as ``lab.grid.processes.children`` asks for."""

    def __init__(self, pid):
        self.pid = pid
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=None):
        end_s = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end_s is not None and time.monotonic() > end_s:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(POLL_S)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)


class WarmInterpreter:
    """The interpreter that is forked from; started when it is first asked, ended with us."""

    def __init__(self):
        self._socket = None
        self._server = None

    def spawn(self, command, *, log):
        """As ``children.spawn`` of ``command``, a ``python -m federator VERB ...``."""
        if self._socket is None:
            self._start()
        order = {"arguments": command[3:], "cwd": os.getcwd(), "environment": dict(os.environ)}
        with log.open("ab") as output:
            # The fork's own parent ends at once: the kernel then makes it our child.
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self._socket, [json.dumps(order).encode()], [output.fileno()])
                pid = int(self._socket.recv(64))
            finally:
                _prctl(PR_SET_CHILD_SUBREAPER, 0)
        return Forked(pid)

    def _start(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                mortal(python("tests.real.warm", str(theirs.fileno()))),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def stop(self):
        if self._socket is not None:
            self._socket.close()
            self._server.wait()


def spawner(cold):
    """``cold``, but what can be forked is; and how that is ended."""
    warm = WarmInterpreter()

    def spawn(command, *, log):
        if command[:3] == python("federator") and command[3] in VERBS:
            return warm.spawn(command, log=log)
        return cold(command, log=log)

    return spawn, warm.stop


def _serve(orders):
    """Fork for each order; returns in each fork, with the arguments it has to run with."""
    tests = os.getppid()
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
            return _settle(json.loads(order), output, tests, orders)


def _settle(order, output, tests, orders):
    """Become what a process of its own is: session, output, environment, death with the tests."""
    while os.getppid() != tests:
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
    return order["arguments"]


def main():
    orders = socket.socket(fileno=int(sys.argv[1]))
    for module in PRELOADED:
        __import__(module)
    gc.collect()
    gc.freeze()  # what is shared with the forks is to stay shared
    sys.argv = ["federator", *_serve(orders)]
    uvloop.new_event_loop = turns.watch(uvloop.new_event_loop)
    runpy.run_module("federator", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
