"""Stories with hubs and leaves: several agents beside one broker, which is the switch."""

import pytest

from federator.protocol.leaves.switch import Switch
from federator.protocol.types import BrokerId
from lab.sim.campaign import draw, run
from lab.sim.disks import KEEP_S
from lab.sim.messages import hubs
from lab.sim.plan import BrokerPlan, LinkPlan, Port, SubscriberPlan, WorldPlan
from lab.sim.story import Fault, FaultKind, Kind, Publication, Resubscription, Story
from lab.sim.topologies import connected_parts
from tests.effort import seeds

SEEDS = seeds(20)
MUTANT_SEEDS_MAX = 60


def test_everybody_gets_what_was_promised_through_hubs_of_hubs():
    told = [draw(Kind.MESSAGES, seed, areas=True) for seed in range(SEEDS)]
    results = [run(each) for each in told]

    assert [each.violation for each in results if each.violation] == []
    assert all(1 < len(meshes_of(each)) <= 1 + hubs.AREAS_MAX for each in told)


def meshes_of(story):
    """The meshes of hubs in ``story``."""
    homes = {port.hub for port in story.plan.ports}
    homes |= {id for link in story.plan.links for id in (link.a, link.b) if id < 100}
    links = [(link.a, link.b) for link in story.plan.links]
    return connected_parts(sorted(homes), [link for link in links if set(link) <= homes])


def test_a_border_that_does_not_tell_the_mesh_above_of_its_area_is_found(monkeypatch):
    real = Switch.change

    def silent(self, source, demand, now_ms):
        for changes in filter(None, real(self, source, demand, now_ms)):
            told = {side: each for side, each in changes.items() if side not in ups}
            yield changes if source is not None else told

    monkeypatch.setattr(Switch, "change", silent)

    for seed in range(MUTANT_SEEDS_MAX):
        story = draw(Kind.MESSAGES, seed, areas=True)
        ports = {port.id for port in story.plan.ports}
        ups = {port.id for port in story.plan.ports if port.leaf in ports}
        if (found := run(story).violation) is not None:
            assert found.invariant in {"arrives_in_the_calm", "owed", "converges"}
            return
    pytest.fail("not found")


def merging_while_cut_off(*more):
    """Hub 2's clients publish for leaf 10 while it is cut off, and then hub 1 asks for wider."""
    hub, far, leaf, port = map(BrokerId, (1, 2, 10, 1_000))
    links = LinkPlan(hub, far, configured=(far,)), LinkPlan(leaf, port, configured=(leaf,))
    ids = (hub, far, leaf, port)
    subscribers = (
        SubscriberPlan("faithful", leaf, (("site/1/a", 1), ("b", 1)), start_ms=1_000),
        SubscriberPlan("fickle", leaf, (("b", 1),), start_ms=1_000),
    )
    brokers = {id: BrokerPlan(sys_interval_ms=1_000) for id in ids}
    cut = Fault(FaultKind.CUT, 10_000, 24_000, links=((hub, far),))
    return Story(
        kind=Kind.MESSAGES,
        seed=1,
        topology="hubs",
        plan=WorldPlan(
            ids,
            links,
            shortest=frozenset({leaf, port}),
            start_ms_max=200,
            brokers=brokers,
            subscribers=subscribers,
            ports=(Port(port, hub, leaf),),
            hub_filters_max=9,
        ),
        faults=(cut, *more),
        changes=(Resubscription(20_000, "fickle", (("site/2/a", 1),)),),
        publications=(Publication(16_000, far, "site/1/a", 3, "p", 1, 10),),
        settle_ms=9_000,
        heal_ms=25_000,
    )


@pytest.mark.parametrize(("keep_s", "lost"), [(KEEP_S, False), (0, True)])
def test_what_a_merger_replaced_is_asked_for_while_it_is_owed(monkeypatch, keep_s, lost):
    monkeypatch.setattr(hubs, "KEEP_S", keep_s)

    violation = run(merging_while_cut_off()).violation

    assert (violation is not None) == lost, violation


@pytest.mark.parametrize("forgets", [False, True])
def test_a_hub_that_restarts_still_asks_for_it(monkeypatch, forgets):
    killed = Fault(FaultKind.AGENT_CRASH, 21_000, 22_000, node=BrokerId(1))
    if forgets:
        monkeypatch.setattr(Switch, "recall", lambda self, before, now_ms: {})

    violation = run(merging_while_cut_off(killed)).violation

    assert (violation is not None) == forgets, violation
