"""The console's pages over HTTP: who is answered, and what is refused. No broker is needed."""

import asyncio
import contextlib
import http.client
import json
import socket
import time

import pytest
import uvicorn

from federator.config.all_brokers.collector import CollectedBrokerSettings
from federator.config.all_brokers.console import (
    ConsoleHttpSettings,
    ConsoleSettings,
    OperatorsSettings,
)
from federator.console import guard, listener, web
from federator.console.crowd import QUESTIONS_PER_S
from federator.console.guard import BODY_BYTES_MAX
from federator.console.listener import PagesConfig, listening
from federator.console.observer import Observer
from federator.console.operators import hashed
from federator.console.stream import Pulse
from federator.console.web import Console
from federator.protocol.telemetry.agent_status import LivePage
from tests.tcp_server import serving

HOSTILE = '"><script>alert(1)</script>'


@contextlib.asynccontextmanager
async def served(*, history="", operators=OperatorsSettings(), **http_keys):  # noqa: B008
    """A console that was told of one broker; its port, its observer and its pulse."""
    broker = CollectedBrokerSettings(url="mqtt://127.0.0.1:1")
    http = ConsoleHttpSettings(port=0, **http_keys)
    settings = ConsoleSettings(brokers=(broker,), history=history, http=http, operators=operators)
    pulse = Pulse()
    async with asyncio.TaskGroup() as tasks:
        observer = Observer(settings, tasks, changed=pulse.give)
        observer.picture.on_connected(7, "mqtt://seven", now_ms=0)
        page = LivePage(ready=True, ready_reason=HOSTILE, epoch=1, name="seven")
        observer.picture.on_live(7, page, at_us=1, now_ms=0)
        with listening("127.0.0.1", 0) as listener:
            console = Console(settings, observer, pulse, lambda: (True, "ready"))
            server = uvicorn.Server(PagesConfig(console.application()))
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


def metric(port, name):
    """What the page for Prometheus says of ``name``."""
    answer, text = said(port, "GET", "/metrics")
    assert answer.status == 200
    found = [line for line in text.decode().splitlines() if line.startswith(f"{name} ")]
    return float(found[0].split()[1]) if found else None


async def until(true, patience_s=20):
    end_s = time.monotonic() + patience_s
    while not await asyncio.to_thread(true):
        assert time.monotonic() < end_s, "never so"
        await asyncio.sleep(0.05)


async def test_pages_that_come_in_one_moment_are_counted_too():
    async with served(browsers_max=8) as (port, _, _):
        crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        for _, writer in crowd:
            writer.write(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        heads = [await reader.readline() for reader, _ in crowd]
        for _, writer in crowd:
            writer.close()
        await until(lambda: metric(port, "federator_console_viewers") == 0)
        again = await asyncio.to_thread(events, port)
        again[0].close()

    assert sum(b"200" in head for head in heads) == 4  # half of the places: they are of one address
    assert sum(b"503" in head for head in heads) == 36
    assert again[1].status == 200


async def test_a_crowd_of_pages_costs_one_text(monkeypatch):
    made = []
    dumps = json.dumps
    async with served(browsers_max=64) as (port, observer, pulse):
        crowd = [await asyncio.to_thread(events, port) for _ in range(30)]
        for _, answer, _ in crowd:
            await asyncio.to_thread(answer.readline)
        await asyncio.sleep(1)
        monkeypatch.setattr(web.json, "dumps", lambda *a, **k: made.append(1) or dumps(*a, **k))
        observer.picture.on_gone(7, now_ms=5)
        pulse.give()
        for connection, answer, _ in crowd:
            line = await asyncio.to_thread(answer.readline)
            while b"down" not in line:  # of those that began a beat ago
                line = await asyncio.to_thread(answer.readline)
            connection.close()

    assert 1 <= len(made) <= 6, "not one for each of them; a beat or two may fall in between"


async def test_who_does_not_read_is_let_go_and_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(listener, "PATIENCE_S", 0.5)
    async with served(browsers_max=8) as (port, observer, pulse):
        text = "x" * 1_000_000
        monkeypatch.setattr(observer.picture, "since", lambda *_: {"ballast": text})
        deaf = socket.create_connection(("127.0.0.1", port))
        deaf.sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await until(lambda: metric(port, "federator_console_viewers") == 1)
        slowest_s = 0.0
        for n in range(200):
            if await asyncio.to_thread(metric, port, "federator_console_viewers") == 0:
                break
            observer.events.add("plain", f"{n}", [], at_ms=n)
            pulse.give()
            began_s = time.monotonic()
            assert await status(port, "GET", "/healthz") == 200
            slowest_s = max(slowest_s, time.monotonic() - began_s)
            await asyncio.sleep(0.05)
        else:
            pytest.fail("it is still kept current")
        deaf.close()

    assert slowest_s < 2


async def test_a_request_that_never_comes_does_not_keep_a_connection(monkeypatch):
    monkeypatch.setattr(listener, "PATIENCE_S", 2)
    monkeypatch.setattr(guard, "BODY_S", 0.2)
    async with served() as (port, _, _):
        for begun in (b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET / HT"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begun)
            async with asyncio.timeout(20):
                with contextlib.suppress(ConnectionResetError):
                    while await reader.read(65_536):
                        pass
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        home = f"127.0.0.1:{port}"
        head = f"POST /api/sign-in HTTP/1.1\r\nHost: {home}\r\nOrigin: http://{home}\r\n"
        writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        answer = await reader.readline()
        writer.close()
        kept, _, line = await asyncio.to_thread(events, port)  # an answer may take its time
        await asyncio.sleep(3)
        alive = await asyncio.to_thread(metric, port, "federator_console_viewers")
        kept.close()

    assert b"408" in answer
    assert line
    assert alive == 1


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HT",
        b"POST /api/sign-out HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
        b"GET /assets/cytoscape.min.js HTTP/1.1\r\nHost: a\r\n\r\n" * 20,
    ],
    ids=["silent", "half", "no body", "deaf"],
)
async def test_who_is_awaited_gives_way_and_who_waits_does_not(monkeypatch, begun):
    monkeypatch.setattr(listener, "PATIENCE_S", 600)
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 32)
    monkeypatch.setattr(listener, "AWAITED_MAX", 16)
    monkeypatch.setattr(listener, "PER_ADDRESS_MAX", 8)
    strangers = []
    async with served() as (port, _, _):
        kept, _, line = await asyncio.to_thread(events, port)
        for number in range(2, 8):
            for _ in range(10):
                stranger = socket.socket()
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                stranger.bind((f"127.0.0.{number}", 0))
                stranger.connect(("127.0.0.1", port))
                stranger.sendall(begun)
                strangers.append(stranger)
            answered = [await status(port, "GET", page) for page in ("/healthz", "/", "/readyz")]
            assert answered == [200] * 3
        viewers = await asyncio.to_thread(metric, port, "federator_console_viewers")
        for each in strangers:
            each.close()
        kept.close()

    assert line
    assert viewers == 1


async def test_it_stops_though_the_dashboard_lets_it_wait(monkeypatch, caplog):
    monkeypatch.setattr(listener, "STOP_S", 1)
    came = asyncio.Event()

    async def say_nothing(reader, writer):
        came.set()
        await reader.read()  # until nobody waits any more

    async with serving(say_nothing) as silent:
        async with served(history=f"http://127.0.0.1:{silent}") as (port, _, _):
            path = "/api/past?broker=7&span=3600"
            asked = asyncio.create_task(asyncio.to_thread(said, port, "GET", path))
            await came.wait()
            began_s = time.monotonic()
        answer, text = await asked

    assert (answer.status, text) == (503, b"the console stops\n")
    assert time.monotonic() - began_s < 10
    assert "Traceback" not in caplog.text


async def test_its_own_metrics_say_what_it_knows_and_who_asks():
    async with served(browsers_max=1) as (port, observer, _):
        kept, *_ = await asyncio.to_thread(events, port)
        await status(port, "GET", "/live")
        await status(port, "GET", "/api/explain?topic=a")
        observer.picture.on_gone(7, now_ms=5)
        names = ("brokers", "brokers_down", "viewers", "viewers_refused_total", "questions_total")
        told = [await asyncio.to_thread(metric, port, f"federator_console_{n}") for n in names]
        age_s = await asyncio.to_thread(metric, port, "federator_console_snapshot_age_seconds")
        answer, text = await asyncio.to_thread(said, port, "GET", "/metrics")
        kept.close()

    assert told == [1, 1, 1, 1, 1]
    assert age_s > 0
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert b"process_cpu_seconds_total" in text
    assert b"federator_build_info{" in text


async def test_without_a_dashboard_there_is_no_past_and_wrong_ranges_are_refused():
    async with served() as (port, _, _):
        wrong = [
            await status(port, "GET", f"/api/{path}")
            for path in ("past?span=3600", "past?broker=7&span=1", "clients?broker=x")
        ]
        without = await asyncio.to_thread(said, port, "GET", "/api/past?broker=7&span=3600")

    assert wrong == [400] * 3
    assert without[0].status == 502
    assert b"no dashboard is known" in without[1]


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
    ("body", "wanted"),
    [
        ("x" * (BODY_BYTES_MAX + 1), 413),
        ("[]", 400),
        ("{", 400),
        ("[" * 4_000, 400),
        ('{"a":' * 800, 400),
        ("{}", 403),
    ],
)
async def test_what_is_no_attempt_to_sign_in_is_refused(body, wanted):
    async with served() as (port, _, _):
        origin = f"http://127.0.0.1:{port}"

        assert await status(port, "POST", "/api/sign-in", body, Origin=origin) == wanted
        assert await status(port, "POST", "/api/sign-in", body, Origin="http://evil") == 403
        assert await status(port, "POST", "/api/sign-in", body) == 403
        assert await status(port, "GET", "/api/drain") == 405


async def test_signing_out_ends_the_session_and_strangers_keep_no_known_browser_out(tmp_path):
    password = "correct horse battery"
    (tmp_path / "operators").write_text(f"ada:{hashed(password)}\n")
    async with served(operators=OperatorsSettings(file=tmp_path / "operators")) as (port, _, _):
        origin = {"Origin": f"http://127.0.0.1:{port}"}

        async def ask(path, body, **headers):
            body = json.dumps(body)
            return await asyncio.to_thread(said, port, "POST", path, body, {**origin, **headers})

        who = {"name": "ada", "password": password}
        answer, text = await ask("/api/sign-in", who)
        badge, session = sorted(
            (each.partition(";")[0] for each in answer.headers.get_all("Set-Cookie")),
            key=lambda each: each.startswith("federator_console="),
        )
        signed_in = {"Cookie": session, "X-Console-Token": json.loads(text)["token"]}
        order = {"broker": 7, "drain": "perhaps"}
        before, _ = await ask("/api/drain", order, **signed_in)
        await ask("/api/sign-out", {}, **signed_in)
        after, _ = await ask("/api/drain", order, **signed_in)

        wrong = {"name": "ada", "password": "open sesame, please"}
        for number in range(12):
            await ask("/api/sign-in", wrong, **{"X-Forwarded-For": f"10.0.0.{number}"})
        unknown, _ = await ask("/api/sign-in", who)
        known, _ = await ask("/api/sign-in", who, Cookie=badge)

    assert answer.status == 200
    assert (before.status, after.status) == (400, 401)
    assert (unknown.status, known.status) == (429, 200)


async def test_who_is_no_known_proxy_invents_no_addresses(tmp_path):
    (tmp_path / "operators").write_text(f"ada:{hashed('correct horse battery')}\n")
    async with served(operators=OperatorsSettings(file=tmp_path / "operators")) as (port, _, _):
        origin = {"Origin": f"http://127.0.0.1:{port}"}
        body = json.dumps({"name": "ada", "password": "open sesame, please"})
        tried = [
            (await asyncio.to_thread(said, port, "POST", "/api/sign-in", body, headers))[0].status
            for headers in (origin | {"X-Forwarded-For": f"10.0.0.{n}"} for n in range(6))
        ]

    assert tried == [403] * 5 + [429]


async def test_a_forged_cookie_is_nobodys():
    async with served() as (port, _, _):
        origin = f"http://127.0.0.1:{port}"
        forged = "federator_console=eyJvcGVyYXRvciI6ICJhZGEifQ==.aSkAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAA"
        order = json.dumps({"broker": 7, "drain": True})

        assert await status(port, "POST", "/api/drain", order, Origin=origin, Cookie=forged) == 401
