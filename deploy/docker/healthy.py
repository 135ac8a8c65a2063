"""Whether this container's own listener answers 200: ``healthy.py [PORT [PATH]]``.

``healthy.py FOLDER SECONDS`` for one that does not listen: whether it changed the folder lately.

A health check runs in every container every few seconds, so nothing large is imported for it.
"""

import os
import socket
import sys
import time

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


def changed(folder: str, within_s: float) -> bool:
    """Whether something was put into ``folder``, or replaced there, in the last ``within_s``."""
    return time.time() - os.stat(folder).st_mtime <= within_s


def main(words: list[str]) -> bool:
    """What is asked, answered."""
    if words and words[0].startswith("/"):
        return changed(words[0], float(words[1]))
    port = int(words[0]) if words else 9883
    return answers("127.0.0.1", port, words[1] if len(words) > 1 else "/healthz")


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
