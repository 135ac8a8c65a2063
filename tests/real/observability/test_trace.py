"""``federator trace`` on real brokers: it goes where data goes, and nobody gets anything."""

import asyncio
import json

import pytest

from lab.grid.processes.agent import KeyFolder
from tests.real.flow import Publisher, Subscriber, running
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until

DEADLINE_S = 60.0

ASKED_WITHIN_S = 10.0
"""A broker drops an agent that is silent for 15 s: a trace that took longer tells another story."""


async def joined(plain, neighbours, **options):
    """Agents and brokers by id; ``neighbours`` says who names whom."""
    brokers = {id: await plain.broker() for id in neighbours}
    keys = KeyFolder(plain.folder / "keys", "fed")
    agents = {}
    for id, others in neighbours.items():
        section = "".join(f"{key} = {json.dumps(v)}\n" for key, v in keys.section(id).items())
        urls = [brokers[other].url for other in others]
        options.setdefault("security", "open")
        options.setdefault("broker", {"name": "hall"})
        agents[id] = await plain.agent(id, brokers[id], *urls, more=f"[keys]\n{section}", **options)
    for id, agent in agents.items():
        around = {*neighbours[id], *(o for o, named in neighbours.items() if id in named)}
        await eventually(agent, linked(*around), "linked")
    return brokers, agents


async def traced(agent, topic, *options):
    """Exit code and what each broker told, by (from, to)."""
    code, out, err = await ran("trace", topic, "-c", str(agent.config_path), "--json", *options)
    assert err == ""
    told = [json.loads(line) for line in out.splitlines()]
    return code, {tuple(each["path"][-2:]): each for each in told}


@pytest.mark.parametrize("security", ["open", "sealed"])
@pytest.mark.few(1)
async def test_a_trace_goes_the_way_of_data_and_disturbs_nobody(plain, security):
    brokers, agents = await joined(plain, {1: [], 2: [1], 3: [2]}, security=security)
    subscriber = Subscriber(brokers[3].port, "a/#", client_id="sub")
    publisher = Publisher(brokers[1].port, "a/b", client_id="pub", rate_hz=20)
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        publisher.pause()
        await until(lambda: subscriber.came[publisher.sent - 1] > 0, "all came")
        before = subscriber.came.total()
        await eventually(agents[1], lambda told: len(told["names"]) == 3, "all are named")

        code, told = await traced(agents[1], "a/b")
        text = await ran("trace", "a/b", "-c", str(agents[1].config_path))
        nowhere = await ran("trace", "b", "-c", str(agents[1].config_path))
        again = [(await traced(agents[1], "a/b"))[0] for _ in range(3)]
        await asyncio.sleep(0.5)  # nothing is to come

        assert subscriber.came.total() == before
    assert code == 0
    assert set(told) == {(1,), (1, 2), (2, 3)}
    assert told[2, 3]["path"] == [1, 2, 3]
    assert told[2, 3]["delivers"]
    assert not told[1, 2]["delivers"]
    assert told[1, 2]["next_hops"] == [[3, 0]]
    sent, *came = told[2, 3]["times_us"]
    assert sent < came[0] < came[1] < told[2, 3]["back_us"]  # one machine, one clock
    assert text[0] == 0
    assert "└─ hall (2)" in text[1]
    assert "   └─ hall (3)" in text[1]
    assert told[1, 2]["names"] == {"1": "hall", "2": "hall", "3": "hall"}
    assert nowhere[1].startswith("b: nowhere from broker hall (1): ")
    assert again == [0, 0, 0]
    for agent in agents.values():
        counters = (await agent.status())["counters"]
        assert counters["data"]["malformed_frames"] == 0
        assert not any(counters["control_malformed"].values())


async def test_two_ways_meet_and_a_hop_that_is_silent_is_told(plain):
    patient = {"hello_timeout_ms": 60_000}  # the link to a silent one stays until the trace is sent
    brokers, agents = await joined(plain, {1: [], 2: [1], 3: [1], 4: [2, 3]}, links=patient)
    subscribers = [
        Subscriber(brokers[id].port, "a/#", client_id=f"sub-{id}") for id in (1, 2, 3, 4)
    ]
    publisher = Publisher(brokers[1].port, "a/b", client_id="pub", rate_hz=20)
    async with running(*subscribers, publisher):
        await gets_through(publisher, *subscribers)

        async def both_ways():
            code, told = await traced(agents[1], "a/b")
            return (code, told) if {(1, 2), (1, 3), (2, 4), (3, 4)} <= set(told) else None

        code, told = await until(both_ways, "a trace takes both ways")
        assert code == 0
        assert sorted(told[hop]["first"] for hop in ((2, 4), (3, 4))) == [False, True]
        assert [told[hop]["delivers"] for hop in ((1, 2), (1, 3))] == [True, True]

        took_s = ASKED_WITHIN_S
        while took_s >= ASKED_WITHIN_S:
            await until(both_ways, "again")
            begun_s = asyncio.get_running_loop().time()
            agents[2].pause()
            try:
                silent = await ran("trace", "a/b", "-c", str(agents[1].config_path), "--wait", "1")
            finally:
                agents[2].resume()
            took_s = asyncio.get_running_loop().time() - begun_s

    assert silent[0] == 1
    assert "hall (2)" in silent[1]
    assert "NO ANSWER" in silent[1]


async def test_rules_of_a_link_stop_a_trace_as_they_stop_data(plain, tmp_path):
    one, two = await plain.broker(), await plain.broker()
    rule = f'[[neighbours]]\nid = 2\nurl = "{two.url}"\nexport = ["open/#"]'
    first = await plain.agent(1, one, more=rule)
    await plain.agent(2, two, one.url)
    await eventually(first, linked(2), "linked")
    subscriber = Subscriber(two.port, "#", client_id="sub")
    wide = Subscriber(two.port, "+/x", client_id="wide")
    publisher = Publisher(one.port, "open/x", client_id="pub", rate_hz=20)
    async with running(subscriber, wide, publisher):
        await gets_through(publisher, wide)

        passes = await traced(first, "open/x")
        stopped = await traced(first, "secret/x")

    assert set(passes[1]) == {(1,), (1, 2)}
    assert stopped[1][1,]["next_hops"] == []


async def test_orders_that_are_none_are_counted_and_too_many_are_let_lie(plain):
    brokers, agents = await joined(plain, {1: []})
    reader = Subscriber(brokers[1].port, "$fed/fed/traced/t", client_id="reader")
    answers = []
    reader.on_publishes = lambda link, chunk, publishes: answers.extend(publishes)
    async with running(reader):
        await until(lambda: reader.link.subscribed, "subscribed")
        for payload in (
            b"",
            b"{}",
            b'{"token": "a/b", "topic": "x"}',
            b'{"token":"t","topic":"#"}',
        ):
            reader.link.publish("$fed/fed/trace", payload)
        for _ in range(200):
            reader.link.publish("$fed/fed/trace", b'{"token": "t", "topic": "x"}')

        await eventually(
            agents[1], lambda status: status["tracing"]["malformed"] == 4 and answers, "orders came"
        )
    assert len(answers) < 100
