"""Home Assistant's devices on real brokers: told, carried, kept current, and taken back."""

import json
from dataclasses import replace

from tests.home_assistant import DevicePayload
from tests.real.client import Client
from tests.real.flow import running
from tests.real.plain_agents import eventually, linked
from tests.real.polling import until

ON = "[home_assistant]\ndiscovery = true\n"
OWN = "homeassistant/device/federator_fed_1/config"
LINK = "homeassistant/device/federator_fed_1_2/config"


class Assistant(Client):
    """A Home Assistant at one broker, as far as it reads: what it heard last, by topic."""

    def __init__(self, port):
        super().__init__(port, f"assistant-{port}", "homeassistant/#", "federator/#", qos=0)

    def json(self, topic):
        return json.loads(self.last.get(topic) or b"{}")

    def devices(self):
        return {topic for topic, said in self.last.items() if topic.endswith("/config") and said}


async def said(assistant, condition, what):
    await until(lambda: condition(assistant), what)


async def test_a_home_assistant_at_another_broker_sees_broker_and_link_until_it_is_switched_off(
    plain,
):
    brokers = [await plain.broker() for _ in range(2)]
    one = await plain.agent(1, brokers[0], brokers[1].url, broker={"name": "hall"}, more=ON)
    two = await plain.agent(2, brokers[1], brokers[0].url)
    await eventually(one, linked(2), "linked")
    assistant = Assistant(brokers[1].port)

    async with running(assistant):
        await said(assistant, lambda a: a.devices() == {OWN, LINK}, "the devices are told")
        for topic in (OWN, LINK):
            told = DevicePayload.taken(topic, assistant.json(topic))
            await said(
                assistant, lambda a, t=told: a.last.get(t.availability_topic) == b"online", "there"
            )
            await said(assistant, lambda a, t=told: a.json(t.state_topic), "its state is said")
        assert assistant.json(OWN)["device"]["name"] == "Broker hall (1)"
        state = assistant.json(LINK)["state_topic"]
        await said(
            assistant,
            lambda a: a.json(state)["up"] == "ON" and a.json(state)["round_trip_ms"] > 0,
            "the link's delay",
        )

        two.kill9()
        near = Assistant(brokers[0].port)
        async with running(near):
            await said(near, lambda a: a.json(state).get("up") == "OFF", "the link is down")
            await one.stop()
            await said(
                near, lambda a: a.last["federator/fed/1/availability"] == b"offline", "it left"
            )
            assert near.devices() == {OWN, LINK}

            one.config = replace(one.config, more="")
            await one.start()
            await said(near, lambda a: not a.devices(), "the devices are taken back")
