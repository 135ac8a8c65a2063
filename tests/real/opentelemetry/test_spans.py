"""Spans of real agents, beside real brokers in a line, at a collector that speaks real OTLP."""

import asyncio
import contextlib
import json
import socket

import mqtt5
import pytest

from tests.otlp_collector import collecting
from tests.real.client import Client
from tests.real.flow import Publisher, Subscriber, running
from tests.real.metrics_page import metrics, values
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until

TRACEPARENT = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
TRACESTATE = ("tracestate", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")


def section(url, **keys):
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    return f'[opentelemetry]\nendpoint = "{url}"\n{lines}'


async def line_of_three(plain, more="", **options):
    """Brokers 1 - 2 - 3, and their agents."""
    one, two, three = brokers = [await plain.broker() for _ in range(3)]
    agents = [
        await plain.agent(1, one, two.url, more=more, broker={"name": "hall"}, **options),
        await plain.agent(2, two, one.url, three.url, more=more, **options),
        await plain.agent(3, three, two.url, more=more, **options),
    ]
    await eventually(agents[0], linked(2), "1 has its link")
    await eventually(agents[1], linked(1, 3), "2 has both")
    await eventually(agents[2], linked(2), "3 has its link")
    return brokers, agents


@contextlib.asynccontextmanager
async def stream(plain, more="", topic="a/b", *, rate_hz=10, qos=0):
    """A client of broker 1 publishes for one of broker 3, by agents that send spans; all these."""
    brokers, agents = await line_of_three(plain, more)
    subscriber = Subscriber(brokers[2].port, topic, client_id="sub", qos=qos)
    publisher = Publisher(brokers[0].port, topic, client_id="pub", rate_hz=rate_hz, qos=qos)
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        yield publisher, subscriber, agents


def by_trace(spans, name):
    """The traces that went on ``name`` of topics, each as its spans by broker."""
    traces = {}
    for span in spans:
        traces.setdefault(span.trace_id, {})[span.attributes["federator.broker"]] = span
    return [t for t in traces.values() if any(name in s.name for s in t.values())]


@pytest.mark.parametrize("qos", [0, 1])
async def test_one_publication_is_one_trace_with_a_span_at_each_agent(plain, qos):
    with collecting() as collector:
        more = section(collector.url, sample=1.0, topics=True)
        async with stream(plain, more, qos=qos) as (publisher, _, _):
            publisher.pause()

            def whole():
                traces = by_trace(collector.spans, "a/b")
                return [trace for trace in traces if set(trace) == {1, 2, 3}]

            await until(whole, "a trace is whole")
            trace = whole()[-1]

    one, two, three = trace[1], trace[2], trace[3]
    assert (one.parent_id, two.parent_id, three.parent_id) == ("", one.span_id, two.span_id)
    assert (one.name, two.name, three.name) == ("send a/b", "forward", "deliver a/b")
    assert one.start_ns <= two.start_ns <= three.start_ns  # one machine, one clock
    assert all(span.start_ns <= span.end_ns for span in trace.values())
    assert collector.paths == {"/v1/traces"}
    for id, span in trace.items():
        assert span.attributes["messaging.system"] == "mqtt"
        assert span.attributes["federator.qos"] == qos
        assert span.attributes["federator.origin"] == 1
        assert span.attributes["federator.hops"] == id - 1
        assert span.attributes["federator.next_hops.transports"] == ["tcp"] * (id < 3)
        assert span.trace_state == "ot=th:0"
        assert span.resource["service.name"] == "federator"
        assert span.resource["service.instance.id"] == str(id)
        assert not span.error
    assert one.attributes["messaging.operation.type"] == "send"
    assert one.attributes["messaging.destination.name"] == "a/b"
    assert one.resource["federator.broker.name"] == "hall"
    assert [s.attributes["federator.next_hops"] for s in (one, two, three)] == [[2], [3], []]
    assert [s.attributes.get("federator.previous_hop") for s in (one, two, three)] == [None, 1, 2]
    assert [s.attributes["federator.delivered"] for s in (one, two, three)] == [0, 0, 1]


async def test_without_topics_no_filter_is_told(plain):
    with collecting() as collector:
        async with stream(plain, section(collector.url, sample=1.0), "alice/bed"):
            await until(lambda: by_trace(collector.spans, "deliver"), "spans come")

    assert "alice" not in repr(collector.spans)


async def test_agents_with_a_share_tell_the_same_frames(plain):
    with collecting() as collector:
        more = section(collector.url, sample=0.1)
        async with stream(plain, more, rate_hz=100) as (publisher, subscriber, _):
            first = publisher.sent
            await until(lambda: publisher.sent >= first + 500, "500 publications")
            publisher.pause()
            await until(lambda: subscriber.came[publisher.sent - 1] > 0, "all came")

            def told(number):
                spans = collector.spans
                return {s.trace_id for s in spans if s.attributes["federator.broker"] == number}

            await until(lambda: len(told(3)) > 30 and told(1) >= told(2) == told(3), "all is told")
            sent = publisher.sent

    assert 0.05 * sent <= len(told(1)) <= 0.2 * sent
    # What OpenTelemetry's samplers compare: the last 56 bits against the threshold.
    threshold = int("e6666666000000", 16)
    assert {span.trace_state for span in collector.spans} == {"ot=th:e6666666"}
    assert all(int(trace_id[-14:], 16) >= threshold for trace_id in told(1))


class Reader(Client):
    """Keeps the bytes of PUBLISH packets."""

    def __init__(self, port, topic_filter):
        super().__init__(port, "reader", topic_filter, qos=0)

    def on_publishes(self, link, chunk, publishes):
        self.came += [bytes(chunk[start:end]) for _, start, end in publishes]


async def test_the_context_of_clients_passes_bit_by_bit(plain):
    sent = mqtt5.PublishPacket("a/b", b"21", user_properties=[TRACEPARENT, TRACESTATE]).write()
    with collecting() as collector:
        brokers, _ = await line_of_three(plain, section(collector.url, sample=1.0))
        reader = Reader(brokers[2].port, "a/#")
        subscriber = Subscriber(brokers[2].port, "way/#", client_id="sub")
        publisher = Publisher(brokers[0].port, "way/free", client_id="pub", rate_hz=10)
        async with running(reader, subscriber, publisher):
            await gets_through(publisher, subscriber)
            await until(lambda: reader.link.subscribed, "subscribed")
            with socket.create_connection(("127.0.0.1", brokers[0].port)) as client:
                client.sendall(mqtt5.ConnectPacket("device").write())
                client.recv(100)

                def comes():
                    client.sendall(sent)
                    return reader.came

                await until(comes, "it came")

    assert set(reader.came) == {bytes(sent)}
    ours = {span.trace_id for span in collector.spans}
    assert TRACEPARENT[1].split("-")[1] not in ours


async def told(agent, name):
    """What the metric called ``name`` is at ``agent``."""
    (value,) = values(await metrics(agent.http), f"federator_{name}").values()
    return value


async def test_a_collector_that_is_silent_holds_no_message_and_no_agent(plain):
    with collecting() as collector:
        collector.held.clear()
        more = section(collector.url, sample=1.0, queue_spans_max=8, timeout_ms=60_000)
        async with stream(plain, more, rate_hz=200, qos=1) as (publisher, subscriber, agents):
            await until(lambda: collector.requests >= 3, "all three wait for an answer")
            first, since_s = publisher.sent, asyncio.get_running_loop().time()
            await until(lambda: publisher.sent >= first + 600, "600 publications")
            publisher.pause()
            await until(lambda: subscriber.came[publisher.sent - 1] > 0, "all came")
            took_s = asyncio.get_running_loop().time() - since_s
            assert collector.spans == []
            assert [n for n in range(first, publisher.sent) if not subscriber.came[n]] == []
            assert took_s < 60, "it waited for an answer"
            for agent in agents:
                assert await told(agent, "spans_waiting") <= 8
                assert await told(agent, "spans_dropped_total") > 50
                assert await told(agent, "spans_exported_total") == 0
            stopping_s = asyncio.get_running_loop().time()
            await agents[1].stop()
            assert asyncio.get_running_loop().time() - stopping_s < 60, "the same"


async def test_a_collector_that_is_not_there_is_told_once_and_taken_up_when_it_comes(plain):
    with collecting() as collector:
        collector.status = 400
        async with stream(plain, section(collector.url, sample=1.0), rate_hz=20) as (_, _, agents):
            await until(lambda: collector.requests >= 6, "batches are refused")
            collector.status = 200
            await until(lambda: by_trace(collector.spans, "deliver"), "spans come")

            async def counted():
                exported = await told(agents[0], "spans_exported_total")
                return exported > 0 < await told(agents[0], "spans_failed_total")

            await until(counted, "both are counted")
    lines = [json.loads(line) for line in agents[0].log_path.read_text().splitlines()]
    failed = [line for line in lines if line["event"] == "opentelemetry.export_failed"]
    assert len(failed) == 1
    assert "code: 400" in failed[0]["reason"]
    assert "opentelemetry.export_resumed" in {line["event"] for line in lines}


async def test_a_client_that_floods_makes_no_more_spans_than_are_allowed(plain):
    with collecting() as collector:
        more = section(collector.url, sample=1.0, spans_per_s_max=10)
        async with stream(plain, more, rate_hz=500) as (publisher, _, agents):
            since_s = asyncio.get_running_loop().time()
            await until(lambda: by_trace(collector.spans, "deliver"), "spans come")

            async def calmer():
                share = await told(agents[0], "spans_share")
                return share < 0.5 and await told(agents[0], "spans_passed_over_total") > 100

            await until(calmer, "the share falls")

            def whole_and_rarer():
                traces = by_trace(collector.spans, "deliver")
                whole = [trace for trace in traces if set(trace) == {1, 2, 3}]
                return any(t[1].trace_state != "ot=th:0" for t in whole)

            await until(whole_and_rarer, "a trace is whole, of a smaller share")
            publisher.pause()
            took_s = asyncio.get_running_loop().time() - since_s
    for id in (1, 2, 3):
        mine = [s for s in collector.spans if s.attributes["federator.broker"] == id]
        assert len(mine) <= 10 * (took_s + 10)  # some seconds went by before


async def test_the_verb_trace_sends_its_hops_to_a_collector(plain):
    with collecting() as collector:
        async with stream(plain) as (_, _, agents):
            code, out, err = await ran(
                *("trace", "a/b", "-c", str(agents[0].config_path), "--json"),
                *("--otlp", collector.url),
            )
    hops = [json.loads(line) for line in out.splitlines()]
    root, *others = sorted(collector.spans, key=lambda s: s.attributes["federator.hops"])
    assert code == 0
    assert len(hops) == 3
    assert [s.attributes["federator.broker"] for s in (root, *others)] == [1, 2, 3]
    assert [s.parent_id for s in (root, *others)] == ["", root.span_id, others[0].span_id]
    assert {s.trace_id for s in collector.spans} == {root.trace_id}
    assert err == f"trace {root.trace_id} is at {collector.url}\n"
    assert {s.attributes["messaging.destination.name"] for s in collector.spans} == {"a/b"}
    assert [s.attributes["federator.previous_hop.transport"] for s in others] == ["tcp", "tcp"]
    assert [s.attributes["federator.delivers"] for s in others] == [False, True]
    times_us = next(hop["times_us"] for hop in hops if hop["path"] == [1, 2, 3])
    assert [s.start_ns // 1_000 for s in (root, *others)] == [times_us[0], *times_us[:2]]
    assert [s.end_ns // 1_000 for s in others] == times_us[1:]


async def test_a_collector_that_cannot_be_reached_is_one_line_of_the_verb(plain):
    one = await plain.broker()
    agent = await plain.agent(1, one)
    await eventually(agent, lambda status: status["ready"], "ready")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

    code, out, err = await ran("trace", "a/b", "-c", str(agent.config_path), "--otlp", url)

    assert code == 69
    assert "nowhere from broker 1" in out
    assert err.startswith("federator: the collector took 0 of 1 spans: ")
    assert len(err.splitlines()) == 1
