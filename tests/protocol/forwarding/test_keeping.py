"""What is kept at the edge: all or nothing, as the planner has it, and never what others want.

The clever way, in which each agent decides from what it hears of others, meets the planner's, which
knows all clients and counts.
"""

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

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
