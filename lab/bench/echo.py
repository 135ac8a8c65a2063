"""The emptiest broker there is: one publisher's bytes, copied to one subscriber.

It answers CONNECT and SUBSCRIBE and then moves bytes without looking at them, so what the load
generator reaches through it is the generator's own limit on this machine.

QoS 0 only.
"""

import json
import socket
import sys
from typing import Final

COPY_BYTES_MAX: Final = 1 << 20
_CONNACK = b"\x20\x02\0\0"


def _handshake(listener: socket.socket, *, subscribes: bool) -> socket.socket:
    """Take one client; the generator's packets are short and come whole."""
    client, _ = listener.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.recv(1024)
    client.sendall(_CONNACK)
    if subscribes:
        client.recv(1024)
        client.sendall(b"\x90\x03\0\x01\0")
    return client


def main() -> None:
    """Print the port, take the subscriber, then the publisher, and copy until it leaves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(json.dumps({"port": listener.getsockname()[1]}) + "\n")
        sys.stdout.flush()
        subscriber = _handshake(listener, subscribes=True)
        publisher = _handshake(listener, subscribes=False)
    buffer = memoryview(bytearray(COPY_BYTES_MAX))
    while count := publisher.recv_into(buffer):
        subscriber.sendall(buffer[:count])


if __name__ == "__main__":
    main()
