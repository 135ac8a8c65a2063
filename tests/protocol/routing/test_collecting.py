"""Who only collects: announced beside what it wants, heard by all, and never taken for more."""

import pytest

from federator.protocol.controller.presence import BrokerPresence, PresenceParameters
from federator.protocol.events import CollectsChanged, StatusChanged
from federator.protocol.messages.destinations import destination_record
from federator.protocol.messages.session_records import (
    COLLECTS_MAX,
    BrokerRecord,
    encode_record,
    may_collect,
    parse_record,
)
from federator.protocol.node import Identity, Node
from federator.protocol.parameters import Parameters, Strategy
from federator.protocol.routing.core_route import CoreRoute
from federator.protocol.routing.topic_routing import COLLECTORS_MAX
from tests.protocol.network import Network

STRAIGHT = Parameters(strategy=Strategy.SHORTEST_PATH)
LINE = [(1, 2), (2, 3), (3, 4)]


@pytest.fixture
def network():
    """Broker 4 wants f, and only collects it."""
    made = Network(LINE, parameters=STRAIGHT)
    made.at(0, 4, StatusChanged(BrokerRecord()))
    collects(made, 4, "f")
    made.subscribe(4, "f")
    made.run(1_000)
    return made


def collects(network, node, *filters):
    network.at(network.now_ms, node, CollectsChanged(frozenset(filters)))


def collected(network, node=1, filter_="f"):
    return network.routes[node, filter_].collected


def test_who_wants_it_in_a_mesh_wants_it():
    network = Network(LINE)
    network.nodes[4] = Node(Identity(4, 1_004), STRAIGHT)
    network.at(0, 4, StatusChanged(BrokerRecord()))
    collects(network, 4, "f")
    network.subscribe(4, "f")
    network.subscribe(3, "f")
    network.run(5_000)
    assert not collected(network)

    network.unsubscribe(3, "f")
    network.run(5_000)
    assert collected(network)


def test_while_a_broker_seems_to_say_two_things_what_both_say_counts():
    presence = BrokerPresence(PresenceParameters())
    assert presence.collected_by(4) is None
    one, other = BrokerRecord(collects=("f", "g")), BrokerRecord(collects=("f",), clients=1)

    presence.come(4, one)
    presence.come(4, other)
    assert presence.collected_by(4) == {"f"}

    presence.go(4, other, now_ms=0)
    assert presence.collected_by(4) == {"f", "g"}


def test_who_says_nothing_of_itself_any_more_wants_what_it_asks_for(network):
    node = network.nodes[4]
    told = node.failover._announced
    steps = node.announcements.own.change(frozenset(), told, lost=False, now_ms=network.now_ms)
    for step in steps:
        network._perform(4, step)
    network.run(1_000)

    assert not collected(network)


def test_a_record_says_it_to_old_releases_in_a_way_that_they_pass_over():
    record = BrokerRecord(clients=3, name="hub", collects=("a/#",))
    text = encode_record(record)

    assert parse_record(text) == record
    former = text.replace(',["a/#"]]', "]")
    assert former != text
    assert parse_record(former) == BrokerRecord(clients=3, name="hub")
    more = text.replace("]]", '],"of a later release"]')
    assert parse_record(more) == record


@pytest.mark.parametrize(
    ("filters", "fits"),
    [
        ([f"f/{n}" for n in range(COLLECTS_MAX)], True),
        ([f"f/{n}" for n in range(COLLECTS_MAX + 1)], False),
        (["x" * 9_000], False),
    ],
)
def test_a_record_has_room_for_so_many_filters(filters, fits):
    assert may_collect(filters) is fits


def test_of_a_crowd_of_collectors_those_that_find_no_place_want_everything():
    node = Node(Identity(1, 1_000), STRAIGHT)
    routes, routing = node.announcements.routes, node.topic_routing
    wish = destination_record("f")
    for core in range(2, COLLECTORS_MAX + 3):
        routes[core] = CoreRoute(core, 0)
        routes[core].announced.filters.apply([wish])
        routing.on_announced(core, [wish], lost=False)
        routing.on_collects(core, frozenset({"f"}))
    assert not routing.route_of("f", None).collected

    routing.on_announced(COLLECTORS_MAX + 2, [wish], lost=False)
    routes.pop(COLLECTORS_MAX + 2)
    routing.on_announced(COLLECTORS_MAX + 2, [wish], lost=True)

    assert routing.route_of("f", None).collected
