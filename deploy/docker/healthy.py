"""Whether this container's own listener answers 200: ``healthy.py [PORT [PATH]]``.

A health check runs in every container every few seconds, so nothing large is imported for it.
"""

import socket
import sys

TIMEOUT_S = 4.0
STATUS_LINE_BYTES = 12
"""``HTTP/1.1 200``."""


def answers(host: str, port: int, path: str) -> bool:
    """Whether ``GET path`` is answered with 200."""
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as connection:
            connection.sendall(request.encode())
            line = b""
            while len(line) < STATUS_LINE_BYTES and (more := connection.recv(STATUS_LINE_BYTES)):
                line += more
    except OSError:
        return False
    return line[8:STATUS_LINE_BYTES] == b" 200"


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9883
    path = sys.argv[2] if len(sys.argv) > 2 else "/healthz"
    sys.exit(0 if answers("127.0.0.1", port, path) else 1)
