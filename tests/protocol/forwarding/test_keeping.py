"""What is kept at the edge: all or nothing, as the planner has it, and never what others want.

The clever way, in which each agent decides from what it hears of others, meets the planner's, which
knows all clients and counts.
"""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from federator.protocol.effects import FilterRoute
from federator.protocol.events import CollectsChanged, StatusChanged
from federator.protocol.forwarding.explanation import explain
from federator.protocol.forwarding.forwarding import KEPT, Forwarder
from federator.protocol.forwarding.keeping import KeepPolicy
from federator.protocol.messages.session_records import BrokerRecord
from federator.protocol.node import Identity, Node
from federator.protocol.parameters import Parameters, Strategy
from lab.papers.placement.edges import Broker, Description, plan
from lab.papers.placement.policies import Policy
from tests.protocol.network import Network

HUB = 1
EDGES = (2, 3, 4)
STAR = [(HUB, edge) for edge in EDGES]
TOPICS = ("a/b", "a/c", "a/b/c", "x", "x/y", "q")
FILTERS = ("a/b", "a/+", "a/#", "+/c", "x", "x/#", "q", "a/b/c")
STRATEGIES = st.sampled_from([Strategy.MESH, Strategy.SHORTEST_PATH])
POLICIES = {Policy.CENTRALISED: None, Policy.LP: KeepPolicy.LP, Policy.NS: KeepPolicy.NS}
POLICIES[Policy.EP] = KeepPolicy.NS  # what comes in is another matter


def wishes(without=()):
    return st.sets(st.sampled_from([f for f in FILTERS if f not in without]), max_size=3)


@st.composite
def federations(draw):
    """Who publishes and wants what, and how each asks for it."""
    collects = draw(st.sets(st.sampled_from(["a/#", "x/#", "a/+", "q", "+/c"]), max_size=3))
    brokers = [Broker(HUB, {}, dict.fromkeys(sorted(draw(wishes(without=collects))), 1))]
    for edge in EDGES:
        publishes = draw(st.sets(st.sampled_from(TOPICS), max_size=4))
        wanted = dict.fromkeys(sorted(draw(wishes())), 1)
        brokers.append(Broker(edge, dict.fromkeys(sorted(publishes), 1.0), wanted))
    strategies = {edge: draw(STRATEGIES) for edge in EDGES}
    return Description(brokers, HUB, sorted(collects)), strategies


def forwarders(description, strategies):
    """The tables of all agents, once they know of each other."""
    network = Network(STAR)
    for id_, strategy in {HUB: Strategy.SHORTEST_PATH, **strategies}.items():
        network.nodes[id_] = Node(Identity(id_, 1_000 + id_), Parameters(strategy=strategy))
    network.at(0, HUB, StatusChanged(BrokerRecord()))
    network.at(0, HUB, CollectsChanged(frozenset(description.collects)))
    for broker in description.brokers:
        collected = description.collects if broker.id == HUB else ()
        network.subscribe(broker.id, *broker.subscribes, *collected)
    network.run(10_000)
    found = {id_: Forwarder() for id_ in network.nodes}
    for (id_, filter_), route in network.routes.items():
        found[id_].set_route(filter_, route)
    return found


@given(federations())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(
    (
        Description(
            [
                Broker(HUB, {}, {"a/b": 1}),
                Broker(2, {"a/b": 1.0, "a/c": 1.0, "a/b/c": 1.0}, {"a/c": 1}),
                Broker(3, {}, {"a/b/c": 1}),
                Broker(4, {}, {}),
            ],
            HUB,
            ["a/#"],
        ),
        dict.fromkeys(EDGES, Strategy.MESH),
    )
)
def test_agents_keep_what_the_planner_would(federation):
    description, strategies = federation
    tables = forwarders(description, strategies)

    for policy, ours in POLICIES.items():
        for edge in plan(description, policy):
            published = next(b.publishes for b in description.brokers if b.id == edge.id)
            forwarder = tables[edge.id]
            forwarder.keep(ours)
            kept = {topic for topic in published if forwarder.route_topic(topic) is KEPT}
            # What nobody collects the planner keeps as well; here it never had anywhere to go.
            unwanted = {topic for topic in published if forwarder.route_topic(topic) is None}
            assert kept <= set(edge.keep)
            assert set(edge.keep) <= kept | unwanted
            for topic in published:
                explained = explain(forwarder, topic)
                assert explained.kept is (topic in kept)
                assert not (explained.kept and explained.next_hops)


def route(*brokers, collected=False, local=False, next_hops=()):
    return FilterRoute(local, bool(brokers or next_hops), next_hops, brokers, collected)


@pytest.fixture
def forwarder():
    made = Forwarder()
    made.set_destination(1, 1)
    made.set_destination(3, 3)
    made.set_route("a/#", route(1, collected=True))
    made.keep(KeepPolicy.NS)
    return made


def test_what_only_a_collector_wants_is_kept_while_the_policy_is_in_force(forwarder):
    assert forwarder.route_topic("a/b") is KEPT
    assert forwarder.keeps("a/b")
    assert "broker 1" in explain(forwarder, "a/b").why

    forwarder.set_route("a/b", route(3))
    assert "who does not say that he collects it" in explain(forwarder, "a/b").why
    forwarder.set_route("a/b", None)
    forwarder.share(frozenset({"a/+"}))
    assert "a shared group wants it" in explain(forwarder, "a/b").why
    forwarder.share(frozenset())

    forwarder.keep(None)

    assert explain(forwarder, "a/b").why == "goes to the next hops"
    assert forwarder.route_topic("a/b").sends
    assert not forwarder.keeps("a/b")


@pytest.mark.parametrize("other", [route(3), route(next_hops=(3,))])
def test_whoever_else_wants_it_gets_it_at_once_and_the_collector_too(forwarder, other):
    forwarder.route_topic("a/b")

    forwarder.set_route("a/b", other)

    assert [hop for hop, _ in forwarder.route_topic("a/b").sends] == [1, 3]
    assert forwarder.route_topic("a/c") is KEPT

    forwarder.set_route("a/b", None)

    assert forwarder.route_topic("a/b") is KEPT


def test_who_wants_it_and_is_out_of_reach_keeps_it_from_being_kept(forwarder):
    forwarder.set_route("a/b", FilterRoute(local=False, wanted=True, next_hops=()))

    assert forwarder.route_topic("a/b") not in (None, KEPT)


def test_a_shared_group_elsewhere_is_somebody_else(forwarder):
    assert forwarder.route_topic("a/b") is KEPT

    forwarder.share(frozenset({"a/+"}))

    assert forwarder.route_topic("a/b") not in (None, KEPT)
    assert forwarder.route_topic("a/b/c") is KEPT

    forwarder.share(frozenset())

    assert forwarder.route_topic("a/b") is KEPT


def test_under_lp_somebody_here_must_want_it_for_sure(forwarder):
    forwarder.keep(KeepPolicy.LP)
    assert forwarder.route_topic("a/b") not in (None, KEPT)

    forwarder.set_route("a/b", route(local=True))
    forwarder.set_route("#", route(local=True))
    forwarder.widen(True, frozenset({"#"}))

    assert forwarder.route_topic("a/b") is KEPT
    assert forwarder.route_topic("a/c") not in (None, KEPT)


def test_rules_go_before_plans_and_what_nobody_wants_is_not_kept_but_unwanted():
    forwarder = Forwarder(allows_export=lambda topic: topic != "a/b")
    forwarder.set_route("a/#", route(1, collected=True))
    forwarder.keep(KeepPolicy.NS)

    assert [forwarder.route_topic(topic) for topic in ("a/b", "b", "a/c")] == [None, None, KEPT]
