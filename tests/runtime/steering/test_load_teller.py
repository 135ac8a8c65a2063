"""A load fits into a message whatever clients and brokers are called and how many there are."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from federator.config.brokers import BrokerSettings
from federator.config.settings import Settings
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.messages import json_codec
from federator.protocol.messages.steering import (
    BROKERS_MAX,
    FLOWS_MAX,
    STEERING_VERSION,
    KeptLoad,
    LinkLoad,
    Load,
    Plan,
)
from federator.protocol.steering.edge_follower import EdgeFollower, KeptMeter
from federator.protocol.steering.flow_meter import FlowMeter
from federator.protocol.types import Now
from federator.runtime.steering.load_teller import LoadTeller
from federator.runtime.trust.words import SignedWords


class Told:
    """A connection that keeps what is published."""

    connected = True

    def __init__(self):
        self.payloads = []

    def publish(self, topic, payload):
        assert topic == "$fed/fed/load"
        self.payloads.append(payload)
        return True


WANTED = ("mine/#",)
PLAN = Plan(STEERING_VERSION, "fed", 1, "steerer", 0, 3, 0, 30_000)


def teller(flows, *, destinations=(), plan=PLAN, vouch=None, counters=None):
    forwarder, meter = Forwarder(), FlowMeter(FLOWS_MAX)
    meter.on_time(0)
    for n in range(flows):
        forwarder.set_route(f"f/{n}", FilterRoute(False, True, (), destinations))
        meter.add(forwarder.route_topic(f"f/{n}"), 1_000, 1)
    meter.on_time(1_000)
    links = (LinkLoad(2, 1, 9_000.0, 0, 64_000.0),)
    return LoadTeller(
        settings=Settings(broker=BrokerSettings(id=1, url="mqtt://h", name="one"), security="open"),
        epoch=lambda: 5,
        link=Told(),
        words=SignedWords(None, vouch=vouch),
        forwarder=forwarder,
        flows=meter,
        loads=SimpleNamespace(report=lambda: links),
        holding=lambda: plan,
        wants=lambda filter_: filter_ in WANTED,
        edge=edge(plan),
        in_doubt=lambda: False,
        kept=KeptMeter(counters or DataCounters()),
    )


def edge(plan):
    """The operator lets a steerer place topics, and ``plan`` holds."""
    follower = EdgeFollower(
        keep=lambda policy, now: None,
        collect=lambda filters: None,
        note=lambda notice: None,
        asks_straight=lambda filter_: False,
        asks_in_mesh=lambda filter_: False,
        allowed=True,
    )
    follower.follow(plan, Now(0, 0))
    return follower


def test_nothing_is_told_without_a_plan_nor_without_a_connection():
    silent, cut = teller(1, plan=None), teller(1)
    cut.link.connected = False

    silent.tell()
    cut.tell()

    assert silent.link.payloads == cut.link.payloads == []


def test_flows_that_find_no_room_in_a_message_are_in_the_rest():
    ends = tuple(range(2**32 - BROKERS_MAX, 2**32))
    many = teller(FLOWS_MAX, destinations=ends)

    many.tell()

    (payload,) = many.link.payloads
    load = json_codec.decode(Load, payload)
    assert len(payload) <= json_codec.MESSAGE_BYTES_MAX
    assert 100 < len(load.flows) < FLOWS_MAX
    whole = FLOWS_MAX * load.flows[0].rate
    assert load.rest + sum(flow.rate for flow in load.flows) == pytest.approx(whole)


def test_what_is_told_names_who_tells_and_whose_plan_holds():
    one = teller(1, destinations=(9,))

    one.tell()

    load = json_codec.decode(Load, one.link.payloads[0])
    assert (load.broker, load.name, load.epoch) == (1, "one", 5)
    assert (load.steerer, load.number) == ("steerer", 3)
    assert [flow.destinations for flow in load.flows] == [(9,)]
    assert load.links[0].capacity == 64_000


def test_meshes_are_told_of_where_a_plan_asks_and_only_what_it_asks():
    asking = replace(PLAN, meshes=("mine/#", "not/mine"))
    silent, asked = teller(1), teller(1, plan=asking)

    silent.tell()
    asked.tell()

    assert json_codec.decode(Load, silent.link.payloads[0]).meshes is None
    meshes = json_codec.decode(Load, asked.link.payloads[0]).meshes
    assert (meshes.priority, meshes.wanted) == (0, ("mine/#",))
    assert [flow.filters for flow in meshes.flows] == [("f/0",)]


def test_meshes_go_before_flows_when_a_message_has_no_room():
    ends = tuple(range(2**32 - BROKERS_MAX, 2**32))
    many = teller(FLOWS_MAX, destinations=ends, plan=replace(PLAN, meshes=()))

    many.tell()

    load = json_codec.decode(Load, many.link.payloads[0])
    assert load.meshes is None
    assert len(load.flows) > 100


def test_it_is_signed_where_there_are_keys():
    signed = teller(1, destinations=(9,), vouch=lambda text: b"ours")

    signed.tell()

    assert b"proof" in signed.link.payloads[0]
    assert json_codec.decode(Load, signed.link.payloads[0]).broker == 1


def test_what_is_kept_is_told_where_the_plan_says_so():
    counters = DataCounters()
    without, asked = teller(0), teller(0, plan=replace(PLAN, keep="ns"), counters=counters)
    asked.kept.look(0)
    counters.kept, counters.kept_bytes = 20, 4_000
    asked.kept.look(2_000)

    without.tell()
    asked.tell()

    (nothing,), (told,) = (
        [json_codec.decode(Load, each) for each in one.link.payloads] for one in (without, asked)
    )
    assert nothing.kept is None
    assert told.kept == KeptLoad(allowed=True, publications=10.0, rate=16_000.0)
