"""The link on a real broker, with paho (by aiomqtt) at the other end."""

import asyncio
import contextlib
import gc
import itertools
import subprocess

import aiomqtt
import mqtt5
import pytest
import structlog.testing

from federator.runtime.mqtt.link import Endpoint, Inbound, MqttLink
from federator.runtime.mqtt.wire import packet_id_at
from lab.grid.processes.ports import free_ports
from lab.grid.processes.relay import Relay
from tests.real.mqtt.recorder import Recorder, running
from tests.real.polling import until
from tests.real.refusing import refuse


@pytest.fixture
def passwords(tmp_path):
    """A password file with one user, "me" with "right"."""
    path = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", path, "me", "right"], check=True)
    return path


@pytest.fixture
def refuse_no_filters(tmp_path):
    """Lines for mosquitto.conf that refuse SUBSCRIBE for ``no/#``: Mosquitto's own plugin does."""
    return refuse(tmp_path, "no/#")


def paho(broker, **arguments):
    return aiomqtt.Client(
        broker.host, broker.port, protocol=aiomqtt.ProtocolVersion.V5, **arguments
    )


def numbered(count):
    return [str(number).encode() for number in range(count)]


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_publications_arrive_once_and_in_order_both_ways(broker, qos):
    recorder = Recorder()
    async with running(broker.port, recorder, "in/+") as link, paho(broker) as other:
        await other.subscribe("out", qos=qos)

        for payload in numbered(100):
            await other.publish("in/b", payload, qos=qos)
        assert all(link.publish("out", payload, qos=qos) for payload in numbered(300))
        got = [await anext(other.messages) for _ in range(300)]
        await until(lambda: len(recorder.packets) >= 100, "100 publications")
        await until(lambda: link.unacknowledged == 0, "all acknowledged")

    assert recorder.payloads == numbered(100)
    assert [message.payload for message in got] == numbered(300)
    assert {int(packet.qos) for packet in recorder.packets} == {m.qos for m in got} == {qos}
    assert (link.counters.publishes_in, link.counters.publishes_rejected) == (100, 0)
    assert recorder.downs == ["closed by us"]


async def test_a_tried_packet_says_how_long_one_at_qos_0_may_be(broker):
    packet = mqtt5.PublishPacket("a/b", bytes(2_000)).write()
    async with running(broker.port, Recorder()) as link:
        assert link.try_packet(packet, lambda: None)
        await until(lambda: link.unacknowledged == 0, "the broker took it")

        assert link.packet_bytes_sure == len(packet)  # at QoS 1 it had an identifier besides


async def test_ready_made_packets_keep_every_property(broker):
    packet = mqtt5.PublishPacket(
        "a/b",
        b"payload",
        payload_format_indicator=1,
        message_expiry_interval=1_000,
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"\x00\x01",
        user_properties=[("k", "1"), ("k", "2")],
    )
    with_id = bytearray(
        mqtt5.PublishPacket(
            "a/b", b"second", qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=77, content_type="x"
        ).write()
    )
    recorder = Recorder()
    async with running(broker.port, recorder, "a/b") as link:
        run = memoryview(packet.write() * 2)

        assert link.write_packets([run[:7], run[7:]], 2)
        assert link.publish_packet(with_id, packet_id_at(with_id), 2)
        await until(lambda: len(recorder.packets) >= 3, "3 publications")

    first, again, second = recorder.packets
    assert first.write() == again.write() == packet.write()
    assert (second.payload, second.content_type) == (b"second", "x")
    assert link.counters.publishes_out == 3


async def test_after_kill_9_and_restart_of_the_broker_everything_is_subscribed_again(broker):
    recorder = Recorder()
    async with running(broker.port, recorder, *(f"f/{n}" for n in range(3_000))) as link:
        broker.kill9()
        await until(lambda: len(recorder.downs) == 1, "noticed")
        assert not link.publish("f/1", b"lost")
        assert link.publish("f/2", b"kept", qos=1)
        await broker.start()
        await until(lambda: link.subscribed, "subscribed again")
        link.publish("f/2999", b"after")
        await until(lambda: len(recorder.packets) == 2, "2 publications")

    assert sorted(recorder.payloads) == [b"after", b"kept"]
    assert recorder.ups == [False, False]
    assert recorder.subscribed == 2
    assert link.counters.connects == 2
    assert link.counters.publishes_dropped == 1


@pytest.mark.parametrize("clean_start", [False, True])
async def test_a_session_that_the_broker_persists_goes_on_after_its_restart(
    start_broker, clean_start
):
    broker = await start_broker(persistence=True)
    recorder = Recorder()
    kept = {"clean_start": clean_start, "session_expiry_s": 60}
    async with running(broker.port, recorder, "t", **kept) as link:
        await broker.stop()
        await until(lambda: len(recorder.downs) == 1, "noticed")
        for payload in numbered(50):
            link.publish("t", payload, qos=2)
        await broker.start()
        await until(lambda: len(recorder.packets) >= 50, "50 publications")

    assert recorder.payloads == numbered(50)
    assert recorder.ups == [False, True]


async def test_what_a_killed_process_did_not_release_reaches_subscribers_and_takes_no_room(broker):
    recorder = Recorder()
    me = "federator-killed"
    async with running(broker.port, recorder, "t"):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(mqtt5.ConnectPacket(me, session_expiry_interval=60).write())
        for number in range(20):  # as many as Mosquitto takes at a time
            packet = mqtt5.PublishPacket(
                "t", b"%d" % number, qos=mqtt5.QoS(2), packet_id=number + 1
            )
            writer.write(packet.write())
        received = b""
        while (
            received.count(b"\x50\x02\x00") < 20
        ):  # PUBREC: the broker has them, and waits for PUBREL
            received += await reader.read(4_096)
        writer.transport.abort()

        kept = {"clean_start": False, "session_expiry_s": 60, "client_id": me}
        async with running(broker.port, Recorder(), **kept) as link:
            for number in range(20, 60):
                assert link.publish("t", b"%d" % number, qos=2)
            await until(lambda: link.connected and link.unacknowledged == 0, "all acknowledged")
            rejected = link.counters.publishes_rejected
        await until(lambda: len(recorder.packets) >= 60, "60 publications")

    assert rejected == 0
    assert recorder.payloads == [b"%d" % number for number in range(60)]


async def test_a_clean_start_forgets_an_earlier_session_that_would_have_been_resumed(broker):
    kept = {"session_expiry_s": 60, "client_id": "federator-again"}
    async with running(broker.port, Recorder(), "old", **kept):
        pass
    recorder = Recorder()

    async with running(broker.port, recorder, "new", **kept) as link:
        for topic in ("old", "new"):
            assert link.publish(topic, topic.encode(), qos=1)
        await until(lambda: recorder.packets, "a publication")

    assert recorder.ups == [False]
    assert recorder.payloads == [b"new"]


async def test_resets_in_the_middle_of_qos_2_traffic_cost_nothing_while_the_session_is_kept(broker):
    recorder = Recorder()
    relay = Relay((broker.host, broker.port), delay_s=0.001)
    port = relay.listen()
    kept = {"session_expiry_s": 60, "reconnect_min_ms": 1, "reconnect_max_ms": 10}
    async with (
        running(port, recorder, "t", client_id="federator-receiver", **kept),
        running(port, Recorder(), client_id="federator-sender", **kept) as sender,
    ):
        for payload in numbered(1_000):
            assert sender.publish("t", payload, qos=2)

        for part in range(1, 11):
            await until(lambda part=part: len(recorder.packets) >= 80 * part, "a part")
            relay.reset()
        await until(lambda: sender.unacknowledged == 0, "all acknowledged")
        await until(lambda: len(recorder.packets) >= 1_000, "1000 publications")
    relay.close()

    assert sorted(recorder.payloads, key=int) == numbered(1_000)
    assert recorder.ups.count(True) >= 9


async def test_a_wrong_password_is_told_in_words_and_logged_once(start_broker, passwords):
    broker = await start_broker(allow_anonymous=False, extra_config=(f"password_file {passwords}",))
    wrong = Endpoint(broker.host, broker.port, "me", b"wrong")
    with structlog.testing.capture_logs() as logs:
        async with running(0, Recorder(), endpoint=wrong, reconnect_max_ms=100, wait=False) as link:
            await until(lambda: link.counters.attempts >= 3, "3 attempts")

    assert link.last_error is not None
    assert "wrong user name or password" in link.last_error
    assert [entry["event"] for entry in logs] == ["connection.refused"]
    assert "wrong'" not in str(logs)

    right = Endpoint(broker.host, broker.port, "me", b"right")
    async with running(0, Recorder(), endpoint=right):
        pass
    assert "right" not in repr(right)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "connection refused"),
        ("localhost", "connection refused"),
        ("no-such-host.invalid", "cannot resolve 'no-such-host.invalid'"),
        ("bad..name", "cannot resolve 'bad..name'"),
    ],
)
async def test_a_missing_broker_or_host_is_told_in_words(host, text):
    endpoint = Endpoint(host, free_ports(1)[0])
    async with running(0, Recorder(), endpoint=endpoint, wait=False) as link:
        await until(lambda: link.last_error is not None, host)

    assert link.last_error is not None
    assert link.last_error.startswith(text)


async def test_a_broker_that_falls_silent_is_given_up_within_a_keep_alive_and_a_half(broker):
    recorder = Recorder()
    async with running(broker.port, recorder, keep_alive_s=2, connect_timeout_s=0.5) as link:
        loop = asyncio.get_running_loop()

        broker.pause()
        paused_s = loop.time()
        await until(lambda: recorder.downs != [], "given up")
        noticed_after_s = loop.time() - paused_s
        await until(
            lambda: link.last_error is not None and "no answer within 0.5 s" in link.last_error,
            "a connection without an answer",
        )
        broker.resume()
        await until(lambda: link.connected, "connected again")

    assert recorder.downs[0] == "no sign of life for 1 s"
    assert noticed_after_s < 30


async def test_a_stuck_broker_costs_bounded_memory_counts_losses_and_gets_control_first(broker):
    payload, bound = b"x" * 100_000, 1_000_000
    recorder = Recorder()
    async with running(broker.port, recorder, "t", "control", send_queue_bytes_max=bound) as link:
        broker.pause()
        try:
            taken = [link.publish("t", payload) for _ in range(400)]
            urgent = link.publish("control", b"now", urgent=True)
            await asyncio.sleep(0)

            assert 0 < taken.count(False) < 400
            assert link.counters.publishes_dropped == taken.count(False)
            assert urgent
            assert 0 < link.queued_bytes <= bound
        finally:
            broker.resume()
        await until(lambda: len(recorder.packets) == taken.count(True) + 1, "all arrived")

    assert link.counters.publishes_dropped == taken.count(False)
    topics = [packet.topic for packet in recorder.packets]
    assert topics.index("control") < len(topics) - bound // len(payload) // 2


async def test_what_waits_when_a_connection_breaks_is_counted_as_lost(broker):
    payload = b"x" * 100_000
    packet_bytes = len(mqtt5.PublishPacket("t", payload).write())
    recorder = Recorder()
    async with running(broker.port, recorder) as link:
        broker.pause()
        while link.queued_bytes < 10 * packet_bytes:
            assert link.publish("t", payload)
        waiting = link.queued_bytes // packet_bytes
        broker.kill9()
        await until(lambda: recorder.downs != [], "noticed")

    assert link.counters.publishes_dropped == waiting


async def test_a_flood_arrives_whole_and_in_few_reads(broker):
    class ReadCounter(Recorder):
        reads = 0

        def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
            self.reads += 1
            super().on_publishes(link, chunk, publishes)

    recorder = ReadCounter()
    run = b"".join(mqtt5.PublishPacket("t", payload).write() for payload in numbered(20_000))
    async with (
        running(broker.port, recorder, "t"),
        running(broker.port, Recorder(), client_id="federator-sender") as sender,
    ):
        assert sender.write_packets([run], 20_000)
        await until(lambda: len(recorder.packets) >= 20_000, "20000 publications")

    assert recorder.payloads == numbered(20_000)
    assert len(recorder.packets) / recorder.reads > 20


async def test_the_will_speaks_when_we_vanish_and_not_when_we_leave(broker):
    # The second may be back, and be taken over again, before it is told to leave.
    wills = itertools.chain([b"first", b"second"], itertools.repeat(b"later"))

    def will() -> mqtt5.Will:
        return mqtt5.Will("will", payload=next(wills))

    witness = Recorder()
    async with running(broker.port, witness, "will", client_id="witness"):
        async with running(broker.port, Recorder(), will=will):
            pass
        async with (
            running(broker.port, Recorder(), will=will) as link,
            running(broker.port, Recorder(), wait=False) as usurper,  # same client id
        ):
            await until(lambda: usurper.connected and not link.connected, "taken over")
            await link.close()

        await until(lambda: witness.packets, "a will")

    assert witness.payloads[0] == b"second"


async def test_a_refused_subscription_is_reported_once_and_the_others_work(
    start_broker, refuse_no_filters
):
    broker = await start_broker(extra_config=refuse_no_filters)
    recorder = Recorder()
    with structlog.testing.capture_logs() as logs:
        async with running(broker.port, recorder, "no/1", "fine") as link:
            await broker.restart()
            await until(lambda: recorder.subscribed == 2, "subscribed again")

            link.publish("no/1", b"lost")
            link.publish("fine", b"arrives")
            await until(lambda: recorder.packets != [], "a publication")
            assert link.refused_filters == {"no/1": 0x87}

    refused = [
        entry["filter"] for entry in logs if entry["event"] == "connection.subscription_refused"
    ]
    assert refused == ["no/1"]
    assert recorder.payloads == [b"arrives"]


@pytest.mark.parametrize(
    ("limit", "topic", "payload", "reason"),
    [
        ("acl_file {acl}", "forbidden", b"x", "0x87"),
        ("message_size_limit 1000", "ok/long", bytes(5_000), "0x95"),
    ],
)
async def test_rejected_publications_are_counted_logged_once_a_topic_and_hold_up_nothing(
    start_broker, tmp_path, limit, topic, payload, reason
):
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite ok/#\n")
    acl.chmod(0o644)
    broker = await start_broker(extra_config=(limit.format(acl=acl),))
    recorder = Recorder()
    with structlog.testing.capture_logs() as logs:
        async with running(broker.port, recorder, "ok/#") as link:
            for qos in (1, 2, 1, 2):
                link.publish(topic, payload, qos=qos)
                link.publish("ok/short", b"%d" % qos, qos=qos)
            await until(lambda: link.unacknowledged == 0, "all answered")
            await until(lambda: len(recorder.packets) >= 4, "the others")

    assert link.counters.publishes_rejected == 4
    rejected = [entry for entry in logs if entry["event"] == "connection.publication_rejected"]
    assert [(entry["topic"], entry["reason"]) for entry in rejected] == [(topic, reason)]
    assert rejected[0]["bytes"] > len(payload)
    assert sorted(recorder.payloads) == [b"1", b"1", b"2", b"2"]
    assert link.counters.connects == 1


async def test_closing_ends_run_even_between_two_attempts():
    link = MqttLink(
        Endpoint("127.0.0.1", free_ports(1)[0]),
        Recorder(),
        client_id="federator-test",
        reconnect_min_ms=60_000,
        reconnect_max_ms=60_000,
    )
    task = asyncio.create_task(link.run())
    await until(lambda: link.last_error is not None, "an attempt")

    await link.close()

    await asyncio.wait_for(task, 10)


async def test_an_exception_of_the_handler_comes_out_of_run(broker):
    class Broken(Recorder):
        def on_up(self, link: MqttLink, session_present: bool) -> None:
            raise RuntimeError("a bug of ours")

    link = MqttLink(Endpoint(broker.host, broker.port), Broken(), client_id="federator-test")

    with pytest.raises(RuntimeError, match="a bug of ours"):
        await asyncio.wait_for(link.run(), 10)


async def test_the_owner_may_acknowledge_later_and_only_in_the_same_session(broker):
    recorder = Recorder()
    async with running(broker.port, recorder, "t", acknowledge=False) as link:
        async with paho(broker) as other:
            for payload in numbered(30):
                await other.publish("t", payload, qos=1)
        await until(lambda: len(recorder.packets) == 20, "as many as the broker sends unanswered")

        ids = [(packet.packet_id or 0, int(packet.qos)) for packet in recorder.packets]
        link.acknowledge(ids, session_number=link.session_number - 1)
        assert len(recorder.packets) == 20
        link.acknowledge(ids, session_number=link.session_number)
        await until(lambda: len(recorder.packets) == 30, "the rest")

    assert recorder.payloads == numbered(30)


async def test_fifty_reconnects_leave_nothing_behind(broker):
    recorder = Recorder()
    async with running(broker.port, recorder, "t", reconnect_max_ms=100) as link:
        for times in range(50):
            await until(lambda: link.subscribed, "subscribed")
            # Takes our place; when we are back before it left, it is told so (since 2.0.15).
            with contextlib.suppress(aiomqtt.MqttError):
                async with paho(broker, identifier="federator-test"):
                    await until(lambda seen=times: len(recorder.downs) > seen, "taken over")
        await until(lambda: link.subscribed, "subscribed at the end")
        tasks = len(asyncio.all_tasks())
        gc.collect()
        transports = sum(type(each).__name__ == "PacketTransport" for each in gc.get_objects())

    assert tasks <= 3
    assert transports <= 2
