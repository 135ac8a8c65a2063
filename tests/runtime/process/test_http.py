"""The pages, and what a hostile or slow client can do to them: nothing that lasts."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Iterable, Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from federator.errors import ConfigError
from federator.runtime.observability.metrics import AGENT, LINK
from federator.runtime.process.exposition import Family, families
from federator.runtime.process.http import (
    CONNECTIONS_MAX,
    PER_ADDRESS_MAX,
    REQUEST_BYTES_MAX,
    HttpServer,
)
from tests.real.polling import until

REQUEST_SECONDS_MAX = 1.0
TEST_SECONDS_MAX = 60.0


class Told:
    """Answers as a test sets them."""

    def __init__(self) -> None:
        self.why_not = ""
        self.frames = 0

    def ready(self) -> tuple[bool, str]:
        return not self.why_not, self.why_not or "ready"

    def status(self) -> Mapping[str, object]:
        return {"id": 1, "name": "é", "links": ()}

    def explain(self, topic: str) -> Mapping[str, object]:
        if topic == "bug":
            raise RuntimeError("a mistake of ours")
        return {"topic": topic}

    def routes(self) -> Iterable[Mapping[str, object]]:
        return iter([{"filter": "a/#"}])

    def metrics(self) -> Iterable[Family]:
        data = {"frames_in": self.frames}
        traffic = [{"neighbour": 2, "up": 1, "bytes_in": 7}]
        record = {"ready": True, "counters": {"data": data}, "traffic": traffic}
        return families((*AGENT, *LINK), record)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def server(told: Told) -> AsyncIterator[HttpServer]:
    async with HttpServer(
        told, "127.0.0.1", 0, request_seconds_max=REQUEST_SECONDS_MAX
    ) as listening:
        yield listening


async def send(server: HttpServer, data: bytes, *, finish: bool = True) -> bytes:
    """All that comes back before the server closes the connection."""
    async with asyncio.timeout(TEST_SECONDS_MAX):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            writer.write(data)
            if finish:
                writer.write_eof()
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


async def page(
    server: HttpServer, target: str, method: str = "GET", host: str = "x"
) -> tuple[int, str]:
    """Status code and body."""
    answer = await send(server, f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    if method == "GET":
        assert f"Content-Length: {len(body)}".encode() in head
    return int(head.split()[1]), body.decode()


async def test_the_agent_is_alive_before_it_is_ready(server, told):
    told.why_not = "broker mqtt://h: connection refused"

    assert await page(server, "/healthz") == (200, "alive\n")
    assert await page(server, "/readyz") == (503, "broker mqtt://h: connection refused\n")
    told.why_not = ""
    assert await page(server, "/readyz") == (200, "ready\n")


async def test_status_routes_and_explanations_are_json(server):
    status = await page(server, "/status")
    routes = await page(server, "/routes")
    explained = await page(server, "/explain?topic=a%2Fb%20%C3%A9")

    assert json.loads(status[1]) == {"id": 1, "name": "é", "links": []}
    assert json.loads(routes[1]) == [{"filter": "a/#"}]
    assert json.loads(explained[1]) == {"topic": "a/b é"}


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "10.0.0.7:9883",
        "[::1]:9883",
        "localhost:9883",
        "agent-0",
        "Gw.Example.org:1",
        "",
    ],
)
async def test_we_answer_to_names_that_no_stranger_can_own_and_to_listed_ones(host, told):
    async with HttpServer(told, "127.0.0.1", 0, names=["gw.example.org"]) as server:
        assert (await page(server, "/healthz", host=host))[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9883", "127.0.0.1.evil.example", "x\r\nHost: y", "[::1"]
)
async def test_a_page_that_a_stranger_owns_reads_nothing_here(host, server):
    status, body = await page(server, "/status", host=host)

    assert status in (400, 421)
    assert "links" not in body


async def test_metrics_are_read_at_each_scrape_and_parse(server, told):
    told.frames = 3
    first = await page(server, "/metrics")
    told.frames = 4
    second = await page(server, "/metrics")

    def read(text: str) -> dict[str, float]:
        return {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    assert read(first[1])["federator_frames_received_total"] == 3
    assert read(second[1])["federator_frames_received_total"] == 4
    assert 'federator_link_received_bytes_total{neighbour="2"} 7.0' in second[1]


async def test_head_answers_without_a_body(server):
    assert await page(server, "/healthz", "HEAD") == (200, "")


HEAD = "HTTP/1.1\r\nHost: x\r\n\r\n"
MANY = "&".join(f"q{number}" for number in range(9))


@pytest.mark.parametrize(
    ("code", "requests"),
    [
        (405, [f"{verb} /status {HEAD}" for verb in ("POST", "PUT", "DELETE", "OPTIONS", "BREW")]),
        (404, [f"GET {at} {HEAD}" for at in ("/nothing", "/status/x", "/../etc/passwd")]),
        (404, [f"GET /%2e%2e/x {HEAD}"]),
        (400, [f"GET /explain{query} {HEAD}" for query in ("", "?topic=", "?x=1")]),
        (400, [f"GET /explain?topic={topic} {HEAD}" for topic in ("a/%23", "%2B", "%00")]),
        (400, [f"GET /explain?topic=a&topic=b {HEAD}", f"GET /explain?topic=%00&{MANY} {HEAD}"]),
        (400, ["", "\r\n\r\n", "GET\r\n\r\n", "GET /status\r\n\r\n", "\0\xff\x16\x03\x01"]),
        (400, ["GET /status FTP/1.1\r\n\r\n", f"GET http://x/status {HEAD}", f"GET //[ {HEAD}"]),
        (400, [f"GET /é {HEAD}", "GET /status HTTP/1.1\r\nHost: x"]),
    ],
)
async def test_what_is_no_question_is_answered_and_the_next_one_works(code, requests, server):
    for request in requests:
        answer = await send(server, request.encode("latin-1"))

        assert answer.startswith(b"HTTP/1.1 %d " % code), request
    assert await page(server, "/healthz") == (200, "alive\n")


async def test_an_endless_header_is_cut_off(server):
    flood = b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * REQUEST_BYTES_MAX

    answer = await send(server, flood)

    # The rest of the flood may reset the connection before the answer is read.
    assert answer[:12] in (b"HTTP/1.1 431", b"")
    assert await page(server, "/healthz") == (200, "alive\n")


async def test_a_slow_request_ends_when_its_time_is_over(server):
    begun_s = time.monotonic()

    answer = await send(server, b"GET /status HT", finish=False)

    assert answer == b""
    assert time.monotonic() - begun_s >= 0.9 * REQUEST_SECONDS_MAX  # uvloop rounds its timers


async def crowd(server: HttpServer, host: str, begun: bytes, size: int) -> list[socket.socket]:
    """Connections from ``host`` that say no more than ``begun`` and read nothing."""
    made = []
    for _ in range(size):
        stranger = socket.socket()
        stranger.setblocking(False)
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stranger.bind((host, 0))
        await asyncio.get_running_loop().sock_connect(stranger, ("127.0.0.1", server.port))
        stranger.send(begun)
        made.append(stranger)
    return made


@pytest.mark.parametrize("begun", [b"", b"GET /status HT", b"GET /big HTTP/1.1\r\n\r\n"])
async def test_who_is_silent_gives_way_to_who_asks(begun, told):
    told.status = lambda: {"big": "x" * 3_000_000}
    begun = begun.replace(b"/big", b"/status")
    strangers = []
    async with HttpServer(told, "127.0.0.1", 0, request_seconds_max=600) as server:
        for number in range(2, 3 + CONNECTIONS_MAX // PER_ADDRESS_MAX):
            strangers += await crowd(server, f"127.0.0.{number}", begun, PER_ADDRESS_MAX)
            assert await page(server, "/healthz") == (200, "alive\n")

        assert await page(server, "/readyz") == (200, "ready\n")
        assert server.gave_way >= len(strangers) - CONNECTIONS_MAX
    for each in strangers:
        each.close()


async def test_an_address_crowds_out_itself_alone(told):
    async with HttpServer(told, "127.0.0.1", 0, request_seconds_max=600) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        strangers = await crowd(server, "127.0.0.2", b"", 2 * CONNECTIONS_MAX)
        await until(lambda: server.gave_way == 2 * CONNECTIONS_MAX - PER_ADDRESS_MAX, "they came")
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")

        assert b"alive" in await reader.read()
        writer.close()
    for each in strangers:
        each.close()


async def test_a_mistake_of_ours_costs_one_page(server):
    assert await page(server, "/explain?topic=bug") == (500, "see the agent's log\n")
    assert (await page(server, "/status"))[0] == 200


async def test_a_taken_port_is_69_and_names_the_key(server, told):
    with pytest.raises(ConfigError, match=f"http.port = {server.port}.*in use.*choose") as raised:
        async with HttpServer(told, "127.0.0.1", server.port):
            pass

    assert raised.value.exit_code == 69


async def test_leaving_cuts_what_is_still_open(told):
    async with asyncio.timeout(TEST_SECONDS_MAX):
        async with HttpServer(told, "127.0.0.1", 0, request_seconds_max=600) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            assert await page(server, "/healthz") == (200, "alive\n")

        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()
