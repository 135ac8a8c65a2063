"""A console asks the dashboard of analytics, which may be slow, another release, or none at all.

That the real one is understood is tested in tests/analytics/test_past.py.
"""

import asyncio
import contextlib
import http.server
import json
import re
import threading
import time

import pytest

from federator.console import dashboard as module
from federator.console.dashboard import ANSWER_BYTES_MAX, KEPT_MAX, WAITING_MAX, Dashboard
from federator.errors import LinkError
from tests.tcp_server import serving

SOUND = {"version": 1, "newest_ms": 5, "series": {"sent": [1.5, None]}, "step_ms": 10_000}


@contextlib.contextmanager
def answering(body, *, status=200, drip=0.0, headers=()):
    """Some HTTP server; its address, and the paths that were asked for."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                if not drip:
                    self.wfile.write(body)
                for at in range(0, len(body) if drip else 0):
                    self.wfile.write(body[at : at + 1])
                    time.sleep(drip)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_an_answer_is_checked_passed_on_and_remembered_for_a_moment():
    with answering(json.dumps(SOUND | {"later": "release"}).encode()) as (url, asked):
        dashboard = Dashboard(f"{url}/")
        told = await asyncio.gather(*(dashboard.past(broker="3", hours="1") for _ in range(5)))

    assert asked == ["/history?broker=3&hours=1"]
    assert told[0]["series"] == {"sent": (1.5, None)}
    assert "later" not in told[0]


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"<html>", 200, "malformed"),
        (json.dumps(SOUND | {"version": 2}).encode(), 200, "version 2, 1 wanted"),
        (json.dumps(SOUND | {"series": {"sent": ["<b>"]}}).encode(), 200, "Expected"),
        (b"no such page", 404, "older release"),
        (b"down", 500, "answers 500: down"),
        (b" " * (ANSWER_BYTES_MAX + 1), 200, f"at most {ANSWER_BYTES_MAX} bytes"),
    ],
)
async def test_what_is_no_answer_is_said_in_one_line(body, status, why):
    with answering(body, status=status) as (url, _):
        dashboard = Dashboard(url)
        with pytest.raises(LinkError, match=why):
            await dashboard.past(broker="3", hours="1")

    assert (dashboard.asked, dashboard.failed) == (1, 1)


async def test_it_goes_nowhere_else():
    with answering(json.dumps(SOUND).encode()) as (elsewhere, visited):
        away = [("Location", f"{elsewhere}/history")]
        with (
            answering(b"", status=302, headers=away) as (url, _),
            pytest.raises(LinkError, match="answers 302"),
        ):
            await Dashboard(url).past(broker="3", hours="1")

    assert visited == []


async def test_an_address_that_nobody_can_ask_for_is_said_in_one_line():
    with answering(json.dumps(SOUND).encode()) as (url, asked):
        for path in ("\x01", "\u00e9"):
            with pytest.raises(LinkError, match=r"^the dashboard at [^\n]+$"):
                await Dashboard(f"{url}/{path}").past(broker="3", hours="1")

    assert asked == []


async def test_without_one_it_says_so_and_nobody_there_is_said_too():
    with pytest.raises(LinkError, match="no dashboard is known"):
        await Dashboard("").past(broker="3", hours="1")
    for url, why in (
        ("http://127.0.0.1:1", "connection refused: is the dashboard running"),
        ("http://no.such.host.invalid", "cannot resolve 'no.such.host.invalid'"),
        ("http://127.0.0.1:123456", "Port out of range"),
        ("http://[a", "Invalid IPv6 URL"),
    ):
        with pytest.raises(LinkError, match=f"^the dashboard at {re.escape(url)}: {why}"):
            await Dashboard(url).past(broker="3", hours="1")


async def test_a_slow_one_is_not_waited_for_and_no_queue_grows_before_it(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    with answering(b" " * 1_000, drip=0.02) as (url, asked):
        dashboard = Dashboard(url)
        began_s = time.monotonic()
        questions = [dashboard.past(broker=str(n), hours="1") for n in range(WAITING_MAX + 5)]
        first = asyncio.create_task(dashboard.past(broker="first", hours="1"))
        await asyncio.sleep(0)
        rest = [asyncio.create_task(each) for each in questions]
        with pytest.raises(LinkError, match="not answered within"):
            await first
        taken_s = time.monotonic() - began_s
        told = await asyncio.gather(*rest, return_exceptions=True)

    assert taken_s < 5
    assert sum("too many ask" in str(each) for each in told) == 6
    assert len(asked) == WAITING_MAX


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 2\r\n\r\n", b"\0" * 70_000]
)
async def test_who_hangs_up_or_speaks_no_http_is_said_in_one_line(said):
    async def hang_up(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)

    async with serving(hang_up) as port:
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(LinkError, match=f"the dashboard at {url}: [^\n]+$"):
            await Dashboard(url).past(broker="3", hours="1")


async def test_a_head_that_drips_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_S", 0.2)

    async def drip(_, writer):
        for byte in b"HTTP/1.1 200 OK\r\n" + b"a" * 1_000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(drip) as port:
        with pytest.raises(LinkError, match="not answered within"):
            await Dashboard(f"http://127.0.0.1:{port}").past(broker="3", hours="1")


async def test_so_many_answers_are_remembered_and_no_more():
    with answering(json.dumps(SOUND).encode()) as (url, _):
        dashboard = Dashboard(url)
        for n in range(KEPT_MAX + 10):
            await dashboard.past(topic=f"a/{n}", hours="1")

    assert len(dashboard._kept) == KEPT_MAX
