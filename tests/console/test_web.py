"""The console's pages over HTTP: who is answered, and what is refused. No broker is needed."""

import asyncio
import contextlib
import http.client
import json

import pytest
import uvicorn

from federator.config.all_brokers.collector import CollectedBrokerSettings
from federator.config.all_brokers.console import ConsoleHttpSettings, ConsoleSettings
from federator.console.app import listening
from federator.console.observer import Observer
from federator.console.picture import LivePage
from federator.console.stream import Pulse
from federator.console.crowd import QUESTIONS_PER_S
from federator.console.guard import BODY_BYTES_MAX
from federator.console.web import Console

HOSTILE = '"><script>alert(1)</script>'


@contextlib.asynccontextmanager
async def served(**http_keys):
    """A console that was told of one broker; its port, its observer and its pulse."""
    broker = CollectedBrokerSettings(url="mqtt://127.0.0.1:1")
    settings = ConsoleSettings(brokers=(broker,), http=ConsoleHttpSettings(port=0, **http_keys))
    pulse = Pulse()
    async with asyncio.TaskGroup() as tasks:
        observer = Observer(settings, tasks, changed=pulse.give)
        observer.picture.on_connected(7, "mqtt://seven", now_ms=0)
        page = LivePage(ready=True, ready_reason=HOSTILE, epoch=1, name="seven")
        observer.picture.on_live(7, page, at_us=1, now_ms=0)
        with listening("127.0.0.1", 0) as listener:
            console = Console(settings, observer, pulse, lambda: (True, "ready"))
            config = uvicorn.Config(
                console.application(), log_config=None, lifespan="off", timeout_graceful_shutdown=3
            )
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield listener.getsockname()[1], observer, pulse
            finally:
                pulse.end()
                server.should_exit = True
                await serving


def said(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body=body, headers=headers or {})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer, text


async def status(port, method, path, body=None, **headers):
    answer, _ = await asyncio.to_thread(said, port, method, path, body, headers)
    return answer.status


def events(port):
    """A stream, and what it says first."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/live")
    answer = connection.getresponse()
    line = answer.readline() if answer.status == 200 else b""
    return connection, answer, line


async def test_it_gives_its_own_files_to_its_own_name_with_a_strict_policy():
    async with served() as (port, _, _):
        answer, page = await asyncio.to_thread(said, port, "GET", "/")
        traps = ["/assets/../web.py", "/assets/..%2fweb.py", "/assets/console.html", "/etc/passwd"]
        refused = [await status(port, "GET", trap) for trap in traps]
        foreign = [await status(port, "GET", "/live", Host=name) for name in ("evil.example", "a]")]

    assert answer.status == 200
    assert b"federator console" in page
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert refused == [404] * 4
    assert foreign == [421] * 2


async def test_a_stream_begins_with_everything_and_goes_on_with_what_changes():
    async with served() as (port, observer, pulse):
        connection, answer, line = await asyncio.to_thread(events, port)
        first = json.loads(line.removeprefix(b"data: "))
        observer.picture.on_gone(7, now_ms=5)
        pulse.give()
        await asyncio.to_thread(answer.readline)  # the empty line that ends the first
        more = await asyncio.to_thread(answer.readline)
        second = json.loads(more.removeprefix(b"data: "))
        connection.close()

    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert (first["whole"], first["brokers"][0]["name"]) == (True, "seven")
    assert (second["whole"], second["brokers"][0]["state"]) == (False, "down")


async def test_so_many_pages_are_kept_current_and_no_more():
    async with served(browsers_max=1) as (port, _, _):
        kept, answer, _ = await asyncio.to_thread(events, port)
        refused = await status(port, "GET", "/live")
        kept.close()

    assert (answer.status, refused) == (200, 503)


async def test_questions_are_bounded_and_have_to_be_ones():
    async with served() as (port, _, _):
        wrong = [
            await status(port, "GET", path)
            for path in (
                "/api/search", "/api/explain?topic=a/%23", f"/api/search?text={'x' * 2_000}",
                "/api/explain?topic=a&broker=x", "/api/mesh?filter=a%23", "/api/explain?topic=a",
            )
        ]  # fmt: skip
        many = [await status(port, "GET", "/api/mesh?filter=a") for _ in range(5 * QUESTIONS_PER_S)]

    assert wrong == [400, 400, 400, 400, 400, 502]
    assert 429 in many


@pytest.mark.parametrize(
    ("body", "wanted"), [("x" * (BODY_BYTES_MAX + 1), 413), ("[]", 400), ("{", 400), ("{}", 403)]
)
async def test_what_is_no_attempt_to_sign_in_is_refused(body, wanted):
    async with served() as (port, _, _):
        origin = f"http://127.0.0.1:{port}"

        assert await status(port, "POST", "/api/sign-in", body, Origin=origin) == wanted
        assert await status(port, "POST", "/api/sign-in", body, Origin="http://evil") == 403
        assert await status(port, "POST", "/api/sign-in", body) == 403
        assert await status(port, "GET", "/api/drain") == 405


async def test_a_forged_cookie_is_nobodys():
    async with served() as (port, _, _):
        origin = f"http://127.0.0.1:{port}"
        forged = "federator_console=eyJvcGVyYXRvciI6ICJhZGEifQ==.aSkAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAA"
        order = json.dumps({"broker": 7, "drain": True})

        assert await status(port, "POST", "/api/drain", order, Origin=origin, Cookie=forged) == 401
