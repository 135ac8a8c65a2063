"""What Mosquitto's tests start for the broker: the broker elsewhere, and a gateway before it.

Called as Mosquitto is. The real one gets the test's own configuration with other ports, and on each
port that the test expects a gateway listens that knows this one broker. Signals are the broker's.
Without ``FEDERATOR_STAND_IN=gateway`` in the environment the broker itself has the test's ports.
Configurations are written into the working folder, which is the tests'.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

from federator.gateway.session.handshake import PACKET_BYTES_MAX
from federator.protocol.types import BrokerId
from lab.grid.processes.broker import find_mosquitto
from lab.grid.processes.children import mortal, python
from lab.grid.processes.gateway import GatewayConfig
from lab.grid.processes.ports import free_ports

MODE: Final = "FEDERATOR_STAND_IN"
GATEWAY_LOG: Final = "FEDERATOR_STAND_IN_LOG"
START_S: Final = 20.0
POLL_S: Final = 0.02


def main(arguments: list[str]) -> int:
    """Be a broker for the test that called; return the exit code of the real one."""
    conf, ports = translated(_wanted(arguments), moved=os.environ.get(MODE) == "gateway")
    file = Path(f"stand-in-{min(ports)}.conf").absolute()
    file.write_text(conf, encoding="utf-8")
    command = [find_mosquitto(), "-v", "-c", str(file)]
    if os.environ.get(MODE) != "gateway":
        os.execv(command[0], command)  # so that signals are heard when they are sent
    broker = subprocess.Popen(mortal(command))
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, lambda which, _: broker.send_signal(which))
    gateways = []
    try:
        for port, elsewhere in sorted(ports.items(), reverse=True):
            # The test goes on when its first port answers, the lowest: so that comes last.
            if _answers(broker, elsewhere):
                gateways.append(_gateway(port, elsewhere))
                _answers(gateways[-1], port)
        return broker.wait()
    finally:
        for gateway in gateways:
            gateway.kill()
            gateway.wait()


def translated(conf: str, *, moved: bool) -> tuple[str, dict[int, int]]:
    """The configuration for the real broker, and by port of the test the one that it has there."""
    ports: dict[int, int] = {}
    lines = []
    for line in conf.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] in ("port", "listener"):
            port = int(words[1])
            ports[port] = free_ports(1)[0] if moved else port
            line = " ".join((words[0], str(ports[port]), *words[2:]))
        lines.append(line)
    if os.geteuid() == 0:
        lines.append("user root")  # another could not write into the tests' folder
    return "\n".join(lines) + "\n", ports


def _wanted(arguments: list[str]) -> str:
    """The configuration that a test asks for; with ``-p`` alone Mosquitto listens for all."""
    options = dict(pairwise(arguments))
    if "-c" in options:
        return Path(options["-c"]).read_text("utf-8")
    return f"listener {options['-p']} 127.0.0.1\nallow_anonymous true\n"


def _gateway(port: int, broker_port: int) -> subprocess.Popen[bytes]:
    config = GatewayConfig(
        f"before-{port}",
        {BrokerId(1): f"mqtt://127.0.0.1:{broker_port}"},
        more={"clients": {"packet_bytes_max": PACKET_BYTES_MAX}},
    )
    file = Path(f"stand-in-{port}.toml")
    file.write_text(config.toml(port=port, http_port=0), encoding="utf-8")
    with Path(os.environ.get(GATEWAY_LOG, os.devnull)).open("ab") as log:
        command = mortal(python("federator", "gateway", "-c", str(file)))
        return subprocess.Popen(command, stdout=log, stderr=log)


def _answers(program: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + START_S
    while program.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        time.sleep(POLL_S)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
