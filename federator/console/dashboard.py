"""Asks the analytics dashboard what its tables hold of the last hours.

This question and its answer are the only interface between the console and analytics, so no Java
and no Spark is here. One question is sent at a time. Its answer is kept for a moment for all
viewers, and checked before it is shown: a dashboard may be of another release.

Source: docs/analytics.md, "The dashboard".
"""

import asyncio
import ssl
from typing import Annotated, Any, Final
from urllib.parse import urlencode, urlsplit

import h11
import msgspec

from federator.errors import DecodeError, LinkError
from federator.protocol.bounded_cache import Lately
from federator.protocol.messages.fields import decoded
from federator.protocol.types import Millis
from federator.runtime.mqtt.failures import explain
from federator.runtime.process.clocks import monotonic_ms

ANSWER_S: Final = 30.0
"""The first answer reads every table, and the dashboard may be busy: a page can wait."""
ANSWER_BYTES_MAX: Final = 1_048_576
KEPT_MS: Final = Millis(5_000)
KEPT_MAX: Final = 64
"""Answers are small: the structs below limit them."""
WAITING_MAX: Final = 16
"""Questions that wait for the one being answered."""
CHUNK_BYTES: Final = 65_536

_Text = Annotated[str, msgspec.Meta(max_length=65_535)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Points = Annotated[tuple[float | None, ...], msgspec.Meta(max_length=1_000)]


class PastEvent(msgspec.Struct, frozen=True):
    """What an agent reported about itself."""

    at_ms: int
    broker: _Count
    text: _Text
    routine: bool = False


class PastFlow(msgspec.Struct, frozen=True):
    """What was forwarded for a filter from one broker to another."""

    filter: _Text
    origin: _Count
    destination: _Count
    publications: _Count
    rate_per_s: float | None = None
    missing: int = 0


class Past(msgspec.Struct, frozen=True):
    """What the tables hold about a broker, or a topic."""

    version: int
    newest_ms: int | None = None
    step_ms: _Count = 0
    series: Annotated[dict[str, _Points], msgspec.Meta(max_length=16)] = {}
    events: Annotated[tuple[PastEvent, ...], msgspec.Meta(max_length=1_000)] = ()
    flows: Annotated[tuple[PastFlow, ...], msgspec.Meta(max_length=1_000)] = ()
    flows_total: _Count = 0
    facts: Annotated[dict[str, float | None], msgspec.Meta(max_length=32)] = {}
    cut: bool = False
    trouble: _Text = ""


PAST_VERSION: Final = 1
_decoder: Final = msgspec.json.Decoder(Past)


class Dashboard:
    """Asks one dashboard.

    Args:
        url: Its address, ``http://HOST:PORT``, as we reach it; empty if there is none.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked = self.failed = 0
        self._one = asyncio.Lock()
        self._waiting = 0
        self._kept: Lately[str, dict[str, Any]] = Lately(KEPT_MAX, kept_ms=KEPT_MS)

    async def past(self, **about: str) -> dict[str, Any]:
        """What the tables hold ``about`` a broker or a topic, and its age.

        Raises:
            LinkError: There is no dashboard, it does not answer, or its answer is malformed.
        """
        if not self.url:
            raise LinkError("no dashboard is known here: see history in docs/console.md")
        query = urlencode(sorted(about.items()))
        if (kept := self._kept.get(query, monotonic_ms())) is not None:
            return kept
        if self._waiting >= WAITING_MAX:
            raise LinkError("too many ask the dashboard: try again")
        self._waiting += 1
        try:
            async with self._one:
                kept = self._kept.get(query, monotonic_ms())
                return await self._query(query) if kept is None else kept
        finally:
            self._waiting -= 1

    async def _query(self, query: str) -> dict[str, Any]:
        self.asked += 1
        try:
            async with asyncio.timeout(ANSWER_S):
                body = await _get(self.url, query)
            past = decoded(_decoder, "answer", body, ANSWER_BYTES_MAX)
            if past.version != PAST_VERSION:
                raise ValueError(f"version {past.version}, {PAST_VERSION} wanted")
        except (OSError, h11.ProtocolError, ValueError, DecodeError) as error:
            self.failed += 1
            raise LinkError(f"the dashboard at {self.url}: {_reason(error, self.url)}") from None
        answer: dict[str, Any] = msgspec.to_builtins(past)
        self._kept.put(query, answer, monotonic_ms())
        return answer


def _reason(error: Exception, url: str) -> str:
    match error:
        case TimeoutError():
            return f"not answered within {ANSWER_S:.0f} s"
        case OSError():
            return explain(error, host=urlsplit(url).hostname or url, peer="dashboard")
        case _:
            return " ".join(str(error).split())[:200] or type(error).__name__


async def _get(url: str, query: str) -> bytes:
    """The body of its page ``/history``, within our size limit.

    Redirections are not followed, so no other address is asked.
    """
    parts = urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or (443 if tls else 80), ssl=tls
    )
    try:
        ours = h11.Connection(h11.CLIENT)
        target = f"{parts.path.rstrip('/')}/history?{query}"
        headers = [("Host", parts.netloc), ("Connection", "close")]
        question = h11.Request(method="GET", target=target, headers=headers)
        for event in (question, h11.EndOfMessage()):
            writer.write(ours.send(event) or b"")
        return await _body(ours, reader)
    finally:
        writer.transport.abort()


async def _body(ours: h11.Connection, reader: asyncio.StreamReader) -> bytes:
    status, body = 0, b""
    while not isinstance(event := ours.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            ours.receive_data(await reader.read(CHUNK_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > ANSWER_BYTES_MAX:
                raise ValueError(f"at most {ANSWER_BYTES_MAX} bytes wanted")
    if status == 404:
        raise ValueError("answers 404: it is of an older release, or not a dashboard")
    if status != 200:
        raise ValueError(f"answers {status}: {body[:100].decode(errors='replace')}")
    return body
