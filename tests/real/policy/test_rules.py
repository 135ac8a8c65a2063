"""Rules of links and of the federation, and renamed prefixes, with real brokers at both ends.

docs/rules.md.
"""

import asyncio
import contextlib
import json
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from mqtt5 import PublishPacket

from tests.real.client import Client
from tests.real.flow import running
from tests.real.plain_agents import Plain, eventually, linked
from tests.real.polling import DEADLINE_S, until
from tests.real.retained.retained_clients import retain

PROBE = b"probe"


class Probed(Client):
    """Subscribes and publishes at one broker.

    Attributes:
        probed: The topics on which probes came.
    """

    def __init__(self, broker, name, *filters):
        super().__init__(broker.port, name, *filters, qos=2)
        self.probed = set()

    @property
    def topics(self):
        return sorted(topic for topic, _ in self.came)

    def publish(self, *topics, qos=0):
        for topic in topics:
            self.link.publish(topic, topic.encode(), qos=qos)

    def retain(self, topic):
        retain(self.link, topic, topic.encode())

    def on_publishes(self, link, chunk, publishes):
        self.probed.update(p.topic for p, _, _ in publishes if p.payload == PROBE)
        super().on_publishes(link, chunk, [p for p in publishes if p[0].payload != PROBE])


def one_each(brokers, filters):
    return [Probed(broker, f"client-{n}", *filters) for n, broker in enumerate(brokers, start=1)]


def rules(**keys):
    return "\n".join(["[rules]", *(f"{key} = {value}" for key, value in keys.items()), ""])


def neighbour(broker, id, **keys):
    lines = ["[[neighbours]]", f"url = {json.dumps(broker.url)}", f"id = {id}"]
    return "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in keys.items()), ""])


def knows(*filters):
    """Whether an agent has a way for each of ``filters``."""

    def fault(status):
        ways = {mesh["filter"] for mesh in status["meshes"] if mesh["next_hops"]}
        return status["ready"] and not status["discovery"]["widened"] and ways >= set(filters)

    return fault


async def settled(neighbours):
    """Each agent is linked with its neighbours, and reads its broker's log."""
    for agent, ids in neighbours.items():
        await eventually(agent, linked(*ids), f"linked with {ids}")


async def open_ways(*ways):
    """Probe until each way, as (publisher, its topic, subscriber, the topic there), is open."""
    async with asyncio.timeout(DEADLINE_S):
        for publisher, topic, subscriber, name in ways:
            while name not in subscriber.probed:
                publisher.link.publish(topic, PROBE)
                await asyncio.sleep(0.02)


async def explained(agent, topic):
    """The agent's answer to where ``topic`` goes."""
    url = f"{agent.http}/explain?{urlencode({'topic': topic})}"
    with await asyncio.to_thread(urlopen, url) as answer:
        return json.load(answer)


@contextlib.asynccontextmanager
async def clients(*all_clients):
    async with running(*all_clients):
        await until(lambda: all(c.link.subscribed for c in all_clients), "clients subscribe")
        yield


@pytest.mark.parametrize("qos", [0, 1])
async def test_each_link_imports_exports_and_denies_what_it_says(tmp_path, qos):
    async with Plain(tmp_path) as plain:
        one, two, three = [await plain.broker() for _ in range(3)]
        guarded = neighbour(two, 2, **{"import": ["in/#"], "export": ["out/#"], "deny": ["+/no"]})
        first = await plain.agent(1, one, more=guarded + neighbour(three, 3))
        second = await plain.agent(2, two, one.url)
        third = await plain.agent(3, three, one.url)
        await settled({first: (2, 3), second: (1,), third: (1,)})
        filters = ("in/+", "out/+", "end")
        at_one, at_two, at_three = one_each((one, two, three), filters)
        async with clients(at_one, at_two, at_three):
            for agent in (first, second, third):
                await eventually(agent, knows(*filters), "all filters are known")
            ways = [(at_one, "out/p", at_two, "out/p"), (at_two, "in/p", at_one, "in/p")]
            await open_ways(*ways, (at_one, "end", at_three, "end"))
            await open_ways((at_one, "in/p", at_three, "in/p"))

            at_one.publish("in/a", "out/a", "out/no", "end", qos=qos)
            await until(lambda: len(at_three.came) == 4, "the link without rules carries all")
            at_two.publish("out/b", "in/no", "in/b", qos=qos)
            at_one.publish("out/after", qos=qos)  # which must not wait for what was stopped
            await until(lambda: len(at_two.came) == 5, "what may go goes")
            for client in (at_one, at_three):
                await until(lambda c=client: len(c.came) == 6, "what may pass passes on")

            assert at_two.topics == sorted(["out/a", "out/b", "in/no", "in/b", "out/after"])
            beyond = sorted(["in/a", "out/a", "out/no", "end", "in/b", "out/after"])
            assert at_three.topics == beyond
            assert at_one.topics == beyond
            status = await first.status()
            assert status["rules"]["withheld_from_neighbours"] >= 3
            assert status["rules"]["withheld_of_neighbours"] >= 2


async def test_what_is_denied_neither_leaves_nor_arrives_nor_passes(tmp_path):
    async with Plain(tmp_path) as plain:
        one, two, three = [await plain.broker() for _ in range(3)]
        middle = await plain.agent(2, two, more=rules(deny='["secret/#"]'))
        ends = [await plain.agent(1, one, two.url), await plain.agent(3, three, two.url)]
        await settled({middle: (1, 3), ends[0]: (2,), ends[1]: (2,)})
        at_one, at_two, at_three = one_each((one, two, three), ("secret/+", "public/+"))
        async with clients(at_one, at_two, at_three):
            await eventually(middle, knows("public/+"), "the middle knows")
            for end in ends:
                await eventually(end, knows("public/+"), "the ends know")
            for there in (at_one, at_three):
                await open_ways((at_two, "public/p", there, "public/p"))
                there.probed.clear()
            await open_ways((at_one, "public/p", at_three, "public/p"))
            at_one.probed.clear()
            await open_ways((at_three, "public/p", at_one, "public/p"))

            at_one.publish("secret/1", "public/1")
            at_two.publish("secret/2", "public/2")
            at_three.publish("secret/3", "public/3")
            everyone = (at_one, at_two, at_three)
            public = {f"public/{n}" for n in (1, 2, 3)}
            await until(lambda: all(len(c.came) == 4 for c in everyone), "public arrives")

            for number, client in enumerate(everyone, start=1):
                assert client.topics == sorted([*public, f"secret/{number}"])


@contextlib.asynccontextmanager
async def renaming(tmp_path, *, secret=None, **others):
    """A plant that renames, its headquarters, and their agents; ``secret`` may not pass."""
    async with Plain(tmp_path) as plain:
        plant, headquarters = await plain.broker(), await plain.broker()
        more = rules(rename='[{local = "plant7/", federation = "eu/plant7/"}]', **others)
        if secret is not None:
            more += neighbour(headquarters, 2, deny=[secret])
        agents = [await plain.agent(1, plant, more=more)]
        agents.append(await plain.agent(2, headquarters, plant.url))
        await settled({agents[0]: (2,), agents[1]: (1,)})
        yield plant, headquarters, agents


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_renamed_prefix_is_another_name_in_both_directions(tmp_path, qos):
    async with renaming(tmp_path) as (plant, headquarters, agents):
        machine = Probed(plant, "machine", "plant7/cmd/+", "+/x", "plant7/+/end", "eu/#")
        desk = Probed(headquarters, "desk", "eu/+/line/#", "+/+/spanning", "plant7/line")
        async with clients(machine, desk):
            heard_there = ("eu/plant7/cmd/+", "eu/plant7/x", "+/x", "eu/plant7/+/end")
            await eventually(agents[1], knows(*heard_there), "the desk hears the machine")
            wanted_here = ("eu/+/line/#", "+/+/spanning", "plant7/line")
            await eventually(agents[0], knows(*wanted_here), "the plant hears the desk")

            await open_ways(
                (machine, "plant7/line", desk, "eu/plant7/line"),
                (machine, "a/b/spanning", desk, "a/b/spanning"),
                (desk, "eu/plant7/cmd/go", machine, "plant7/cmd/go"),
                (desk, "eu/plant7/x", machine, "plant7/x"),
                (desk, "b/x", machine, "b/x"),
                (desk, "eu/other", machine, "eu/other"),
                (desk, "eu/plant7/a/end", machine, "plant7/a/end"),
            )

            machine.publish("plant7/line", "plant7/line/1", "plant7/spanning", qos=qos)
            machine.publish("a/b/spanning", "eu/plant7/line/hidden", "eu/other/line", qos=qos)
            desk.publish("plant7/x", "eu/plant7/x", "b/x", "eu/plant7/cmd/go", qos=qos)
            desk.publish("eu/other", "eu/plant7/a/end", qos=qos)
            await until(lambda: len(desk.came) == 5, "the desk gets its five")
            await until(lambda: len(machine.came) == 7, "the machine gets its seven")

            assert sorted(desk.came) == [
                ("a/b/spanning", b"a/b/spanning"),
                ("eu/other/line", b"eu/other/line"),
                ("eu/plant7/line", b"plant7/line"),
                ("eu/plant7/line/1", b"plant7/line/1"),
                ("eu/plant7/spanning", b"plant7/spanning"),
            ]
            machines = sorted(machine.came)
            of_others = [pair for pair in machines if pair[0].encode() != pair[1]]
            assert of_others == [
                ("plant7/a/end", b"eu/plant7/a/end"),
                ("plant7/cmd/go", b"eu/plant7/cmd/go"),
                ("plant7/x", b"eu/plant7/x"),
            ]
            own_name = [pair[0] for pair in machines if pair[0].encode() == pair[1]]
            assert own_name == ["b/x", "eu/other", "eu/other/line", "eu/plant7/line/hidden"]


async def test_a_request_under_one_name_is_answered_under_the_other(tmp_path):
    async with renaming(tmp_path) as (plant, headquarters, agents):
        asker = Probed(plant, "asker", "plant7/answers")
        server = Probed(headquarters, "server", "ask")
        async with clients(asker, server):
            await eventually(agents[1], knows("eu/plant7/answers"), "the way back is known")
            await eventually(agents[0], knows("ask"), "the way there is known")
            await open_ways(
                (asker, "ask", server, "ask"),
                (server, "eu/plant7/answers", asker, "plant7/answers"),
            )

            question = PublishPacket("ask", b"?", response_topic="plant7/answers")
            asker.link.write_packets([question.write()], 1)
            await until(lambda: bool(server.packets), "the question arrives")
            answer_to = server.packets[0].response_topic
            server.link.publish(answer_to, b"42")
            await until(lambda: bool(asker.packets), "the answer arrives")

            assert answer_to == "eu/plant7/answers"
            assert asker.came == [("plant7/answers", b"42")]


async def test_explain_says_which_rule_stops_a_topic(tmp_path):
    async with renaming(tmp_path, secret="+/+/no", deny='["denied"]') as (_, two, (first, _)):
        there = Probed(two, "there", "eu/#", "denied")
        async with clients(there):
            await eventually(first, knows("eu/#"), "known")

            stopped = await explained(first, "plant7/no")
            free = await explained(first, "plant7/yes")
            denied = await explained(first, "denied")

            assert stopped["name_in_federation"] == "eu/plant7/no"
            assert (stopped["next_hops"], stopped["stopped_by_rules"]) == ([], [2])
            assert (free["next_hops"], free["stopped_by_rules"]) == ([2], [])
            assert "deny" in denied["why"]


async def test_a_late_joiner_gets_retained_values_by_their_names_here_and_no_denied_ones(tmp_path):
    async with renaming(tmp_path, secret="+/+/secret") as (plant, headquarters, _):
        machine, desk = Probed(plant, "machine"), Probed(headquarters, "desk")
        async with clients(machine, desk):
            for topic in ("plant7/secret", "plant7/state"):
                machine.retain(topic)
            for topic in ("eu/plant7/secret", "eu/plant7/target", "plant7/other"):
                desk.retain(topic)
            for client in (machine, desk):
                await until(lambda c=client: c.link.unacknowledged == 0, "values are set")
            late_machine = Probed(plant, "late machine", "plant7/+")
            late_desk = Probed(headquarters, "late desk", "eu/#")

            async with clients(late_machine, late_desk):
                await until(lambda: len(set(late_desk.came)) == 3, "the desk has the state")
                await until(lambda: len(set(late_machine.came)) == 3, "the machine has its target")

                own = ("plant7/secret", b"plant7/secret")
                state = ("plant7/state", b"plant7/state")
                assert set(late_machine.came) == {
                    own,
                    state,
                    ("plant7/target", b"eu/plant7/target"),
                }
                assert set(late_desk.came) == {
                    ("eu/plant7/secret", b"eu/plant7/secret"),
                    ("eu/plant7/state", b"plant7/state"),
                    ("eu/plant7/target", b"eu/plant7/target"),
                }


async def test_a_shared_group_at_a_renaming_broker_is_served_for_itself(tmp_path):
    async with renaming(tmp_path) as (plant, headquarters, agents):
        machines = [Probed(plant, f"machine-{n}", "$share/g/plant7/+") for n in range(2)]
        desk = Probed(headquarters, "desk")
        async with clients(*machines, desk):
            await eventually(agents[1], knows("eu/plant7/+"), "the group is known")
            async with asyncio.timeout(DEADLINE_S):
                while not any(machine.probed for machine in machines):
                    desk.link.publish("eu/plant7/probe", PROBE)
                    await asyncio.sleep(0.02)

            topics = [f"eu/plant7/{number}" for number in range(50)]
            desk.publish(*topics, qos=1)

            def came():
                return sorted(payload.decode() for m in machines for _, payload in m.came)

            await until(lambda: len(came()) >= 50, "all arrive")
            assert came() == sorted(topics)
            assert all(machine.came for machine in machines)
