"""SIGHUP to a real agent beside real brokers: what changes at once, and that nothing is lost."""

import asyncio
import json
import os
import signal
import time
from dataclasses import replace

import pytest

from federator.cli.observe.status import as_text
from federator.runtime.process.reloading import GAP_S
from lab.grid.processes.daemons import CollectorProcess
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.real.agent_log import named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.logins import write_passwords, write_secret
from tests.real.observability.test_health import Monitor
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until

QOS = 1
STORM = 100
HASTY = {"hello_interval_ms": 200, "hello_timeout_ms": 1_000}


def neighbour(broker, **keys):
    """One neighbour, as TOML."""
    lines = ["[[neighbours]]", f"url = {json.dumps(broker.url)}"]
    return "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in keys.items()), ""])


def write(agent, *more):
    """Put ``more`` into the configuration of ``agent`` in place of what a test put there before."""
    agent.config = replace(agent.config, more="\n".join(more))
    whole = agent.config_path.with_suffix(".new")
    whole.write_text(agent.config.toml(agent.state_dir))
    whole.replace(agent.config_path)


def told(agent):
    """What came of the readings so far."""
    names = ("config.reloaded", "config.refused", "config.restart_wanted")
    return [event for name in names for event in named(agent, name)]


async def reload(agent, *more):
    """Let ``agent`` read ``more``; the lines of its log about that."""
    write(agent, *more)
    before, readings = len(told(agent)), (await agent.status())["configuration"]["readings"]
    os.kill(agent.pid, signal.SIGHUP)
    await eventually(agent, lambda s: s["configuration"]["readings"] > readings, "it is read")
    await until(lambda: len(told(agent)) > before, "it is told")
    return told(agent)[before:]


async def pair(plain):
    """An agent that names its neighbour, and the brokers of both."""
    one, two = [await plain.broker() for _ in range(2)]
    agent = await plain.agent(1, one, more=neighbour(two, id=2))
    await plain.agent(2, two)
    await eventually(agent, linked(2), "two are linked")
    return agent, one, two


def cost_to(broker):
    """The cost of the link to ``broker``."""

    def found(status):
        return [
            k["cost"] for k in status["links"] if k["neighbour"] == broker and k["state"] == "up"
        ]

    return found


@pytest.mark.slow
async def test_links_costs_rules_and_the_log_change_under_traffic_and_nothing_is_lost(plain):
    one, two, three = [await plain.broker() for _ in range(3)]
    first = await plain.agent(1, one, more=neighbour(two, id=2))
    second = await plain.agent(2, two)
    third = await plain.agent(3, three, two.url)
    await eventually(first, linked(2), "a line of three")
    await eventually(third, linked(2), "a line of three")
    source = Publisher(one.port, "a/b", client_id="source", rate_hz=100, qos=QOS)
    kept = Publisher(one.port, "secret/b", client_id="kept", rate_hz=20, qos=QOS)
    sinks = [
        Subscriber(b.port, "a/#", client_id=f"sink-{i}", qos=QOS)
        for i, b in enumerate((two, three))
    ]
    spy = Subscriber(three.port, "secret/#", client_id="spy", qos=QOS)

    async with running(source, kept, spy, *sinks):
        await gets_through(source, *sinks)
        await gets_through(kept, spy)
        since = source.sent
        started = {sink: max(sink.came) for sink in sinks}

        # A link is added, and costs less than the way there was.
        (line,) = await reload(first, neighbour(two, id=2, cost=7), neighbour(three, cost=2))
        assert f"neighbours[{three.url}]: not named -> named" in line["changed"]
        await eventually(first, linked(2, 3), "the new link is up")
        await eventually(first, lambda s: cost_to(2)(s) == [7] and cost_to(3)(s) == [2], "costs")
        await gets_through(source, *sinks)

        # A rule is added, and the log is told more.
        await reload(
            first,
            neighbour(two, id=2, cost=7),
            neighbour(three, cost=2),
            '[rules]\nkeep = ["secret/#"]',
        )
        kept_from = kept.sent + 1
        await gets_through(source, *sinks)
        await until(lambda: kept.sent > kept_from + 10, "more is kept")
        kept_to = kept.sent

        # The first link is given up: by both ends, though the other had dialled back.
        await reload(first, neighbour(three, cost=2), '[rules]\nkeep = ["secret/#"]')
        await eventually(first, linked(3), "one link is left")
        await eventually(second, linked(3), "one link is left there")
        await gets_through(source, *sinks)

        # It comes back, and the rule goes.
        await reload(first, neighbour(two, cost=1), neighbour(three, cost=2))
        await eventually(first, linked(2, 3), "both links are up")
        await eventually(second, linked(1, 3), "both links are up there")
        let_go_from = kept.sent + 1
        await gets_through(kept, spy)
        await gets_through(source, *sinks)
        source.pause()
        kept.pause()
        for sink in sinks:
            await until(lambda s=sink: source.sent - 1 in s.came, "the last arrives")
        await until(lambda: kept.sent - 1 in spy.came, "the last arrives that is kept no more")

    for sink in sinks:
        assert sink.duplicates == 0
        assert set(range(started[sink], source.sent)) <= set(sink.came)
        assert since < source.sent
    assert spy.duplicates == 0
    assert not set(range(kept_from, kept_to)) & set(spy.came)
    assert set(range(let_go_from, kept.sent)) <= set(spy.came)
    plain.assert_calm()


async def test_a_file_with_a_mistake_is_told_in_one_line_and_the_agent_goes_on_as_it_was(plain):
    agent, _, two = await pair(plain)

    (line,) = await reload(agent, neighbour(two, id=2, cost=0), "[mesh]\nredundancy = 4")

    status = await agent.status()
    assert (line["event"], line["level"]) == ("config.refused", "error")
    assert str(agent.config_path) in line["reason"]
    assert "neighbours[0].cost = 0: it should be greater than or equal to 1" in line["reason"]
    assert status["configuration"]["refused"] == line["reason"]
    assert cost_to(2)(status) == [1]

    (line,) = await reload(agent, neighbour(two, id=2), "[mesh]\nredundancy = 4")
    assert (line["event"], line["keys"]) == ("config.restart_wanted", ["mesh.redundancy: 2 -> 4"])
    told = as_text(await agent.status())
    assert "waits for a restart: mesh.redundancy: 2 -> 4" in told
    await agent.restart()
    await eventually(agent, linked(2), "they are linked again")
    assert (await agent.status())["configuration"]["restart_wanted"] == []


async def test_a_hundred_signals_in_a_second_are_a_few_readings(plain):
    agent, one, two = await pair(plain)
    source = Publisher(one.port, "a", client_id="source", rate_hz=100, qos=QOS)
    sink = Subscriber(two.port, "a", client_id="sink", qos=QOS)

    async with running(source, sink):
        await gets_through(source, sink)
        first, began_s = max(sink.came), time.monotonic()
        for number in range(STORM):
            write(agent, neighbour(two, id=2, cost=number % 7 + 1))
            os.kill(agent.pid, signal.SIGHUP)
            await asyncio.sleep(1 / STORM)
        write(agent, neighbour(two, id=2, cost=50))
        os.kill(agent.pid, signal.SIGHUP)
        await eventually(agent, lambda s: cost_to(2)(s) == [50], "the last word counts")
        took_s = time.monotonic() - began_s
        await gets_through(source, sink)
        source.pause()
        await until(lambda: source.sent - 1 in sink.came, "the last arrives")

    assert (await agent.status())["configuration"]["readings"] <= took_s / GAP_S + 1
    assert (sink.duplicates, set(range(first, source.sent)) - set(sink.came)) == (0, set())
    plain.assert_calm()


async def test_a_neighbour_that_names_us_is_linked_with_again_when_we_name_it_no_more(plain):
    one, two = [await plain.broker() for _ in range(2)]
    agent = await plain.agent(1, one, more=neighbour(two, id=2), links=HASTY)
    other = await plain.agent(2, two, one.url, links=HASTY)
    await eventually(agent, linked(2), "two are linked")
    await eventually(other, linked(1), "two are linked")

    await reload(agent, "")

    await until(lambda: named(agent, "link.down"), "the link was given up")
    status = await eventually(agent, linked(2), "the other end made it again")
    assert [link["dialled_back"] for link in status["links"]] == [True]


async def test_the_broker_of_a_neighbour_that_is_given_up_is_told_that_the_link_is_down(plain):
    agent, _, two = await pair(plain)
    monitor = Monitor(two.port)

    async with running(monitor):
        await until(lambda: monitor.state(1) == b"1", "the link is up for the broker there")
        await reload(agent)
        await until(lambda: monitor.state(1) == b"0", "the link was given up")


async def test_a_password_is_read_again_where_no_key_has_changed(plain, tmp_path):
    passwords = write_passwords(tmp_path / "passwords", "federator")
    one = await plain.broker()
    two = await plain.broker(allow_anonymous=False, extra_config=(f"password_file {passwords}",))
    secret = write_secret(tmp_path / "secret")
    right = {"username": "federator", "password_file": str(secret)}
    wrong = tmp_path / "other"
    wrong.touch(mode=0o600)
    wrong.write_text("wrong")
    named_two = neighbour(two, id=2, username="federator", password_file=str(wrong))
    agent = await plain.agent(1, one, more=named_two)
    await plain.agent(2, two, broker=right)
    await until(lambda: named(agent, "connection.refused"), "the password is wrong")

    wrong.write_text(secret.read_text())
    await reload(agent, named_two)

    await eventually(agent, linked(2), "two are linked")


@pytest.mark.parametrize("kind", ["gateway", "collector"])
async def test_gateway_and_collector_go_on_and_change_the_level_of_their_log(
    broker, tmp_path, kind
):
    folder = tmp_path / kind
    if kind == "gateway":
        process = GatewayProcess(folder, GatewayConfig("door", {1: broker.url}))
    else:
        process = CollectorProcess(folder, broker.url)
    path = folder / ("collect.toml" if kind == "collector" else f"{kind}.toml")

    async with process:
        text = path.read_text()
        path.write_text(text.replace('format = "json"', 'format = "console"\nlevel = "debug"'))
        os.kill(process.pid, signal.SIGHUP)
        await until(lambda: named(process, "config.restart_wanted"), "it is told")
        assert process.running
        (followed,) = named(process, "config.reloaded")
        (waiting,) = named(process, "config.restart_wanted")

    assert followed["changed"] == ["log.level: info -> debug"]
    assert waiting["keys"] == ["log.format: json -> console"]
