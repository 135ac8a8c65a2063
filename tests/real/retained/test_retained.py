"""Retained values across real brokers. docs/protocol.md, section 13."""

import asyncio
import time

import pytest
import pytest_asyncio

from lab.grid.running import RunningGrid
from lab.grid.topology import Grid, Link
from tests.real.plain_agents import QUICK, Plain, eventually, linked
from tests.real.polling import until
from tests.real.refusing import refuse
from tests.real.retained.retained_clients import client, kept_by

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIRST, MIDDLE, LAST = 0, 1, 2
CUT = Link(FIRST, MIDDLE)
AGREED_S_MAX = 20.0  # measured: up to 2 s, and 4 s at a load of 18


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(tmp_path_factory):
    grid = RunningGrid(
        Grid(1, 3, 0), tmp_path_factory.mktemp("line"), link_delay_ms=5, broker_options=QUICK
    )
    await grid.start()
    yield grid
    await grid.stop()


async def agreed(line, topic_filter, wanted, *ids):
    """Wait until the brokers retain what is wanted."""
    for here in ids:
        await until_holds(line.brokers[here], topic_filter, wanted)


async def passed(listener, publisher, topic, *, as_=None):
    """Wait until something that is published now came: whatever was under way before is here."""
    publisher.send(topic, b"passed")
    await until(lambda: (as_ or topic, b"passed") in listener.came, "the last one comes")


async def test_a_late_subscriber_gets_each_value_once_with_its_qos_wherever_it_was_set(line):
    first, middle, last = line.brokers.values()
    async with client(first, "setter") as setter, client(middle, "other") as other:
        await setter.set("early/a", b"1")
        await setter.set("early/a", b"2", qos=2)
        await setter.set("early/b", b"3", qos=0)
        await setter.set("early/gone", b"4")
        await setter.set("early/gone", b"")
        await other.set("early/c", b"5")

        async with client(last, "late", "early/#", qos=2) as late:
            await until(lambda: len(late.latest) == 3, "the values come")
            await passed(late, setter, "early/end")

            assert sorted(late.came[:-1]) == [
                ("early/a", b"2"),
                ("early/b", b"3"),
                ("early/c", b"5"),
            ]
            assert late.qos_of == {"early/a": 2, "early/b": 0, "early/c": 1, "early/end": 1}


async def test_changes_and_deletes_on_one_side_of_a_cut_hold_everywhere_after_it(line):
    first, middle, last = line.brokers.values()
    async with (
        client(first, "setter") as setter,
        client(middle, "other") as other,
        client(first, "near", "cut/#") as near,
        client(last, "far", "cut/#") as far,
    ):
        for topic in ("cut/same", "cut/changed", "cut/deleted", "cut/both"):
            await setter.set(topic, b"old")
        await until(lambda: len(far.latest) == len(near.latest) == 4, "values everywhere")

        await line.order("cut", CUT)
        await line.until(lambda statuses: None if is_down(statuses) else "the link is up")
        await setter.set("cut/both", b"first")
        await setter.set("cut/changed", b"once", qos=0)
        await setter.set("cut/changed", b"new", qos=0)
        await setter.set("cut/deleted", b"")
        await setter.set("cut/added", b"new", qos=0)
        await other.set("cut/both", b"second")  # comes first where the first comes late
        await line.order("heal", CUT)
        await line.until(line.links_up)
        up_s = time.monotonic()
        wanted = {
            "cut/same": b"old",
            "cut/changed": b"new",
            "cut/added": b"new",
            "cut/both": b"second",
        }
        await until(lambda: far.latest == near.latest == wanted, "both sides agree")
        took_s = time.monotonic() - up_s

        assert took_s <= AGREED_S_MAX
        assert far.came.count(("cut/changed", b"new")) == 1
        assert ("cut/changed", b"once") not in far.came
        await agreed(line, "cut/#", wanted, FIRST, LAST)
        async with client(middle, "joiner", "cut/#") as joiner:
            await until(lambda: len(joiner.latest) == 4, "the values come")
            await passed(joiner, setter, "cut/end")
            assert sorted(joiner.came[:-1]) == sorted(wanted.items())


def is_down(statuses):
    links = statuses[FIRST]["links"]
    return not any(k["neighbour"] == MIDDLE and k["state"] == "up" for k in links)


async def test_what_was_set_while_an_agent_was_dead_wins_and_its_old_values_do_not_return(line):
    first, _, last = line.brokers.values()
    async with (
        client(first, "setter") as setter,
        client(last, "other") as other,
        client(last, "far", "dead/#") as far,
        client(first, "near", "dead/#") as near,
    ):
        for topic in ("dead/here", "dead/there", "dead/deleted", "dead/gone"):
            await setter.set(topic, b"old")
        await until(lambda: len(far.latest) == len(near.latest) == 4, "values everywhere")

        line.agents[FIRST].kill9()
        await setter.set("dead/here", b"new")
        await setter.set("dead/gone", b"")
        await other.set("dead/there", b"new")
        await other.set("dead/deleted", b"")
        await line.agents[FIRST].restart()

        wanted = {"dead/here": b"new", "dead/there": b"new"}
        await until(lambda: far.latest == near.latest == wanted, "both sides agree")
        assert [p for t, p in far.came if t == "dead/there"] == [b"old", b"new"]
        assert [p for t, p in far.came if t == "dead/here"] == [b"old", b"new"]
        await agreed(line, "dead/#", wanted, FIRST, LAST)


@pytest.mark.parametrize("killed", [True, False])
async def test_a_broker_that_lost_its_values_gets_them_back(line, killed):
    first, _, last = line.brokers.values()
    topic = f"lost{killed}"
    async with client(first, "setter") as setter, client(last, "far", f"{topic}/#") as far:
        await setter.set(f"{topic}/a", b"1")
        await setter.set(f"{topic}/b", b"2")
        await until(lambda: len(far.latest) == 2, "values everywhere")
        await setter.set(f"{topic}/b", b"")
        await until(lambda: len(far.latest) == 1, "the delete comes")
        far.came.clear()

        if killed:
            last.kill9()
        await last.restart()

        await agreed(line, f"{topic}/#", {f"{topic}/a": b"1"}, FIRST, LAST)
        await until(lambda: far.latest == {f"{topic}/a": b"1"}, "the subscriber has it again")


async def test_a_broker_that_comes_up_with_an_old_file_does_not_bring_old_values_back(tmp_path):
    grid = RunningGrid(Grid(1, 2, 0), tmp_path, link_delay_ms=5, broker_options=QUICK)
    saves = (*QUICK, "persistence true", f"persistence_location {tmp_path}/", "autosave_interval 0")
    grid.brokers[1] = type(grid.brokers[1])(tmp_path / "saving", extra_config=saves)
    async with grid:
        first, saving = grid.brokers.values()
        async with client(first, "setter") as setter, client(first, "near", "file/#") as near:
            async with client(saving, "other", "file/#") as other:
                await other.set("file/changed", b"old")
                await other.set("file/deleted", b"old")
                await until(lambda: len(near.latest) == 2, "values everywhere")
                await saving.restart()  # saves
                await grid.until(grid.links_up)
                await until(lambda: other.link.subscribed, "the client is back, too")
                await setter.set("file/changed", b"new")
                await setter.set("file/deleted", b"")
                await until(lambda: other.latest == {"file/changed": b"new"}, "changes come")

            near.came.clear()
            grid.agents[1].pause()  # it would mend the broker before anybody looks
            saving.kill9()
            await saving.restart()
            assert await kept_by(saving, "file/deleted") == {"file/deleted": b"old"}
            grid.agents[1].resume()
            await grid.until(grid.links_up)

            await agreed(grid, "file/#", {"file/changed": b"new"}, 0, 1)
            assert near.latest.get("file/changed", b"new") == b"new"
            assert "file/deleted" not in dict(near.came)


async def test_values_travel_under_their_names_in_the_federation_and_denied_ones_do_not(tmp_path):
    rules = """
        [rules]
        rename = [{local = "plant/", federation = "eu/plant/"}]
        deny = ["eu/plant/secret"]
    """
    async with Plain(tmp_path) as plain:
        here, there = await plain.broker(), await plain.broker()
        one = await plain.agent(1, here, more=rules)
        two = await plain.agent(2, there, (here.url, 1))
        await eventually(one, linked(2), "linked")
        await eventually(two, linked(1), "linked")
        async with client(here, "setter") as setter, client(there, "other") as other:
            await setter.set("plant/x", b"1")
            await setter.set("plant/secret", b"2")
            await other.set("eu/plant/y", b"3")
            await other.set("eu/plant/secret", b"4")

            async with (
                client(there, "far", "eu/#") as far,
                client(here, "near", "plant/#") as near,
            ):
                await until(lambda: ("eu/plant/x", b"1") in far.came, "the value comes")
                await until(lambda: ("plant/y", b"3") in near.came, "the other comes")
                await passed(far, setter, "plant/end", as_="eu/plant/end")

                assert "eu/plant/secret" in dict(far.came)  # its own broker's
                assert ("eu/plant/secret", b"2") not in far.came
                assert ("plant/secret", b"4") not in near.came
                await other.set("eu/plant/x", b"")
                await until(lambda: ("plant/x", b"") in near.came, "the delete comes")
                assert "plant/x" not in await kept_by(here, "plant/#")


async def test_values_that_cross_on_their_way_end_the_same_on_both_brokers(line):
    first, _, last = line.brokers.values()
    async with (
        client(first, "one", "cross/#") as one,
        client(last, "two", "cross/#") as two,
    ):
        await one.set("cross/0", b"begin")
        await until(lambda: two.came, "the mesh stands")
        for number in range(100):
            one.send(f"cross/{number % 5}", b"one %d" % number, qos=number % 2)
            two.send(f"cross/{number % 5}", b"two %d" % number, qos=number % 2)
            await asyncio.sleep(0.002)

        async def agree():
            held = [await kept_by(broker, "cross/#") for broker in (first, last)]
            return held[0] == held[1] == one.latest == two.latest

        await until(agree, lambda: f"{one.latest} and {two.latest} agree")


async def test_a_filter_that_a_broker_refuses_its_agent_keeps_no_other_from_comparing(plain):
    far, near = (
        await plain.broker(),
        await plain.broker(extra_config=(*QUICK, *refuse(plain.folder, "no/#"))),
    )
    agents = [await plain.agent(1, far), await plain.agent(2, near, far.url)]
    await eventually(agents[0], linked(2), "linked")
    await eventually(agents[1], linked(1), "linked")
    async with client(far, "setter") as setter, client(near, "other") as other:
        await setter.set("yes/1", b"far")
        await setter.set("no/1/1", b"far")
        await other.set("yes/2", b"near")
        await other.set("no/2/2", b"near")
        async with (
            client(near, "late", "yes/#") as late,
            client(far, "far", "no/#", "no/2/+", "yes/#") as far_one,
        ):
            await until(lambda: late.latest == {"yes/1": b"far", "yes/2": b"near"}, "what may")
            both = {"yes/1": b"far", "yes/2": b"near", "no/1/1": b"far"}
            await until(lambda: both.items() <= far_one.latest.items(), "what may, there")
            await eventually(agents[0], lambda s: s["retained"]["failed"] == 0, "none fails")
            await eventually(agents[1], lambda s: s["retained"]["failed"] == 0, "none fails")


async def test_what_is_removed_at_one_broker_is_removed_where_it_was_set_though_nobody_wants_it(
    plain,
):
    far, near = await plain.broker(), await plain.broker()
    agents = [await plain.agent(1, far), await plain.agent(2, near, far.url)]
    await eventually(agents[0], linked(2), "linked")
    await eventually(agents[1], linked(1), "linked")
    async with client(far, "setter") as setter:
        for number in range(50):
            await setter.set(f"old/{number}/config", b"1")
        await setter.set("other/1", b"1")

    command = ["mosquitto_sub", "-p", str(near.port), "-V", "5", "--retain-as-published"]
    command += ["--remove-retained", "-t", "old/#"]
    removes = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    try:
        await eventually(agents[1], lambda s: s["retained"]["values_fetched"] == 50, "they come")
        await until_holds(near, "old/#", {})
    finally:
        removes.terminate()
        await removes.wait()

    await until_holds(far, "#", {"other/1": b"1"})


async def test_of_values_set_at_two_brokers_one_after_the_other_the_later_one_holds_everywhere(
    plain,
):
    more = "[retained]\nresync_s = 1\n"
    far, near = await plain.broker(), await plain.broker()
    agents = [
        await plain.agent(1, far, more=more),
        await plain.agent(2, near, far.url, more=more),
    ]
    await eventually(agents[0], linked(2), "linked")
    await eventually(agents[1], linked(1), "linked")
    async with client(far, "first") as first, client(near, "second") as second:
        await first.set("both/0", b"0")
        async with client(near, "was-here", "both/#") as was_here:
            await until(lambda: was_here.latest, "somebody wanted it once")
        await looks_pass(agents)

        await second.set("both/1", b"near, first")
        await looks_pass(agents)
        await first.set("both/1", b"far, later")
        await until_holds(near, "both/1", {"both/1": b"far, later"})
        await until_holds(far, "both/1", {"both/1": b"far, later"})


async def looks_pass(agents):
    """Wait until each agent has compared a few times more."""
    for agent in agents:
        looks = (await agent.status())["retained"]["looks"]
        await eventually(agent, lambda s, n=looks: s["retained"]["looks"] > n + 3, "it looks")


async def until_holds(broker, topic_filter, wanted):
    """Wait until ``broker`` retains what is wanted."""
    held = None

    async def holds():
        nonlocal held
        held = await kept_by(broker, topic_filter)
        return held == wanted

    await until(holds, lambda: f"it has {held}, wanted {wanted}")
