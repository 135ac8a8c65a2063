"""To a broker by an HTTP proxy: in clear, by TLS; and what is said of one that refuses us."""

import base64
import json

import pytest

from federator.errors import LinkError
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.ways.proxy import HEAD_BYTES_MAX, HttpProxy
from lab.grid.processes.ports import free_ports
from tests.real.client import Client
from tests.real.flow import running
from tests.real.links.test_outbox import NOWHERE, Pair
from tests.real.mqtt import http_proxy
from tests.real.observability.test_cli_agent import ran
from tests.real.polling import until
from tests.real.streams import all_came, begin, clients


def by_proxy(endpoint):
    return Client(endpoint, "by-proxy", reconnect_max_ms=200)


def at(port, proxy, **more):
    return Endpoint("127.0.0.1", port, proxy=HttpProxy("127.0.0.1", proxy), **more)


async def test_a_link_leads_through_the_proxy(broker):
    async with http_proxy.HttpProxy() as proxy:
        client = by_proxy(at(broker.port, proxy.port))

        async with running(client):
            await until(lambda: client.link.connected, "connected")

    assert proxy.asked == [f"CONNECT 127.0.0.1:{broker.port} HTTP/1.1"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "does not let us through: 'HTTP/1.1 403 Forbidden'"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer as an HTTP proxy does"),
        (b"x" * 3 * HEAD_BYTES_MAX, "does not answer as an HTTP proxy does"),
        (b"", "does not answer as an HTTP proxy does"),
    ],
)
async def test_a_proxy_that_does_not_let_us_through_is_told_in_a_line(broker, answer, told):
    async with http_proxy.HttpProxy(answer=answer) as proxy:
        client = by_proxy(at(broker.port, proxy.port))

        async with running(client):
            await until(lambda: client.link.last_error, "refused")

        with pytest.raises(LinkError, match="the proxy "):
            await at(broker.port, proxy.port).streams()
    assert told in client.link.last_error


async def test_who_we_are_is_told_to_a_proxy_that_asks(broker):
    told = {}
    async with http_proxy.HttpProxy(login="wir:gehe\u00efm:1".encode()) as proxy:
        for login in (None, b"wir:wrong", "wir:gehe\u00efm:1".encode()):
            way = HttpProxy("127.0.0.1", proxy.port, login)
            assert "geh" not in f"{way} {way!r} {Endpoint('h', 1, proxy=way)!r}"
            client = by_proxy(Endpoint("127.0.0.1", broker.port, proxy=way))
            async with running(client):
                link = client.link
                await until(lambda link=link: link.last_error or link.connected, "answered")
                told[login] = link.last_error

    who = f"refused: the proxy 127.0.0.1:{proxy.port}"
    assert list(told.values()) == [
        f"{who} asks who we are: set proxy_username and proxy_password_file",
        f"{who} does not accept our user name and password",
        None,
    ]


async def test_a_proxy_that_is_not_there_is_a_connection_refused(broker):
    (port,) = free_ports(1)
    client = by_proxy(at(broker.port, port))

    async with running(client):
        await until(lambda: client.link.last_error, "refused")

    assert "connection refused" in client.link.last_error


async def test_a_site_takes_part_by_a_proxy_alone_and_its_password_is_told_nobody_else(
    plain, tmp_path
):
    inside, outside = await plain.broker(), await plain.broker()
    hub = await plain.agent(2, outside)
    secret = tmp_path / "proxy-password"
    secret.touch(mode=0o600)
    secret.write_text("open-sesame")
    async with http_proxy.HttpProxy(login=b"me:open-sesame") as proxy:
        links = {"dial": "out", "proxy": proxy.url, "proxy_username": "me"}
        links["proxy_password_file"] = str(secret)
        told = {"broker": {"advertise": NOWHERE}, "links": links}
        pair = Pair(inside, outside, await plain.agent(1, inside, outside.url, **told), hub)
        await pair.linked()
        streams = pair.streams(rate_hz=100)
        async with running(*clients(streams)):
            await all_came(streams, await begin(streams))
        status = json.dumps(await pair.site.status())
        _, examined, _ = await ran("doctor", "-c", str(pair.site.config_path))
        await pair.site.stop()
    assert "we may speak there, and hear what is said to us there" in examined
    for text in (status, examined, pair.site.log_path.read_text()):
        assert "open-sesame" not in text
        assert base64.b64encode(b"me:open-sesame").decode() not in text

    assert set(proxy.asked) == {f"CONNECT 127.0.0.1:{outside.port} HTTP/1.1"}
    assert len(proxy.asked) >= 2
