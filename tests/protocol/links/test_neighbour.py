"""Cost by delay: it follows the link, and noise moves nothing."""

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.events import NeighbourConnected
from federator.protocol.links.neighbour import COST_MAX, ROUND_TRIPS, SLACK_MS, LinkDelay
from federator.protocol.parameters import LinkCost, Parameters, Strategy
from tests.protocol.network import Network

WARM_UP = 24
BY_DELAY = Parameters(link_cost=LinkCost.DELAY, strategy=Strategy.SHORTEST_PATH)

base_ms = st.integers(1, 400)
shares = st.lists(st.floats(0, 0.2), min_size=40, max_size=80)


def noisy(base, noise, spikes):
    """Round trips up to a fifth above ``base``, and late ones, never ``ROUND_TRIPS`` on end."""
    for at, share in enumerate(noise):
        late = spikes and at % ROUND_TRIPS
        yield base + int(base * share) + (1_000 if late else 0)


def changed(delay, round_trip_ms):
    before = delay.cost
    delay.measure(round_trip_ms)
    return delay.cost != before


@given(base_ms, shares, st.booleans())
def test_noise_and_late_answers_move_nothing(base, noise, spikes):
    delay = LinkDelay()
    changes = [changed(delay, each) for each in noisy(base, noise, spikes)]

    assert not any(changes[WARM_UP:])
    assert base - SLACK_MS <= delay.cost <= 1.2 * base + max(SLACK_MS, 0.3 * base)


@given(base_ms, st.sampled_from([0.4, 2.0, 5.0]), shares)
def test_a_link_that_became_another_one_is_noticed_and_then_left_alone(base, factor, noise):
    delay = LinkDelay()
    for each in noisy(base, noise, spikes=False):
        delay.measure(each)
    now = max(1, round(base * factor))
    changes = [changed(delay, now) for _ in range(WARM_UP + 20)]

    assert abs(delay.cost - now) <= max(SLACK_MS, 0.35 * now)
    assert not any(changes[WARM_UP:])


def test_cost_is_never_nothing_and_never_beyond_its_bound():
    fast, endless = LinkDelay(), LinkDelay()
    fast.measure(0)
    endless.measure(10**9)

    assert (fast.cost, endless.cost) == (1, COST_MAX)


def way(network, node, to):
    return network.nodes[node].topic_routing.next_hops[to]


def test_two_short_links_are_better_than_a_long_one_when_cost_is_delay():
    delays = {(1, 2): 5, (2, 3): 5, (1, 3): 40}
    for parameters, expected in ((BY_DELAY, 2), (Parameters(strategy=Strategy.SHORTEST_PATH), 3)):
        network = Network([(1, 2), (2, 3), (1, 3)], delay_ms=dict(delays), parameters=parameters)
        network.subscribe(3, "f")
        network.run(3_000)

        assert way(network, 1, 3) == expected


def test_routes_follow_a_link_whose_delay_changed_and_come_back():
    network = Network([(1, 2), (2, 3), (1, 3)], delay_ms={(1, 3): 8}, parameters=BY_DELAY)
    network.subscribe(3, "f")
    network.run(3_000)
    assert way(network, 1, 3) == 3

    network.delay_ms[1, 3] = 60
    network.run(20_000)
    assert way(network, 1, 3) == 2

    network.delay_ms[1, 3] = 8
    network.run(20_000)
    assert way(network, 1, 3) == 3


def test_a_cost_that_the_operator_gave_wins_over_the_measured_one():
    network = Network([(1, 2), (2, 3)], parameters=BY_DELAY)
    network.at(0, 1, NeighbourConnected(9, "b3", 3, cost=3))
    network._conns[1, 9] = 3
    network.connect(3, 1)
    network.subscribe(3, "f")
    network.run(3_000)

    assert network.nodes[1].links.up[3].cost == 3
    assert network.nodes[1].links.up[2].cost == 10
    assert way(network, 1, 3) == 3
