"""A broker that nobody can connect to is a member like any other: its agent dials, and hears.

Broker 1, the site, says of itself what is no use elsewhere. Broker 2, the hub, is dialled.
"""

import asyncio
import os
import signal

import mqtt5
import pytest

from tests.real.client import Client
from tests.real.flow import running
from tests.real.plain_agents import eventually, linked
from tests.real.polling import until
from tests.real.streams import all_came, begin, both_ways, clients, flowing, none_lost
from tests.real.trust.test_signed import Office

NOWHERE = "mqtt://127.0.0.1:1"
"""What a broker behind NAT says of itself."""

SITE = {"broker": {"advertise": NOWHERE}, "links": {"dial": "out"}}
"""Agents that were killed leave custody to be made up for."""


NOTED_S = 5.0
"""So long after a subscription its agent has surely noted it: it survives a kill."""


class Pair:
    """The two brokers, their agents, and a stream each way."""

    def __init__(self, inside, outside, site, hub):
        self.inside, self.outside, self.site, self.hub = inside, outside, site, hub

    async def linked(self):
        await eventually(self.site, linked(2), "the site is linked")
        await eventually(self.hub, linked(1), "the hub is linked")

    async def up(self):
        """Wait for the link; an agent that was killed may not know yet who subscribes."""
        for agent in (self.site, self.hub):
            await eventually(
                agent, lambda told: told["links"][0]["state"] == "up", "the link is up"
            )

    def streams(self, *, qos=1, rate_hz=300):
        """From the site and from the hub."""
        return both_ways(self.inside, self.outside, qos=qos, rate_hz=rate_hz)


@pytest.fixture
async def pair(plain):
    inside, outside = await asyncio.gather(plain.broker(), plain.broker())
    hub = await plain.agent(2, outside)
    site = await plain.agent(1, inside, outside.url, **SITE)
    made = Pair(inside, outside, site, hub)
    await made.linked()
    return made


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_publications_cross_both_ways_once_and_in_order(pair, qos):
    streams = pair.streams(qos=qos)

    async with flowing(streams):
        await asyncio.sleep(2)


@pytest.mark.parametrize("victim", ["site", "hub"])
async def test_a_killed_agent_comes_back_and_nothing_is_missing(pair, victim):
    agent = getattr(pair, victim)

    async with flowing(pair.streams(rate_hz=100), ends=none_lost):
        await asyncio.sleep(NOTED_S)
        agent.kill9()
        await asyncio.sleep(1)
        await agent.start()
        await pair.up()


async def test_a_link_is_back_after_the_death_of_either_broker(pair):
    for broker in (pair.outside, pair.inside):
        broker.kill9()
        await asyncio.sleep(0.5)
        await broker.start()
        await pair.linked()

        async with flowing(pair.streams(rate_hz=100)):
            pass


async def test_who_gives_the_link_up_is_not_spoken_to_any_more(pair):
    text = pair.site.config_path.read_text()
    at = text.index("[[neighbours]]")
    pair.site.config_path.write_text(text[:at] + text[text.index("[links]") :])

    os.kill(pair.site.pid, signal.SIGHUP)

    await eventually(pair.hub, lambda told: not told["links"], "its outbox is closed")


async def test_nobody_else_speaks_in_an_outbox(plain, tmp_path):
    """Forged and repeated words there are refused, and the link and what it carries stand."""
    office = Office(tmp_path / "office")
    inside, outside = await asyncio.gather(plain.broker(), plain.broker())
    hub = await plain.agent(2, outside, security="signed", more=office.section(2))
    site = await plain.agent(
        1, inside, outside.url, security="signed", more=office.section(1), **SITE
    )
    made = Pair(inside, outside, site, hub)
    await made.linked()
    streams = made.streams(rate_hz=50)
    ear = Client(outside.port, "ear", "$fed/fed/outbox/#", qos=0)

    async with running(*clients(streams), ear):
        begun = await begin(streams)
        await until(lambda: len(ear.came) > 100, "the stranger hears: there is no ACL")
        for packet in list(ear.packets):
            for payload in (packet.payload, packet.payload[:-1] + b"\0", b"", b"x" * 70):
                ear.link.publish(packet.topic, payload)
                ear.link.publish(packet.topic.replace("outbox/1/", ""), payload)
        refused = "site refuses"
        await eventually(site, lambda told: told["links"][0]["state"] == "up", refused)

        await all_came(streams, begun)

    assert (await hub.status())["links"][0]["state"] == "up"


@pytest.mark.parametrize(("outboxes", "let_in"), [([1], True), ([7], False)])
async def test_who_dials_nobody_back_keeps_outboxes_for_those_it_names(plain, outboxes, let_in):
    inside, outside = await asyncio.gather(plain.broker(), plain.broker())
    hub = await plain.agent(2, outside, links={"dial_back": False, "outboxes": outboxes})
    site = await plain.agent(1, inside, outside.url, **SITE)

    if let_in:
        await Pair(inside, outside, site, hub).linked()
    else:
        text = "does it keep an outbox for us"
        await eventually(
            site, lambda told: text in told["links"][0]["reason"], "the site says what is missing"
        )
        assert (await hub.status())["links"] == []


async def test_retained_values_cross_both_ways_to_who_comes_later(pair):
    speakers = [
        (Client(broker.port, f"speaker-{name}"), f"kept/{name}")
        for name, broker in (("site", pair.inside), ("hub", pair.outside))
    ]
    async with running(*(ear for ear, _ in speakers)):
        for ear, topic in speakers:
            await until(lambda e=ear: e.link.connected, "connected")
            packet = mqtt5.PublishPacket(topic, b"value", retain=True)
            assert ear.link.write_packets((packet.write(),), 1)
        await asyncio.sleep(0.5)

        at_hub = Client(pair.outside.port, "late-at-hub", "kept/site", qos=0)
        at_site = Client(pair.inside.port, "late-at-site", "kept/hub", qos=0)
        async with running(at_hub, at_site):
            await until(lambda: at_hub.came and at_site.came, "retained values come")

    assert [payload for _, payload in at_hub.came + at_site.came] == [b"value"] * 2


async def test_an_agent_that_comes_back_counts_those_who_hear_outboxes_at_its_broker(pair):
    """They subscribed before it listened, and do so again when it calls the roll."""
    await asyncio.sleep(NOTED_S)
    pair.hub.kill9()
    for left in pair.hub.state_dir.glob("subscriptions*"):
        left.unlink()
    await pair.hub.start()

    await pair.linked()
