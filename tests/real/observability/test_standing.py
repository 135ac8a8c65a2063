"""How real agents say they stand in the federation: alone, partly, joined or degraded, and why."""

import asyncio
import os
import signal
from urllib.request import urlopen

import pytest

from lab.grid.processes.broker import LOG_TOPIC_LINES
from lab.grid.processes.ports import free_ports
from tests.real.agent_log import named, tally
from tests.real.flow import running
from tests.real.observability.test_cli_agent import ran
from tests.real.observability.test_health import Monitor
from tests.real.plain_agents import QUICK, eventually
from tests.real.polling import until
from tests.real.trust.test_signed import Office, keys

NOT_WELL = 2


def stands(word, *reasons):
    """Whether an agent stands so, and gives all these reasons."""

    def judge(status):
        told = status["standing"]
        text = "; ".join(told["reasons"])
        return status["ready"] and told["word"] == word and all(r in text for r in reasons)

    return judge


async def all_stand(agents, word, *reasons):
    """Wait until all of them say so."""
    for agent in agents:
        await eventually(agent, stands(word, *reasons), f"agent {agent.config.id} {word}")


async def readyz(agent):
    with await asyncio.to_thread(urlopen, f"{agent.http}/readyz") as answer:
        return answer.status, answer.read().decode().strip()


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path / "office")


async def test_alone_partly_and_joined_are_told_everywhere(plain):
    here, there = await plain.broker(), await plain.broker()
    (nowhere,) = free_ports(1)
    one = await plain.agent(1, here)
    await all_stand([one], "alone")
    assert (await one.status())["standing"] == {"word": "alone", "well": True, "reasons": []}
    assert await readyz(one) == (200, "ready, alone")
    assert (await ran("status", "-c", str(one.config_path)))[0] == 0

    two = await plain.agent(2, there, here.url, f"mqtt://127.0.0.1:{nowhere}")
    await all_stand([one], "joined")
    await all_stand([two], "partly", f"mqtt://127.0.0.1:{nowhere}: connection refused")
    monitors = [Monitor(broker.port) for broker in (here, there)]
    async with running(*monitors):
        words = ["joined", "partly"]
        await until(lambda: [m.health().get("standing") for m in monitors] == words, "on brokers")
        await until(lambda: named(two, "agent.standing"), "in the log")
    (silent,) = [k for k in (await two.status())["links"] if str(nowhere) in k["address"]]
    assert silent["state"] == "connecting"
    assert tally(two)["connection.refused"] == 2  # of many attempts: control and data
    status, text = await readyz(two)
    code, told, _ = await ran("status", "-c", str(two.config_path))
    assert (status, text.partition(":")[0], code) == (200, "ready, partly", NOT_WELL)
    assert told.splitlines()[0] == "broker 2 of federation fed: ready, PARTLY"
    assert "connection refused" in told.splitlines()[1]
    assert len(told.splitlines()) <= 24

    await two.stop()
    await all_stand([one], "alone", "said bye")


async def test_a_neighbour_that_does_not_let_us_in_degrades_us(plain):
    here, there = await plain.broker(), await plain.broker(allow_anonymous=False)

    one = await plain.agent(1, here, there.url)

    await all_stand([one], "degraded", there.url, "not authorized")
    assert (await readyz(one))[0] == 200
    code, out, _ = await ran("status", "--json", "-c", str(one.config_path))
    assert (code, '"degraded"' in out) == (NOT_WELL, True)


async def test_open_against_signed_is_said_plainly_at_both_ends(plain, office):
    here, there = await plain.broker(), await plain.broker()
    signed = await plain.agent(1, here, there.url, security="signed", more=office.section(1))
    open_ = await plain.agent(2, there, here.url)

    await all_stand([open_], "degraded", "broker 1", "it is signed, and we are open")
    await all_stand([signed], "degraded", "broker 2", "without a seal")
    (line,) = named(open_, "control.malformed")[:1]
    assert (line["neighbour"], line["address"]) == (1, here.url)
    assert "it is signed, and we are open" in line["reason"]


async def test_who_is_revoked_is_degraded_and_so_is_who_revoked_it(plain, office):
    here, there = await plain.broker(), await plain.broker()
    one = await plain.agent(1, here, there.url, security="signed", more=office.section(1))
    two = await plain.agent(2, there, here.url, security="signed", more=office.section(2))
    await all_stand([one, two], "joined")

    keys("revoke", "--dir", office.folder, "--broker", 2)

    await all_stand([two], "degraded", "broker 1", "does not hear us")
    await all_stand([one], "degraded", "broker 2", "is revoked")


async def test_two_agents_of_one_id_degrade_all_who_see_both(plain, office):
    here, there, elsewhere = [await plain.broker() for _ in range(3)]
    one = await plain.agent(1, here, security="signed", more=office.section(1))
    two = await plain.agent(2, there, here.url, security="signed", more=office.section(2))
    await all_stand([one, two], "joined")

    copy = await plain.agent(2, elsewhere, here.url, security="signed", more=office.section(2))

    await all_stand([one], "degraded", "two agents have id 2", there.url, elsewhere.url)
    await all_stand([two], "degraded", "another agent has our id 2", elsewhere.url)
    await copy.stop()
    await all_stand([one, two], "joined")


async def test_a_neighbour_that_cannot_dial_us_back_is_named_at_both_ends(plain):
    here, there = await plain.broker(), await plain.broker()
    (nowhere,) = free_ports(1)
    url = f"mqtt://127.0.0.1:{nowhere}"
    one = await plain.agent(1, here, there.url, broker={"advertise": url})
    two = await plain.agent(2, there)

    await all_stand([one], "alone", there.url, f"does it reach our broker at {url}?")
    await all_stand(
        [two],
        "alone",
        f"broker 1 at {url}: one way only: its agent speaks here, and we do not reach its broker",
        "connection refused",
        'links.dial = "out" there',
    )
    link = (await one.status())["links"][0]
    assert (link["state"], "is not heard" in link["reason"]) == ("down", True)


async def test_a_broker_that_does_not_tell_its_log_is_named_at_start_until_it_is_mended(plain):
    lines = [line for line in LOG_TOPIC_LINES if line != "log_type unsubscribe"]
    silent = await plain.broker(log_topics=False)
    halting = await plain.broker(log_topics=False, extra_config=(*QUICK, *lines))
    first, second = await plain.agent(1, silent), await plain.agent(2, halting)

    await all_stand([first], "degraded", "tells nothing of its log")
    await all_stand([second], "degraded", "lacks `log_type unsubscribe`")
    (told,) = named(second, "discovery.log_missing")
    assert (told["missing"], told["add"]) == (["unsubscribe"], ["log_type unsubscribe"])
    assert "log_type subscribe" in named(first, "discovery.log_missing")[0]["add"]

    with (halting.folder / "mosquitto.conf").open("a") as conf:
        conf.write("log_type unsubscribe\n")
    os.kill(halting.pid, signal.SIGHUP)
    await all_stand([second], "alone")
    assert (await second.status())["standing"]["well"]


async def test_who_may_nothing_at_its_own_broker_is_not_ready_and_says_so(plain, tmp_path):
    """Mosquitto grants every subscription, so nothing but silence tells."""
    acl = tmp_path / "acl"
    acl.write_text("# nobody may anything\n")
    broker = await plain.broker(extra_config=(*QUICK, f"acl_file {acl}"))
    agent = await plain.agent(1, broker)

    status = await eventually(
        agent, lambda s: not s["ready"] and "ACL" in s["ready_reason"], "it says so"
    )

    assert "forbids us everything" in status["ready_reason"]
    assert not await agent.ready()
