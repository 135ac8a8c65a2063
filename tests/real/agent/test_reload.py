"""SIGHUP to a real agent beside real brokers: what changes at once, and that nothing is lost."""

import asyncio
import json
import os
import signal
from dataclasses import replace

from tests.real.agent_log import named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until

QOS = 1


def neighbour(broker, **keys):
    """One neighbour, as TOML."""
    lines = ["[[neighbours]]", f"url = {json.dumps(broker.url)}"]
    return "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in keys.items()), ""])


def write(agent, *more):
    """Put ``more`` into the configuration of ``agent`` in place of what a test put there before."""
    agent.config = replace(agent.config, more="\n".join(more))
    agent.config_path.write_text(agent.config.toml(agent.state_dir))


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


def cost_to(broker):
    """The cost of the link to ``broker``."""

    def found(status):
        return [k["cost"] for k in status["links"] if k["neighbour"] == broker and k["state"] == "up"]

    return found


async def test_links_costs_rules_and_the_log_change_under_traffic_and_nothing_is_lost(plain):
    one, two, three = [await plain.broker() for _ in range(3)]
    first = await plain.agent(1, one, more=neighbour(two, id=2))
    second = await plain.agent(2, two)
    third = await plain.agent(3, three, two.url)
    await eventually(first, linked(2), "a line of three")
    await eventually(third, linked(2), "a line of three")
    source = Publisher(one.port, "a/b", client_id="source", rate_hz=100, qos=QOS)
    kept = Publisher(one.port, "secret/b", client_id="kept", rate_hz=20, qos=QOS)
    sinks = [Subscriber(b.port, "a/#", client_id=f"sink {i}", qos=QOS) for i, b in enumerate((two, three))]
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
        before = kept.sent
        await gets_through(source, *sinks)
        await until(lambda: kept.sent > before + 10, "more is kept")

        # The first link is given up: by both ends, though the other had dialled back.
        await reload(first, neighbour(three, cost=2), '[rules]\nkeep = ["secret/#"]')
        await eventually(first, linked(3), "one link is left")
        await eventually(second, linked(3), "one link is left there")
        await gets_through(source, *sinks)

        # It comes back, and the rule goes.
        await reload(first, neighbour(two, cost=1), neighbour(three, cost=2))
        await eventually(first, linked(2, 3), "both links are up")
        await eventually(second, linked(1, 3), "both links are up there")
        await gets_through(kept, spy)
        await gets_through(source, *sinks)
        source.pause()
        for sink in sinks:
            await until(lambda s=sink: source.sent - 1 in s.came, "the last arrives")

    for sink in sinks:
        assert sink.duplicates == 0
        assert set(range(started[sink], source.sent)) <= set(sink.came)
        assert since < source.sent
    plain.assert_calm()
