"""What a peer that is no decent broker can do to a link: nothing but end its connection."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import mqtt5
import pytest

from federator.runtime.mqtt.link import Endpoint, Inbound, LinkObserver, MqttLink
from tests.tcp_server import serving

ACCEPTED = mqtt5.ConnAckPacket().write()
PUBLISH = mqtt5.PublishPacket("t", b"1").write()


class Listener(LinkObserver):
    """Counts what a link tells."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.downs: list[str] = []

    def on_down(self, link: MqttLink, reason: str) -> None:
        self.downs.append(reason)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        self.payloads.extend(packet.payload for packet, _, _ in publishes)


@contextlib.asynccontextmanager
async def link_to_a_peer_that_says(
    answers: list[bytes], *, wait: bool = True
) -> AsyncIterator[tuple[MqttLink, Listener]]:
    """A link to a TCP peer that answers its n-th connection with ``answers[n]``, then the last.

    Without ``wait`` the peer hangs up after each but the last.
    """
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.read(100)
        answer = asked
        asked += 1
        writer.write(answers[min(answer, len(answers) - 1)])
        await writer.drain()
        while (wait or answer >= len(answers) - 1) and await reader.read(1_000):
            pass

    listener = Listener()
    async with serving(serve) as port:
        link = MqttLink(
            Endpoint("127.0.0.1", port),
            listener,
            client_id="federator-test",
            reconnect_min_ms=1,
            reconnect_max_ms=2,
            packet_bytes_max=10_000,
        )
        task = asyncio.create_task(link.run())
        try:
            yield link, listener
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\x00\x00", "malformed packet"),
        (b"\x30\x03\x00\x09a", "malformed packet"),
        (b"\x30\xff\xff\xff\x7f", "a packet of 268435460 bytes, at most 10000 wanted"),
        (ACCEPTED, "a second CONNACK"),
        (mqtt5.ConnectPacket("x").write(), "unexpected ConnectPacket"),
        (
            mqtt5.DisconnectPacket(
                reason_code=mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN
            ).write(),
            "the broker disconnected us: server shutting down (0x8b)",
        ),
    ],
)
async def test_whatever_comes_after_connack_ends_that_connection_only(said, reason):
    good = ACCEPTED + PUBLISH

    async with link_to_a_peer_that_says([good + said, good]) as (link, listener):
        await until(lambda: listener.downs and link.connected)
        await until(lambda: len(listener.payloads) == 2)

    assert listener.downs[0].startswith(reason)
    assert link.counters.connects == 2


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "this is no MQTT broker"),
        (PUBLISH, "this is no MQTT broker"),
        (b"\x20\x03\x00\x88\x00", "refused: server unavailable"),
        (b"\x20\x02\x00\x01", "refused: the broker does not speak MQTT 5"),
        (b"\xff" * 5_000, "this is no MQTT broker"),
        (b"\x20\xff\xff\xff\xff", "malformed packet"),
        (b"\x20\x04\x00\x00\x02\x21", "malformed packet"),
    ],
)
async def test_whatever_comes_instead_of_connack_is_told_and_tried_again(said, reason):
    answers = [said]
    async with link_to_a_peer_that_says(answers) as (link, listener):
        await until(lambda: link.counters.attempts >= 3)
        told = link.last_error
        answers.append(ACCEPTED)
        await until(lambda: link.connected)

    assert told is not None
    assert told.startswith(reason)
    assert listener.payloads == []
    assert link.counters.connects == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the codec's panics
async def test_a_thousand_random_answers_change_nothing():
    rng = random.Random(7)
    noises = [ACCEPTED + rng.randbytes(rng.randrange(1, 60)) for _ in range(1_000)]

    async with link_to_a_peer_that_says([*noises, ACCEPTED + PUBLISH], wait=False) as (
        link,
        listener,
    ):
        await until(lambda: link.connected and listener.payloads[-1:] == [b"1"])

    assert link.counters.attempts >= 1_001
