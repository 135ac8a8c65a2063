"""A captured leaf: its key is good, and what says that it is leaf 11 is somebody else's.

It hangs on hub 1 beside honest leaf 12, with the rights and rules of leaf 11; hub 2 is linked with
hub 1. Streams between leaf 12 and hub 2 go on meanwhile. docs/hubs.md, "Keys"; docs/security.md.
"""

import asyncio
import contextlib

import mqtt5
import msgspec
import pytest

from federator.protocol.filters.digests import digest_of, filter_key
from federator.protocol.forwarding.frames import Frame
from federator.protocol.messages.control import CoreAnn, RepairRequest, Solicit
from tests.real.agent_log import named
from tests.real.client import Client
from tests.real.flow import Publisher, Subscriber, running
from tests.real.leaves.test_trust_of_leaves import LeafOffice
from tests.real.logins import guarded, login, write_secret
from tests.real.plain_agents import DEEP, QUICK, eventually, gets_through, linked
from tests.real.polling import until
from tests.real.streams import both_ways, clients
from tests.real.trust.member import Member
from tests.real.trust.test_signed import Office
from tests.real.undisturbed import undisturbed

USERS = ("federator", "federator-11", "federator-12", "federator-peer", "alice")
FUTURE_MS = 1_000_000_000
ABSURD = 2**62
WORDS = 200
BOUNDS = "filters_max = 150\nleaf_filters_max = 20"
FILTERS_MAX = 220
"""What one leaf may want with these bounds, at most."""

ENTRIES = """[[leaves]]
id = 11
url = "{url}"
import = ["site/11/#"]
export = ["site/11/#"]
[[leaves]]
id = 12
"""


class Captured(Member):
    """Says what it likes as leaf 11."""

    def __init__(self, office, own, hub_broker):
        names = {"federation": "fed.leaves.11", "issued_in": "fed.leaves"}
        places = {"own": own, "victim": hub_broker, "login": login("federator-11")}
        super().__init__(11, office, neighbour=1, **places, **names)
        self._seq = 0

    def want(self, *filters, core=11, epoch=None):
        """Announce that ``core`` wants ``filters``."""
        self._seq += 1
        digest, count = digest_of(filters), len(filters)
        epoch = self.epoch if epoch is None else epoch
        word = CoreAnn(11, core, 0, epoch, self._seq, 0, True, filters, (), digest, count)
        return self.say(self.guard.prove(msgspec.structs.replace(word, path=(11,))))

    def publish(self, topic, number, *, to, **changes):
        """A frame with one publication that is routed by the filter ``to``."""
        body = mqtt5.PublishPacket(topic, b"%d" % number).write()
        fields = {
            "flags": 0,
            "hops": 0,
            "hop_limit": 64,
            "sender": 11,
            "origin": 11,
            "epoch": self.epoch,
            "seq": number + 1,
            "origin_time_us": 1,
            "publications": 1,
            "keys": filter_key(to).to_bytes(8),
            "mask": 1,
        }
        return self.send(Frame(**(fields | changes), body=memoryview(body)))


class Scene:
    """All that is there, and the streams that nothing may touch."""

    def __init__(self, hub, agents, captured, streams, hub_broker, far, own):
        self.hub, self.agents, self.captured, self.streams = hub, agents, captured, streams
        self.hub_broker, self.far, self.own = hub_broker, far, own

    @contextlib.asynccontextmanager
    async def undisturbed(self, row):
        async with contextlib.AsyncExitStack() as stack:
            for way, (sender, taker) in self.streams.items():
                told = undisturbed(f"{row}, {way}", sender, taker, processes=self.agents)
                await stack.enter_async_context(told)
            yield
            for sender, taker in self.streams.values():
                await gets_through(sender, taker)

    async def refused(self):
        """What the hub counts of each leaf."""
        told = {leaf["id"]: leaf for leaf in (await self.hub.status())["leaves"]}
        assert not [key for key in told[12] if key.endswith("_refused") and told[12][key]], told
        return told[11]


@pytest.fixture
async def scene(plain, tmp_path, turns_told):
    mesh, below = Office(tmp_path / "mesh"), LeafOffice(tmp_path / "leaves")
    secret, far, home = write_secret(tmp_path / "s"), await plain.broker(), await plain.broker()
    own = await plain.broker()
    entries = ENTRIES.format(url=own.url)
    lines = (*guarded(tmp_path, USERS, more=entries), *QUICK, *DEEP)
    hub_broker = await plain.broker(allow_anonymous=False, extra_config=lines)

    def us(name):
        return {"username": name, "password_file": str(secret)}

    held = below.section(1).replace("[keys]", f"[hub]\n{BOUNDS}")
    more = "\n".join([mesh.section(1), held, entries])
    hub = await plain.agent(1, hub_broker, security="signed", broker=us("federator"), more=more)
    at_hub = (hub_broker.url, 1)
    other = {"links": us("federator-peer"), "more": mesh.section(2)}
    two = await plain.agent(2, far, at_hub, security="signed", **other)
    honest = {"role": "leaf", "links": us("federator-12"), "more": below.section(12)}
    leaf = await plain.agent(12, home, at_hub, security="signed", **honest)
    await eventually(leaf, linked(1), "the honest leaf is linked")
    await eventually(two, linked(1), "the mesh is linked")
    names = ("from the leaf", "to the leaf")
    streams = dict(zip(names, both_ways(home, far, qos=1, rate_hz=50), strict=True))
    captured = Captured(below, own, hub_broker)
    async with running(*clients(streams.values()), captured, captured.mouth):
        greeting = asyncio.create_task(captured.run())
        for stream in streams.values():
            await gets_through(*stream)
        made = Scene(hub, [hub, two, leaf], captured, streams, hub_broker, far, own)
        made.below, made.secret = below, secret
        await until_up(made)
        yield made
        greeting.cancel()


async def until_up(scene):
    def up(told):
        return [leaf["id"] for leaf in told["leaves"] if leaf["up"]] == [11, 12]

    await eventually(scene.hub, up, "the captured leaf is let in")


async def test_what_its_entry_forbids_it_neither_hears_nor_says(scene):
    secret = Publisher(scene.far.port, "site/12/x", client_id="secret", rate_hz=50)
    victim = Subscriber(scene.far.port, "site/12/#", client_id="victim")
    own = Subscriber(scene.far.port, "site/11/#", client_id="own")
    async with running(secret, victim, own), scene.undisturbed("17 a leaf beyond its rules"):
        await gets_through(secret, victim)
        for _ in range(5):
            scene.captured.want("#", "site/12/#", "site/11/#", "$fed/#", "$SYS/#")
            await asyncio.sleep(0.3)
        for number in range(WORDS):
            scene.captured.publish("site/12/forged", number, to="site/12/#")
            await asyncio.sleep(0)
        await until(lambda: victim.came, "it goes on")
        scene.captured.publish("site/11/x", WORDS, to="site/11/#")
        await until(lambda: own.came, "what it may say is heard")
        told = await scene.refused()

    bodies = [bytes(frame.body) for frame in scene.captured.frames(lambda frame: True)]
    assert not [body for body in bodies if b"site/12" in body]
    assert victim.duplicates == 0, "forged numbers came"
    assert told["publications_refused"] == WORDS


async def test_in_the_names_of_others_it_says_nothing(scene):
    taker = Subscriber(scene.far.port, "site/11/#", client_id="taker")
    others = (1, 2, 12, 99)
    async with running(taker), scene.undisturbed("17 a leaf in others' names"):
        before = await scene.refused()
        for number in range(WORDS):
            other = others[number % len(others)]
            if other != 1:
                scene.captured.publish("site/11/forged", number, to="site/11/#", origin=other)
            scene.captured.want(f"site/11/{number}", core=other, epoch=FUTURE_MS)
            scene.captured.say(Solicit(11, other, FUTURE_MS, 1, 255))
            scene.captured.say(RepairRequest(other, 1, (11,), ((bytes(8), 0, 0),)))
            await asyncio.sleep(0)

        async def counted():
            told = await scene.refused()
            frames, words = (told[key] - before[key] for key in ("frames_refused", "words_refused"))
            return frames >= WORDS * 3 / 4 and words >= WORDS * 2 * 3 / 4

        await until(counted, "each is refused and counted")
        told = await scene.refused()

    assert not taker.came
    assert told["frames_refused"] - before["frames_refused"] == WORDS * 3 / 4
    assert told["words_refused"] - before["words_refused"] >= WORDS * 2 * 3 / 4
    assert told["filters_wanted"] == before["filters_wanted"]
    lines = named(scene.hub, "control.presumed")
    assert {line["neighbour"] for line in lines} == {11}
    assert len(lines) < 10, "the log is flooded"


async def test_numbers_from_the_future_harm_nobody_and_not_its_successor(scene, plain):
    """Its key is in honest hands again afterwards: that agent has smaller numbers."""
    captured = scene.captured
    taker = Subscriber(scene.far.port, "site/11/#", client_id="taker", qos=1)
    async with running(taker):
        async with scene.undisturbed("17 a leaf from the future"):
            for leap in range(1, 4):
                epoch = captured.epoch + leap * FUTURE_MS
                captured.want("site/11/x", epoch=epoch)
                for number, later in ((-1, epoch), (-2, ABSURD)):
                    captured.publish(
                        "site/11/x", number, to="site/11/#", epoch=later, seq=ABSURD + leap
                    )
                await asyncio.sleep(0.5)
        assert -1 in taker.came, "what it may say is heard"
        await captured.link.close()
        await captured.mouth.link.close()
        as_leaf = {"username": "federator-11", "password_file": str(scene.secret)}
        honest = {"role": "leaf", "links": as_leaf | {"dial": "both"}}
        honest["more"] = scene.below.section(11)
        at_hub, there = (scene.hub_broker.url, 1), scene.own
        back = await plain.agent(11, there, at_hub, security="signed", **honest)
        await eventually(back, linked(1), "the leaf is back")
        sender = Publisher(there.port, "site/11/x", client_id="back", qos=1)
        asked = Subscriber(there.port, "site/11/y", client_id="asked", qos=1)
        answer = Publisher(scene.far.port, "site/11/y", client_id="answer", qos=1)
        async with running(sender, asked, answer):
            await gets_through(sender, taker)
            await gets_through(answer, asked)


async def test_filters_beyond_its_bound_are_refused_and_counted(scene):
    captured = scene.captured
    async with scene.undisturbed("17 a leaf with filters without end"):
        for batch in range(40):
            captured.want(*(f"site/11/{batch}/{number}" for number in range(WORDS)))
            await asyncio.sleep(0.05)
        await eventually(
            scene.hub,
            lambda told: told["leaves"][0]["filters_refused"] > 0,
            "they are counted",
        )
        told = await scene.refused()

    assert told["filters_wanted"] <= FILTERS_MAX


async def test_its_login_opens_no_topics_of_others(scene):
    """Neither with words of its own, nor by listening. Who publishes there is not told.

    How its own hub is, by the page that the hub keeps for it, it may hear.
    """
    topics = [f"$fed/{name}" for name in ("fed", "fed.leaves.12", "fed.leaves.12/outbox/12")]
    kinds = ("hello", "core_ann", "data", "bye")
    filters = [f"{topic}/#" for topic in topics] + ["$fed/#", "$fed/fed.leaves.12/outbox/12/data"]
    ear = Client(scene.hub_broker.port, "ear", *filters, qos=0, login=login("federator-11"))
    async with running(ear), scene.undisturbed("17 a leaf's login elsewhere"):
        await until(lambda: ear.link.connected, "it is let in")
        for number in range(WORDS):
            for kind in kinds:
                ear.link.publish(f"{topics[number % 3]}/{kind}", b"\x93" * 70)
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        told = await scene.hub.status()

    assert {topic for topic, _ in ear.came} == {"$fed/fed.leaves.11/health"}
    assert sum(told["counters"]["control_malformed"].values()) == 0
    for agent in scene.agents:
        assert not named(agent, "trust.refused")
    await scene.refused()
