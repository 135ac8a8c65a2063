"""Rates of flows with their errors: by hand, for random streams, and among a crowd."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.forwarding.frames import label_bytes
from federator.protocol.messages.steering import BROKERS_MAX, FILTERS_MAX, FlowLoad, MeshFlow
from federator.protocol.steering import flow_meter
from federator.protocol.steering.flow_meter import NEWCOMERS_MAX, ROUTES_MAX, WINDOWS, FlowMeter


class Measured:
    """A meter and the forwarder whose routes it counts, with a clock."""

    def __init__(self, flows_max=8, **arguments):
        self.forwarder = Forwarder()
        self.meter = FlowMeter(flows_max, **arguments)
        self.now_ms = 0
        self.meter.on_time(self.now_ms)

    def want(self, filter_, *destinations, next_hops=()):
        for end in destinations:
            self.forwarder.set_destination(end, end)
        route = FilterRoute(False, True, next_hops, tuple(sorted(destinations)))
        self.forwarder.set_route(filter_, route)

    def publish(self, topic, size, count=1):
        """Publish in one frame, whose label is left out."""
        route = self.forwarder.route_topic(topic)
        self.meter.add(route, size - label_bytes(route.keys), count)

    def second(self, span_ms=1_000):
        self.now_ms += span_ms
        self.meter.on_time(self.now_ms)

    def told(self, **arguments):
        return self.meter.told(self.forwarder, **arguments)

    def the_flow(self):
        ((flow,), rest) = self.told()
        assert rest == pytest.approx(0)
        return flow


def test_a_steady_flow_is_told_with_its_filters_destinations_and_no_error():
    world = Measured()
    world.want("a/#", 3, 2)
    world.want("a/+", 4)

    for _ in range(3):
        world.publish("a/b", 500, 4)
        world.second()

    ends = (2, 3, 4)
    assert world.told() == ((FlowLoad(("a/#", "a/+"), ends, 4_000.0, 0.0, 4.0),), 0.0)


def test_windows_of_any_length_are_weighed_by_it():
    world = Measured()
    world.want("a", 2)

    for span_ms in (600, 1_400, 5_000):
        world.publish("a", span_ms)
        world.second(span_ms)

    assert (world.the_flow().rate, world.the_flow().error) == (pytest.approx(8_000), 0.0)


def test_the_error_is_that_of_the_mean_of_windows():
    world = Measured()
    world.want("a", 2)

    for size in (1_000, 3_000):
        world.publish("a", size)
        world.second()

    assert world.the_flow().rate == 16_000
    assert world.the_flow().error == pytest.approx(8_000)  # 1,000 B: deviation 1,414 over root of 2


def test_what_a_frame_takes_beside_label_and_body_counts():
    world = Measured(frame_overhead_bytes=50)
    world.want("a", 2)

    world.publish("a", 200)
    world.second()

    assert world.the_flow().rate == 2_000


def test_a_flow_keeps_its_name_over_other_next_hops_and_gets_its_destinations_anew():
    world = Measured()
    world.want("a", 2)
    world.publish("a", 100)
    world.second()
    world.want("a", 2, 5)
    world.publish("a", 100)
    world.second()

    assert world.the_flow() == FlowLoad(("a",), (2, 5), 800.0, 0.0, 1.0)


def test_a_shift_that_lasts_is_seen_and_a_burst_of_two_seconds_is_not():
    world = Measured()
    world.want("a", 2)

    def publish(size, seconds):
        for _ in range(seconds):
            world.publish("a", size)
            world.second()
        return world.the_flow()

    before = publish(1_000, WINDOWS)
    burst = publish(10_000, 2)
    assert burst.rate - 2 * burst.error <= before.rate

    publish(1_000, WINDOWS)
    assert world.the_flow() == before

    shift = publish(3_000, 5)
    assert shift.rate - 2 * shift.error > before.rate
    assert publish(3_000, WINDOWS - 5).rate == 3 * before.rate


def test_whether_a_mesh_has_it_too_is_told():
    world = Measured()
    world.want("both", 2, next_hops=(3,))
    world.want("mesh", next_hops=(3,))
    world.want("lost mesh")
    world.want("straight", 2)
    topics = ("both", "mesh", "straight")

    for size, topic in enumerate((*topics, "lost mesh"), 100):
        world.publish(topic, size)
    world.second()

    meshed = {flow.filters[0]: flow.meshed for flow in world.told()[0]}
    assert meshed == {"both": True, "mesh": True, "lost mesh": True, "straight": False}
    steerable, rest = world.told(steerable=True)
    assert [flow.filters for flow in steerable] == [("straight",), ("both",)]
    assert rest == (101 + 103) * 8


def test_of_meshes_the_heaviest_flows_are_told_with_their_publications():
    world = Measured(flows_max=2)
    world.want("mesh/#", next_hops=(2,))
    world.want("both/#", 3, next_hops=(2,))
    world.want("thin/#", next_hops=(2,))
    world.want("straight/#", 3)

    for topic, size, count in (("mesh/a", 500, 4), ("both/a", 900, 1), ("thin/a", 100, 9)):
        world.publish(topic, size, count)
    world.publish("straight/a", 5_000, 7)
    world.second()

    told = world.meter.told_of_meshes(world.forwarder)
    assert told == (MeshFlow(("both/#",), 1.0), MeshFlow(("mesh/#",), 4.0))


def test_heavy_flows_in_meshes_leave_room_for_those_that_can_be_steered():
    world = Measured(flows_max=4)
    world.want("light", 9)
    for n in range(40):
        world.want(f"heavy/{n}", next_hops=(3,))

    for _ in range(2):
        world.publish("light", 10)
        for n in range(40):
            world.publish(f"heavy/{n}", 10_000)
        world.second()

    assert [flow.filters for flow in world.told(steerable=True)[0]] == [("light",)]
    assert len(world.told()[0]) == 4


def test_what_ended_is_forgotten_and_what_cannot_be_told_is_in_the_rest():
    world = Measured()
    world.want("gone", 2)
    world.want("wide", *range(1, BROKERS_MAX + 2))
    for n in range(FILTERS_MAX + 1):
        world.want("deep/+" + "/#" * (n == 0) if n < 2 else "deep/#" if n == 2 else f"x/{n}", 2)
    world.publish("gone", 100)
    world.publish("wide", 50)
    world.second()
    world.forwarder.set_route("gone", None)

    assert world.told() == ((), 1_200.0)

    for _ in range(WINDOWS):
        world.second()
    assert world.told() == ((), 0.0)
    assert not world.meter._flows


def test_long_names_do_not_fill_a_message(monkeypatch):
    monkeypatch.setattr(flow_meter, "FILTER_CHARS_MAX", 100)
    world = Measured()
    for name in ("a" * 60, "b" * 50, "c" * 40):
        world.want(name, 2)
        world.publish(name, len(name))
    world.second()

    flows, rest = world.told()

    assert [flow.filters[0][0] for flow in flows] == ["a", "c"]
    assert rest == 50 * 8


def test_heavy_flows_are_found_among_a_crowd_and_measured_exactly_thereafter():
    crowd, heavy, seconds = 6_000, 5, 3
    world = Measured(flows_max=16)
    for n in range(crowd):
        world.want(f"crowd/{n}", 2)
    for n in range(heavy):
        world.want(f"heavy/{n}", 2)
    draw = random.Random(20)

    for _ in range(seconds):
        topics = [f"crowd/{n}" for n in range(crowd)]
        topics += [f"heavy/{n}" for n in range(heavy) for _ in range(400)]
        draw.shuffle(topics)
        for topic in topics:
            world.publish(topic, 100)
            assert len(world.meter._open) <= ROUTES_MAX
            assert len(world.meter._newcomers) <= 2 * NEWCOMERS_MAX
        world.second()
        assert len(world.meter._flows) <= 2 * 16

    flows, rest = world.told()
    found = {flow.filters[0]: flow for flow in flows if flow.filters[0].startswith("heavy")}
    assert sorted(found) == [f"heavy/{n}" for n in range(heavy)]
    least = 8 * 100 * 400 * (seconds - 1) / seconds  # of the first window some was crossed out
    assert all(least <= flow.rate <= 8 * 100 * 400 for flow in found.values())
    told = sum(flow.rate for flow in flows) + rest
    assert told == pytest.approx(8 * 100 * (crowd + heavy * 400))


def test_a_flow_that_comes_thinly_among_heavier_ones_is_found_all_the_same(monkeypatch):
    monkeypatch.setattr(flow_meter, "NEWCOMERS_MAX", 8)
    monkeypatch.setattr(flow_meter, "ROUTES_MAX", 1)
    world = Measured()
    for name in ["thin", *(f"once/{n}" for n in range(8)), *(f"dust/{n}" for n in range(320))]:
        world.want(name, 2)

    for n in range(8):
        world.publish(f"once/{n}", 1_000)
    for turn in range(20):
        world.publish("thin", 999)
        for n in range(16):
            world.publish(f"dust/{16 * turn + n}", 1)
    world.second()

    (heaviest, *_), _ = world.told()
    assert heaviest.filters == ("thin",)
    assert heaviest.rate >= 8 * (20 * 999 - (8 * 1_000 + 20 * (999 + 16)) / 9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), mean=st.integers(5, 400), size=st.integers(60, 2_000))
def test_the_rate_of_a_random_stream_is_right_within_its_errors(seed, mean, size):
    """Sixty spans of ten windows, none of which shares one with another."""
    draw = np.random.default_rng(seed)
    world = Measured()
    world.want("a", 2)
    truth, off, spans = 8 * mean * size, [], 60
    for _ in range(spans):
        for _ in range(WINDOWS):
            count = int(draw.poisson(mean))
            world.publish("a", size * count, count)
            world.second()
        flow = world.the_flow()
        off.append((flow.rate - truth) / flow.error if flow.error else 0.0)

    assert sum(abs(each) > 4.3 for each in off) <= 3  # Student, 9 degrees: 0.2 % each
    assert abs(sum(off) / spans) < 1
    assert sum(each * each for each in off) / spans < 3  # 9/7 expected


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.integers(1, 10_000)), max_size=20),
        min_size=1,
        max_size=25,
    )
)
def test_few_flows_are_told_exactly(windows):
    world = Measured()
    for n in range(6):
        world.want(f"t/{n}", 2)
    for window in windows:
        for n, size in window:
            world.publish(f"t/{n}", size)
        world.second()

    told, rest = world.told()

    late = windows[-WINDOWS:]
    sums = {n: sum(size for window in late for m, size in window if m == n) for n in range(6)}
    wanted = {f"t/{n}": 8 * size / len(late) for n, size in sums.items() if size}
    assert {flow.filters[0]: flow.rate for flow in told} == pytest.approx(wanted)
    assert [flow.rate for flow in told] == sorted((f.rate for f in told), reverse=True)
    assert rest == pytest.approx(0, abs=1e-6)
