"""The server's side of a WebSocket, written by hand from RFC 6455, to hold the library against."""

import base64
import hashlib
import re

BINARY, TEXT, CLOSE, PING, PONG = 2, 1, 8, 9, 10


def accept(request: bytes, *, subprotocol: str | None = "mqtt") -> bytes:
    """The answer that lets a client in."""
    found = re.search(rb"Sec-WebSocket-Key: (\S+)\r\n", request)
    assert found is not None
    proof = base64.b64encode(
        hashlib.sha1(found[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    )
    lines = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
    lines += [b"Sec-WebSocket-Accept: " + proof]
    lines += [b"Sec-WebSocket-Protocol: " + subprotocol.encode()] if subprotocol else []
    return b"\r\n".join([*lines, b"", b""])


def frame(payload: bytes, opcode: int = BINARY, *, fin: bool = True) -> bytes:
    """A frame of a server: without a mask."""
    return head(len(payload), opcode, fin=fin) + payload


def head(size: int, opcode: int = BINARY, *, fin: bool = True) -> bytes:
    """What a frame of ``size`` bytes begins with."""
    first = bytes([fin << 7 | opcode])
    if size < 126:
        return first + bytes([size])
    if size < 65_536:
        return first + b"\x7e" + size.to_bytes(2, "big")
    return first + b"\x7f" + size.to_bytes(8, "big")


def unframe(data: bytes) -> tuple[list[tuple[int, bytes, bytes]], bytes]:
    """Opcode, mask and payload of a client's whole frames, and what is left of ``data``."""
    found = []
    while len(data) >= 2:
        assert data[0] & 0x70 == 0
        assert data[0] & 0x80, "we send no fragments"
        assert data[1] & 0x80, "a client masks"
        size, at = data[1] & 0x7F, 2
        if size >= 126:
            at += 2 if size == 126 else 8
            size = int.from_bytes(data[2:at], "big")
        mask, end = data[at : at + 4], at + 4 + size
        if len(data) < end:
            break
        payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data[at + 4 : end]))
        found.append((data[0] & 0x0F, mask, payload))
        data = data[end:]
    return found, data
