"""``ws://`` and ``wss://`` to a real broker: what a link does over TCP it does in WebSockets."""

from datetime import UTC, datetime

import mqtt5
import pytest

from federator.config.certificates import client_context
from federator.errors import LinkError
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.session_packets import wipe_session
from federator.runtime.ways.proxy import HttpProxy
from lab.grid.processes.ports import free_ports
from tests.certificates import WEBSOCKETS, tls_listener, websocket_listener
from tests.real.client import Client
from tests.real.flow import running
from tests.real.mqtt import http_proxy
from tests.real.polling import until


@pytest.fixture
async def port(start_broker):
    """Where a broker speaks MQTT in WebSockets."""
    (port,) = free_ports(1)
    await start_broker(extra_config=websocket_listener(port))
    return port


class InWebSocket(Client):
    def __init__(self, endpoint, *, client_id="in-websocket", **options):
        super().__init__(endpoint, client_id, **{"reconnect_max_ms": 200, **options})
        self.present = []

    @property
    def payloads(self):
        return [payload for _, payload in self.came]

    def on_up(self, link, session_present):
        self.present.append(session_present)


def at(port, **more):
    return Endpoint("127.0.0.1", port, websocket="/mqtt", **more)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_publications_go_both_ways(port, qos):
    client = InWebSocket(at(port))
    client.link.subscribe([mqtt5.TopicFilter("a/#", max_qos=mqtt5.QoS(qos))])
    payloads = [b"%d" % number * (number % 500 + 1) for number in range(2_000)]

    async with running(client):
        await until(lambda: client.present, "connected")
        for payload in payloads:
            await until(lambda p=payload: client.link.publish("a/b", p, qos=qos), "taken")
            await until(lambda: client.link.unacknowledged < 20, "acknowledged")
        await until(lambda: len(client.came) == len(payloads), "all came back")
        assert client.downs == 0

    assert client.payloads == payloads


async def test_packets_as_long_as_frames_of_a_federation_arrive(start_broker):
    """They come by TCP: Mosquitto 2.0 takes its time to write long ones into a WebSocket."""
    (port,) = free_ports(1)
    broker = await start_broker(extra_config=websocket_listener(port))
    sender = InWebSocket(at(port), client_id="sender")
    taker = InWebSocket(Endpoint("127.0.0.1", broker.port), client_id="taker")
    taker.link.subscribe([mqtt5.TopicFilter("a")])
    payloads = [bytes([number]) * 262_144 for number in range(40)]

    async with running(sender, taker):
        await until(lambda: sender.present and taker.present, "connected")
        for payload in payloads:
            await until(lambda p=payload: sender.link.publish("a", p), "taken")
        await until(lambda: len(taker.came) == 40, "all came")

    assert taker.payloads == payloads


async def test_a_session_is_wiped_in_websockets_too(port):
    connect = mqtt5.ConnectPacket("x", clean_start=True).write()

    assert await wipe_session(at(port), connect)


@pytest.mark.parametrize("by_proxy", [False, True])
@pytest.mark.parametrize("websocket", [None, "/mqtt"])
async def test_tls_is_spoken_with_the_broker_and_its_name_is_checked(
    start_broker, keys, websocket, by_proxy
):
    (port,) = free_ports(1)
    await start_broker(
        extra_config=(*tls_listener(keys, port), *([WEBSOCKETS] if websocket else []))
    )
    files = {"cert_file": keys / "client.pem", "key_file": keys / "client.key"}
    right, wrong = (
        client_context(ca_file=keys / name, now=datetime.now(UTC), **files)
        for name in ("broker.pem", "other.pem")
    )
    async with http_proxy.HttpProxy() as proxy:
        proxies = {"proxy": HttpProxy("127.0.0.1", proxy.port)} if by_proxy else {}
        way = {"websocket": websocket, **proxies}
        good = InWebSocket(Endpoint("127.0.0.1", port, tls=right, **way))
        good.link.subscribe([mqtt5.TopicFilter("a")])
        async with running(good):
            await until(lambda: good.link.connected, "connected")
            good.link.publish("a", b"x" * 1_000_000)
            await until(lambda: good.came, "came back")
        bad, plain = (InWebSocket(Endpoint("127.0.0.1", port, tls=t, **way)) for t in (wrong, None))
        async with running(bad, plain):
            await until(lambda: bad.link.last_error and plain.link.last_error, "refused")

    assert "certificate not accepted" in bad.link.last_error
    if not websocket:
        hint = f": is it an MQTT 5 broker, or does port {port} want TLS (mqtts://)?"
        assert plain.link.last_error.endswith(hint)
    assert set(proxy.asked) == ({f"CONNECT 127.0.0.1:{port} HTTP/1.1"} if by_proxy else set())


async def test_what_a_cut_link_owes_is_sent_again(port):
    """The proxy hangs up in the middle of frames, again and again."""
    payloads = [b"%d" % number * 20 for number in range(4_000)]
    async with http_proxy.HttpProxy() as proxy:
        client = InWebSocket(
            at(port, proxy=HttpProxy("127.0.0.1", proxy.port)),
            session_expiry_s=600,
            reconnect_min_ms=10,
        )
        client.link.subscribe([mqtt5.TopicFilter("a", max_qos=mqtt5.QoS.EXACTLY_ONCE)])
        async with running(client):
            await until(lambda: client.present, "connected")
            for number, payload in enumerate(payloads):
                await until(lambda p=payload: client.link.publish("a", p, qos=2), "taken")
                if number % 1_000 == 500:
                    proxy.hang_up()
                await until(lambda: client.link.unacknowledged < 20, "acknowledged")
            await until(lambda: len(client.came) == len(payloads), "all came back")

    assert client.payloads == payloads
    assert client.present == [False, True, True, True, True]


async def test_the_wrong_kind_of_listener_is_told_in_a_line(start_broker):
    (port,) = free_ports(1)
    broker = await start_broker(extra_config=websocket_listener(port))
    no_websocket = InWebSocket(at(broker.port))
    no_mqtt = InWebSocket(Endpoint("127.0.0.1", port))

    async with running(no_websocket, no_mqtt):
        both = (no_websocket.link, no_mqtt.link)
        await until(lambda: all(link.last_error for link in both), "refused")
        with pytest.raises(LinkError, match="hung up when asked for a WebSocket"):
            await at(broker.port).streams()

    assert (
        no_websocket.link.last_error == "hung up when asked for a WebSocket: is this its listener?"
    )
    assert no_mqtt.link.last_error is not None
    assert no_mqtt.link.last_error.startswith(
        (
            "this is no MQTT broker, but HTTP: for WebSockets use ws:// or wss://",
            "the broker closed the connection: is it an MQTT 5 broker",  # Mosquitto 2.1
        )
    )
