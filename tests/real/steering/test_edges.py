"""Topics kept at the edge, on real brokers: by a real steerer's plans, and by nobody's list.

The hub is broker 2, between the edges 1 and 3. Its collector subscribes ``city/#``.
"""

import contextlib
import time

import aiomqtt
import pytest

from lab.grid.processes.daemons import SteererProcess
from lab.papers.placement.edges import plan
from lab.papers.placement.policies import Policy
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, linked
from tests.real.polling import until
from tests.real.steering.edges import (
    EDGES,
    HUB,
    ROUNDS,
    TOLERANCE,
    Counting,
    crossing,
    described,
    settled,
)

pytestmark = pytest.mark.slow

COLLECTS = "city/#"
STRAIGHT = f'[routing]\nfilters = [{{filter = "{COLLECTS}", strategy = "shortest-path"}}]\n'
PLACED = "[rules]\nplaced = true\n"
KEPT = "a steerer's plan keeps it here"
LEASE_S = 6


def keep(policy):
    """What the steerer is told."""
    lease = f"[steering]\nvalid_ms = {1_000 * LEASE_S}\n"
    return f'{lease}[keep]\nhub = "{HUB}"\ncollects = ["{COLLECTS}"]\npolicy = "{policy}"\n'


async def line(plain, *, placed=(1, 2, 3), ask=STRAIGHT):
    """The hub between two edges; who is ``placed`` lets a steerer place topics."""
    brokers = {id_: await plain.broker() for id_ in (1, 2, 3)}
    for id_, others in ((1, (2,)), (2, (1, 3)), (3, (2,))):
        more = (ask if id_ == HUB else "") + (PLACED if id_ in placed else "")
        await plain.agent(id_, brokers[id_], *((brokers[o].url, o) for o in others), more=more)
    for agent, others in zip(plain.agents, ((2,), (1, 3), (2,)), strict=True):
        await eventually(agent, linked(*others), "linked")
    return brokers, dict(zip((1, 2, 3), plain.agents, strict=True))


@contextlib.asynccontextmanager
async def steered(folder, broker, policy="ns"):
    steerer = SteererProcess(folder, broker.url, sections=keep(policy))
    await steerer.start()
    try:
        yield steerer
    finally:
        await steerer.stop()
    assert "Traceback" not in steerer.log_path.read_text()


async def why(agent, topic):
    return (await agent.page(f"/explain?topic={topic}"))["why"]


async def becomes(agent, topic, *, kept):
    async def asked():
        return (KEPT in await why(agent, topic)) is kept

    await until(asked, f"{topic} is {'kept' if kept else 'not kept'}")


async def counted(agents):
    """The counters of all data paths."""
    return {id_: (await each.status())["counters"]["data"] for id_, each in agents.items()}


async def everybody_knows(agents, description):
    """Each agent knows who else wants what."""
    for id_, agent in agents.items():
        elsewhere = {f for b in description.brokers if b.id != id_ for f in b.subscribes}
        here = next(set(b.subscribes) for b in description.brokers if b.id == id_)

        def knows(status, elsewhere=elsewhere, here=here):
            known = {each["filter"] for each in status["meshes"]}
            known |= {each["filter"] for each in status["destinations"]}
            return linked_well(status) and elsewhere | here | {COLLECTS} <= known

        await eventually(agent, knows, "knows who wants what")


def linked_well(status):
    return status["ready"] and not status["discovery"]["widened"]


async def test_what_crosses_is_what_the_planner_predicts_and_nobody_else_loses_anything(
    plain, tmp_path
):
    description = described()
    brokers, agents = await line(plain)
    clients = {
        b.id: Counting(brokers[b.id].port, f"client-{b.id}", b.subscribes)
        for b in description.brokers
    }
    collector = Counting(brokers[HUB].port, "collector", description.collects)
    crossings, kept = {}, {}

    async def counters():
        return await counted(agents)

    async def measure(policy):
        edges = plan(description, policy)
        kept[policy] = {topic for edge in edges for topic in edge.keep}
        had = dict(collector.came)
        crossings[policy] = await crossing(counters, description, clients)
        for edge in edges:
            up, down = crossings[policy][edge.id]
            assert up == pytest.approx(ROUNDS * edge.up, rel=TOLERANCE)
            assert down == pytest.approx(ROUNDS * edge.down, rel=TOLERANCE)
        published = {t for b in description.brokers for t in b.publishes}
        came = {t: collector.came.get(t, 0) - had.get(t, 0) for t in published}
        assert came == {t: 0 if t in kept[policy] else ROUNDS for t in published}

    async with running(collector, *clients.values()):
        await until(lambda: all(c.link.subscribed for c in clients.values()), "subscribed")
        await everybody_knows(agents, description)
        await measure(Policy.CENTRALISED)
        for policy in (Policy.LP, Policy.NS):
            async with steered(tmp_path / policy, brokers[HUB], policy) as steerer:
                for edge in EDGES:
                    await becomes(agents[edge], f"city/{edge}/t0", kept=True)
                await measure(policy)
                await until(lambda s=steerer: tells_kept(s), "the steerer tells what is kept")
            for edge in EDGES:
                await becomes(agents[edge], f"city/{edge}/t0", kept=False)
        data = await settled(counters)

    assert len(kept[Policy.LP]) < len(kept[Policy.NS]) == 17
    assert sum(data[edge]["kept"] for edge in EDGES) == ROUNDS * sum(map(len, kept.values()))


async def tells_kept(steerer):
    told = (await steerer.status())["edges"]
    return (told["collected"], told["keep"]) == ([COLLECTS], list(EDGES)) and told["rate"] > 0


async def test_who_comes_later_is_served_and_when_the_steerer_dies_the_hub_is_again(
    plain, tmp_path
):
    brokers, agents = await line(plain)
    topics = [f"city/1/{name}" for name in "abc"]
    senders = {t: Publisher(brokers[1].port, t, client_id=t[-1], rate_hz=50, qos=1) for t in topics}
    hub = {t: Subscriber(brokers[HUB].port, t, client_id=f"hub-{t[-1]}", qos=1) for t in topics}
    elsewhere = Subscriber(brokers[3].port, topics[0], client_id="elsewhere", qos=1)
    collector = Counting(brokers[HUB].port, "collector", [COLLECTS])
    a, b, c = topics
    async with running(collector, *senders.values()):
        await until(lambda: all(t in collector.came for t in topics), "the hub collects")
        steerer = SteererProcess(tmp_path / "s", brokers[HUB].url, sections=keep("ns"))
        await steerer.start()
        for topic in topics:
            await becomes(agents[1], topic, kept=True)
        before = await settled(collector.counts)
        sent = {t: s.sent for t, s in senders.items()}
        await until(lambda: all(s.sent > sent[t] + 100 for t, s in senders.items()), "published")
        assert collector.came == before

        async with running(elsewhere):  # at another broker
            await comes_without_a_gap(elsewhere, senders[a], within_s=5)
            await until(lambda: collector.came[a] > before[a], "and to the hub")
        async with running(hub[b]):  # at the hub, with a narrower filter
            await comes_without_a_gap(hub[b], senders[b], within_s=5)
            await until(lambda: collector.came[b] > before[b], "and to the collector")
        assert collector.came[c] == before[c]
        for topic in (a, b):  # when they have left it is kept again
            await becomes(agents[1], topic, kept=True)

        steerer.kill9()
        killed_s = time.monotonic()
        await until(lambda: collector.came[c] > before[c], "the hub collects again")
        assert time.monotonic() - killed_s < 10 * LEASE_S
        for topic in topics:
            await becomes(agents[1], topic, kept=False)


async def comes_without_a_gap(subscriber, sender, *, within_s):
    """From the first publication that comes on, each comes once, and that begins soon."""
    began_s = time.monotonic()
    await until(lambda: len(subscriber.came) > 100, "it is served")
    assert subscriber.at_s[0] - began_s < 10 * within_s
    first, last = min(subscriber.came), max(subscriber.came)
    assert set(subscriber.came) == set(range(first, last + 1))
    assert subscriber.duplicates == 0


@pytest.mark.parametrize(
    ("how", "refuses", "why_not"),
    [
        ({"placed": (1, 3)}, HUB, "[rules] placed"),
        ({"placed": (2, 3)}, 1, "[rules] placed"),
        ({"ask": ""}, HUB, "[routing] filters"),
    ],
)
@pytest.mark.few(1)
async def test_where_an_operator_has_not_said_so_nothing_is_kept(
    plain, tmp_path, how, refuses, why_not
):
    brokers, agents = await line(plain, **how)
    collector = Counting(brokers[HUB].port, "collector", [COLLECTS])
    sender = Publisher(brokers[1].port, "city/1/a", client_id="sender", qos=1)
    async with running(collector, sender), steered(tmp_path / "s", brokers[HUB]) as steerer:
        await until(lambda: collector.came, "the hub collects")

        async def tells():
            refused = (await steerer.status())["edges"]["refuse"]
            return [(each["broker"], why_not in each["why"]) for each in refused] == [
                (refuses, True)
            ]

        await until(tells, "the steerer tells who does not follow")
        steering = (await agents[refuses].status())["steering"]
        assert why_not in steering["why_not"]
        assert KEPT not in await why(agents[1], "city/1/a")
        count = collector.came["city/1/a"]
        await until(lambda: collector.came["city/1/a"] > count + 50, "the hub collects still")


async def test_a_value_retained_at_the_edge_stays_there_until_somebody_else_wants_it(
    plain, tmp_path
):
    often = "[retained]\nresync_s = 1\n"
    brokers, agents = await line(plain, ask=STRAIGHT + often)
    topic = "city/1/door"
    collector = Counting(brokers[HUB].port, "collector", [COLLECTS])
    later = Subscriber(brokers[3].port, topic, client_id="later", qos=1)
    async with running(collector), steered(tmp_path / "s", brokers[HUB]):
        await until(lambda: collector.link.subscribed, "subscribed")
        await becomes(agents[1], topic, kept=True)
        async with aiomqtt.Client(brokers[1].host, brokers[1].port) as setter:
            await setter.publish(topic, b"7", qos=1, retain=True)

        async def counts():
            return (await agents[1].status())["counters"]["data"]["kept"] == 1

        await until(counts, "it is kept")
        looks = await compared(agents[1])

        async def compares():
            return await compared(agents[1]) > looks + 2

        await until(compares, "the hub compares values with the edge")
        assert topic not in collector.came
        async with running(later):
            await until(lambda: later.came, "who comes later has the value")
        assert later.order == [7]


async def compared(agent):
    """How often it looked what its broker retains."""
    return (await agent.status())["retained"]["looks"]


async def test_a_shared_group_elsewhere_gets_what_would_be_kept(plain, tmp_path):
    brokers, agents = await line(plain)
    topic = "city/1/jobs"
    sender = Publisher(brokers[1].port, topic, client_id="sender", qos=1)
    collector = Counting(brokers[HUB].port, "collector", [COLLECTS])
    worker = Subscriber(brokers[3].port, f"$share/g/{topic}", client_id="worker", qos=1)
    async with running(sender, collector), steered(tmp_path / "s", brokers[HUB]):
        await becomes(agents[1], topic, kept=True)
        before = (await settled(collector.counts)).get(topic, 0)
        async with running(worker):
            await comes_without_a_gap(worker, sender, within_s=5)
            await until(lambda: collector.came.get(topic, 0) > before + 50, "the hub gets it, too")


async def test_a_dry_run_says_what_would_be_kept_and_has_nobody_keep_it(plain, tmp_path):
    brokers, agents = await line(plain)
    sender = Publisher(brokers[1].port, "city/1/a", client_id="sender", rate_hz=20, qos=1)
    collector = Counting(brokers[HUB].port, "collector", [COLLECTS])
    options = ("--dry-run", "--once")
    steerer = SteererProcess(tmp_path / "s", brokers[HUB].url, options=options, sections=keep("ns"))
    async with running(sender, collector):
        await until(lambda: collector.came, "the hub collects")
        await steerer.start()
        told = steerer.log_path.read_text
        await until(lambda: "topics at the edge: " in told(), "it says so")
        (said,) = [each for each in told().splitlines() if "topics at the edge: " in each]
        assert KEPT not in await why(agents[1], "city/1/a")
        await steerer.stop()
    rate = float(said.removeprefix("topics at the edge: ").split()[0])
    assert rate == pytest.approx(20, rel=0.5)
    assert f"that only {HUB} collects would be kept" in said
