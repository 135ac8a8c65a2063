"""Writes a golden file of log lines: plays a fixed scene on a real Mosquitto and records its log.

    python -m tests.real.discovery.capture_log_lines --mosquitto PATH [--config LINE ...] \
        > golden/NAME.txt

What each line means is printed below it as the reader sees it **now**: look it over before it is
committed. The scene is in ``play``.
"""

import argparse
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from federator.protocol.discovery.log_lines import LOG_TOPICS, LogReader
from lab.grid.processes.broker import LOG_TOPIC_LINES
from lab.grid.processes.ports import free_ports
from tests.protocol.discovery.golden_files import EventLine, NobodyKnown, meanings_of

OWN_ID = "federator-1-ctl"
PROTOCOL_NAME = {3: b"MQIsdp", 4: b"MQTT", 5: b"MQTT"}


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("!H", len(encoded)) + encoded


def packet(kind: int, body: bytes) -> bytes:
    length, encoded = len(body), b""
    while True:
        length, low = divmod(length, 128)
        encoded += bytes([low | (0x80 if length else 0)])
        if not length:
            return bytes([kind]) + encoded + body


class Client:
    """Speaks just enough MQTT to make log lines, byte by byte."""

    def __init__(
        self,
        port: int,
        id: str,
        *,
        protocol: int = 4,
        clean: bool = True,
        keep_alive_s: int = 60,
        expiry_s: int | None = None,
        user: str | None = None,
    ) -> None:
        self.protocol = protocol
        name = PROTOCOL_NAME[protocol]
        flags = (2 if clean else 0) | (0x80 if user is not None else 0)
        body = struct.pack("!H", len(name)) + name + bytes([protocol, flags])
        body += struct.pack("!H", keep_alive_s)
        if protocol == 5:
            properties = b"" if expiry_s is None else b"\x11" + struct.pack("!I", expiry_s)
            body += bytes([len(properties)]) + properties
        body += text(id)
        if user is not None:
            body += text(user)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.ask(packet(0x10, body))

    def ask(self, sent: bytes) -> bytes:
        """Send one packet and wait for some answer."""
        self.socket.sendall(sent)
        return self.socket.recv(65_536)

    def subscribe(self, filter: str, qos: int = 0) -> None:
        v5 = b"\0" if self.protocol == 5 else b""
        self.ask(packet(0x82, b"\0\1" + v5 + text(filter) + bytes([qos])))

    def unsubscribe(self, filter: str) -> None:
        v5 = b"\0" if self.protocol == 5 else b""
        self.ask(packet(0xA2, b"\0\2" + v5 + text(filter)))

    def publish(self, topic: str, count: int) -> None:
        for number in range(1, count + 1):
            v5 = b"\0" if self.protocol == 5 else b""
            body = text(topic) + struct.pack("!H", number) + v5 + b"x"
            self.ask(packet(0x32, body))

    def disconnect(self) -> None:
        self.socket.sendall(packet(0xE0, b""))
        self.until_closed()

    def until_closed(self) -> None:
        while self.socket.recv(65_536):
            pass
        self.socket.close()


class Watcher(Client):
    """Collects (topic, payload) of the log."""

    def __init__(self, port: int) -> None:
        super().__init__(port, OWN_ID, keep_alive_s=0)
        self.rest = b""
        self.lines: list[tuple[str, bytes]] = []
        filters = b"".join(text(topic) + b"\1" for topic in LOG_TOPICS)
        self.socket.settimeout(None)
        self.socket.sendall(packet(0x82, b"\0\1" + filters))
        threading.Thread(target=self.read, daemon=True).start()
        self.wait_for(" $SYS/broker/log/E")

    def wait_for(self, *words: str) -> None:
        """Wait for a line that contains all ``words``."""
        end = time.monotonic() + 20
        wanted = [word.encode() for word in words]
        while not any(all(word in line for word in wanted) for _, line in list(self.lines)):
            assert time.monotonic() < end, f"no line contains {words}"
            time.sleep(0.05)

    def read(self) -> None:
        """Acknowledge and keep what arrives, until the broker goes."""
        while received := self.socket.recv(65_536):
            self.rest += received
            self.take_packets()

    def take_packets(self) -> None:
        while True:
            length, shift, at = 0, 0, 1
            while at < len(self.rest):
                length |= (self.rest[at] & 0x7F) << shift
                shift, at = shift + 7, at + 1
                if not self.rest[at - 1] & 0x80:
                    break
            else:
                return
            if len(self.rest) < at + length:
                return
            kind, body = self.rest[0], self.rest[at : at + length]
            self.rest = self.rest[at + length :]
            if kind & 0xF0 == 0x30:
                (size,) = struct.unpack_from("!H", body)
                topic, rest = body[2 : 2 + size].decode(), body[2 + size :]
                if kind & 6:
                    self.socket.sendall(packet(0x40, rest[:2]))
                    rest = rest[2:]
                self.lines.append((topic, rest))


def play(port: int) -> list[tuple[str, bytes]]:
    """The scene."""
    watcher = Watcher(port)
    plain = Client(port, "plain")
    plain.subscribe("a/b", 1)
    plain.unsubscribe("a/b")
    plain.disconnect()
    old = Client(port, "from 2010", protocol=3, user="some user")
    old.subscribe("+/temperature", 2)
    old.socket.close()
    five = Client(port, "five", protocol=5, user="it's, u'quoted')")
    five.subscribe("rooms/living room/#")
    five.subscribe("$share/group one/f/+", 1)
    five.unsubscribe("never subscribed")
    five.disconnect()
    keeper = Client(port, "keeper one", clean=False)
    keeper.subscribe("k/+", 1)
    keeper.disconnect()
    keeper = Client(port, "keeper one", clean=False)
    Client(port, "keeper one").disconnect()
    Client(port, "brief", protocol=5, expiry_s=1).disconnect()
    for id in ("sp", "sp 0 ace"):
        client = Client(port, id)
        client.subscribe("ace 0 t/1" if id == "sp" else "t/1")
        client.unsubscribe("0 ace t/1" if id == "sp" else "t/1")
        client.disconnect()
    for id in (
        "x (p2, c1, k60).",
        "y (p2, c1, k60, u'z",
        "New client connected from 1.2.3.4:5 as victim (p2, c1, k60).",
        "victim disconnected. Client other",
        "victim [127.0.0.1:5] disconnected: protocol error",
        "1700000000: victim 0 t",
        "Ströme €",
    ):
        client = Client(port, id, user="u (p2, c0, k9)." if id[0] in "xy" else None)
        client.subscribe("t/2")
        client.disconnect()
    client = Client(port, "garbage", protocol=5)
    client.socket.sendall(packet(0x82, b"\0\1\0"))
    client.until_closed()
    silent = Client(port, "silent", keep_alive_s=1)
    long = Client(port, "long filters")
    for filter in ("deep/" + "é/" * 100 + "é" * 500, "x" * 1200):
        long.subscribe(filter)
        long.unsubscribe(filter)
    long.disconnect()
    client = Client(port, "i" * 1200)
    client.subscribe("t/3")
    client.disconnect()
    slow = Client(port, "slow one", clean=False)
    slow.subscribe("q", 1)
    slow.disconnect()
    Client(port, "talker").publish("q", 150)
    watcher.wait_for("dropped for client slow one.")
    watcher.wait_for("Expiring client brief due to timeout.")
    watcher.wait_for("Client silent ", "exceeded timeout")
    assert silent.socket.fileno() >= 0, "kept open until the broker gave it up"
    return watcher.lines


def main() -> None:
    """Command line."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--mosquitto", default="/usr/sbin/mosquitto")
    arguments.add_argument("--config", action="append", default=[])
    options = arguments.parse_args()
    version = subprocess.run(
        [options.mosquitto, "-h"], capture_output=True, text=True, check=False
    ).stdout.splitlines()[0]
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "mosquitto.conf")
        lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", *LOG_TOPIC_LINES]
        lines += ["max_queued_messages 100", *options.config]
        config.write_text("\n".join(lines) + "\n")
        with subprocess.Popen(
            [options.mosquitto, "-c", str(config)], stderr=subprocess.DEVNULL
        ) as broker:
            time.sleep(1)
            try:
                recorded = play(port)
            finally:
                broker.terminate()
    reader = LogReader(own_id=OWN_ID, known=NobodyKnown())
    reader.on_version(version)
    sys.stdout.write(
        f"# Captured from {version}; {' '.join(options.config) or 'default format'}.\n"
    )
    sys.stdout.write(f"# own id: {OWN_ID}\n# version: {version}\n")
    for topic, payload in recorded:
        event = reader.read(topic, payload)
        sys.stdout.write(str(EventLine(topic, payload, meanings_of(event))))


if __name__ == "__main__":
    main()
