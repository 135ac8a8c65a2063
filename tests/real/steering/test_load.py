"""What an agent measures and tells, beside real brokers: a paced flow, and what its links carry."""

import time

import pytest

from federator.protocol.messages import json_codec
from federator.protocol.messages.steering import Load
from tests.real.client import Client
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import Plain, eventually, linked
from tests.real.polling import until
from tests.real.steering.by_hand import plan, retain

STRAIGHT = '[routing]\nstrategy = "shortest-path"\n'
WINDOWS_S = 10
LOADS = 7
"""Told one every two seconds: more than ten windows after the first, there were ten."""


class Reader(Client):
    """Keeps the loads that are told at one broker."""

    def __init__(self, port):
        super().__init__(port, "reader", "$fed/fed/load", qos=0)

    @property
    def loads(self):
        return [json_codec.decode(Load, payload) for _, payload in self.came]


class Filler(Publisher):
    """A thousand publications of 500 bytes."""

    count = 1_000

    def payload(self, number):
        if number + 1 >= self.count:
            self.pause()
        return b"%0500d" % number


async def lease(broker, *, number=7):
    """A plan without trees, retained: somebody watches."""
    since_ms = time.time_ns() // 1_000_000
    told = plan(1, steerer="watcher", since_ms=since_ms, number=number, valid_ms=300_000)
    await retain(broker, told)


@pytest.mark.slow
async def test_an_agent_tells_a_paced_flow_and_its_links_while_a_plan_holds(plain: Plain):
    here, there = [await plain.broker() for _ in range(2)]
    ours = await plain.agent(1, here, (there.url, 2, 'capacity = "2 Mbit/s"'), more=STRAIGHT)
    other = await plain.agent(2, there, (here.url, 1, 'capacity = "64 kbit/s"'), more=STRAIGHT)
    # Whoever subscribes before an agent hears the log is not known to it.
    await eventually(ours, linked(2), "linked")
    status = await eventually(other, linked(1), "linked")
    assert status["links"][0]["capacity"] == 64_000
    reader = Reader(here.port)
    publisher = Filler(here.port, "paced/a", client_id="p", rate_hz=250)
    publisher.pause()
    async with running(reader, publisher, Subscriber(there.port, "paced/#", client_id="s")):
        await eventually(ours, lambda told: told["destinations_total"], "the filter is wanted")
        assert not reader.loads
        await lease(here)
        await until(lambda: len(reader.loads) >= LOADS, "loads are told")

        publisher.resume()

        def is_sent(status):
            return status["counters"]["data"]["publications_out"] == publisher.count

        status = await eventually(ours, is_sent, "all are sent")
        told = len(reader.loads)
        await until(lambda: len(reader.loads) > told + 1, "a load is told")

    load = max(reader.loads, key=lambda each: sum(flow.rate for flow in each.flows))
    (flow,), (link,) = load.flows, load.links
    assert (load.broker, load.steerer, load.number) == (1, "watcher", 7)
    assert (flow.filters, flow.destinations) == (("paced/#",), (2,))
    assert (flow.meshed, flow.planned) == (False, False)
    assert WINDOWS_S * flow.publications == pytest.approx(publisher.count, rel=0.1)
    data = status["counters"]["data"]
    publish_bytes = 5 + 2 + len("$fed/fed/data")  # around each frame
    sent = data["frame_bytes_out"] + publish_bytes * data["frames_out"]
    assert WINDOWS_S * flow.rate / 8 == pytest.approx(sent, rel=0.1)
    assert load.rest == pytest.approx(0, abs=1)
    assert (link.neighbour, link.capacity, link.cost, link.open) == (2, 2_000_000, 1, True)
    # Flows and links are sampled by clocks of their own: one may see a second more of a burst.
    fullest = max(each.rate for told in reader.loads for each in told.links)
    assert fullest == pytest.approx(flow.rate, rel=0.3)
