"""What verbs say of whatever answers at the agent's port."""

import asyncio
import json

import pytest

from federator.cli.agent_pages import get
from federator.cli.maintain.drain import order
from federator.errors import ConfigError, LinkError
from tests.tcp_server import serving

HTML = b"<html>\n<body><h1>It works!</h1></body></html>"


@pytest.mark.parametrize(
    ("status", "kind", "body", "wanted"),
    [
        (503, "text/plain", b"the agent\nstops\n", "/status: 503: the agent stops"),
        (404, "text/html", HTML, "/status: 404: not an answer of an agent: another program"),
        (404, "text/plain", b"\x1b[2J", "/status: 404: not an answer of an agent: another program"),
        (200, "text/html", HTML, "/status: not an answer of an agent: check the URL"),
        (200, "application/json", b"[" * 100_000, "/status: not an answer of an agent"),
        (200, "application/json", b'{"a":' * 100_000, "/status: not an answer of an agent"),
    ],
)
async def test_who_is_no_agent_is_told_in_one_line(status, kind, body, wanted):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    async with serving(answer) as port:
        with pytest.raises(LinkError) as raised:
            await asyncio.to_thread(get, f"http://127.0.0.1:{port}", "/status")

    assert wanted in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "<" not in str(raised.value)


async def test_a_broker_that_nobody_knows_is_not_drained_and_those_that_are_known_are_named(
    tmp_path,
):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps({"brokers": [{"broker": 1}, {"broker": 7}]})
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()

    config = tmp_path / "f.toml"
    config.write_text('security = "open"\n[broker]\nid = 1\nurl = "mqtt://127.0.0.1:1"\n')
    async with serving(answer) as port:
        how = {"draining": True, "config": config, "url": f"http://127.0.0.1:{port}", "key": None}
        with pytest.raises(ConfigError, match="broker 4: no such broker: known here are 1, 7"):
            await asyncio.to_thread(order, 4, **how)
