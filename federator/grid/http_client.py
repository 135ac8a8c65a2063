"""Asking a child's loopback listener: one GET, one answer."""

import asyncio
import json
from typing import Any, Final

from federator.errors import LinkError

HTTP_TIMEOUT_S: Final = 15.0


async def get(port: int, path: str, *, who: str) -> tuple[int, bytes]:
    """Status code and body of a page.

    Raises:
        LinkError: No answer in time, or none of HTTP.
        OSError: Nobody listens.
    """
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(HTTP_TIMEOUT_S):
            answer = await _exchange(port, request.encode())
            # A child that stood still until the request's time was over hangs up without a word.
            answer = answer or await _exchange(port, request.encode())
    except TimeoutError as error:
        raise LinkError(f"{who}: {path} took too long") from error
    head, separator, body = answer.partition(b"\r\n\r\n")
    fields = head.split(b" ", 2)
    if not separator or len(fields) < 2:
        raise LinkError(f"{who}: {path} answered {answer[:80]!r}")
    return int(fields[1]), body


async def _exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read(-1)
    finally:
        writer.close()


async def get_json(port: int, path: str, *, who: str) -> Any:  # noqa: ANN401 - a document
    """The document of a page.

    Raises:
        LinkError: It did not answer as it should.
    """
    try:
        code, body = await get(port, path, who=who)
    except OSError as error:
        raise LinkError(f"{who}: {error}") from error
    if code != 200:
        raise LinkError(f"{who}: {path} answered {code}")
    return json.loads(body)
