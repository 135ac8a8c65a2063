"""What counts as lost, twice or out of order, and what a dead broker is allowed to take along."""

import random

import pytest

from lab.chaos.layout import draw_layout, gathered, is_cut_vertex
from lab.chaos.ledger import Ledger
from lab.grid.topology import Grid
from tests.lab.chaos.chaos_stages import FAR, NEAR, Story


@pytest.fixture
def story():
    return Story()


def test_what_all_got_once_and_in_order_is_no_violation(story):
    for _ in range(3):
        story.come(story.send())

    assert story.ledger.behind(story.now_s) == 0
    counts = story.ledger.counts()["none"]
    assert (counts.attempted, counts.acknowledged, counts.owed, counts.delivered) == (3, 3, 6, 6)
    assert story.ledger.violations == []


def test_an_acknowledged_publication_that_never_comes_is_lost_for_each_who_wanted_it(story):
    story.come(story.send())
    missing = story.send()
    story.come(story.send())

    assert story.ledger.behind(story.now_s) == 2
    assert story.total("lost") == 2
    assert {(v.kind, v.where, v.number) for v in story.ledger.violations} == {
        ("lost", NEAR, missing),
        ("lost", FAR, missing),
    }


def test_nothing_is_promised_for_what_no_broker_acknowledged(story):
    story.send(acknowledged=False)

    assert story.ledger.behind(story.now_s) == 0
    assert story.total("lost") == 0


def test_what_comes_after_its_late_acknowledgement_was_owed_all_the_time(story):
    number = story.send(acknowledged=False)
    assert story.ledger.behind(story.now_s) == 0
    story.ledger.acknowledged("chaos/1/temp", number)

    assert story.ledger.behind(story.now_s) == 2


def test_a_second_copy_is_twice_unless_the_subscribers_broker_says_that_it_sends_again(story):
    number = story.send()
    story.come(number)
    story.come(number, NEAR)
    story.come(number, FAR, redelivery=True)

    counts = story.ledger.counts()["none"]
    assert (counts.twice, counts.redelivered, counts.delivered) == (1, 1, 2)
    assert [(v.kind, v.where) for v in story.ledger.violations] == [("twice", NEAR)]


def test_an_earlier_number_after_a_later_one_is_out_of_order(story):
    first, second = story.send(), story.send()
    story.come(second)
    story.come(first, NEAR)

    assert story.total("order") == 1


def test_what_a_broker_itself_swaps_for_a_subscriber_of_qos_2_is_counted_apart():
    story = Story(mixed=True)
    first, second = story.send(), story.send()
    story.come(second)
    story.come(first)

    assert (story.total("order"), story.total("swapped")) == (1, 1)
    assert story.total("delivered_mixed") == 2
    assert [each.where for each in story.ledger.violations] == [NEAR]


def test_at_one_qos_order_is_owed_to_subscribers_of_qos_2_too():
    layout = draw_layout(Grid(1, 2), random.Random(1), (2,))
    ledger, topic = Ledger(layout), next(iter(layout.topics))
    ledger.begin()
    for _ in range(2):
        ledger.attempted(topic, 1.0)
    for number in (1, 0):
        ledger.arrived(layout.subscribers[0].name, topic, number, redelivery=False, now_s=2.0)

    assert [each.kind for each in ledger.violations] == ["order"]


def test_copies_and_order_are_not_promised_for_what_the_publisher_sent_twice(story):
    first, second = story.send(), story.send()
    story.ledger.resent("chaos/1/temp", first)
    story.come(second)
    story.come(first)
    story.come(first)

    assert story.total("twice") == story.total("order") == 0
    assert story.total("spared_twice") == 2


@pytest.mark.parametrize(
    ("topic", "number"), [("chaos/1/temp", -1), ("chaos/1/temp", 99), ("chaos/9/temp", 0)]
)
def test_what_was_never_published_is_unexpected(story, topic, number):
    story.come(story.send())
    story.come(number, NEAR, topic=topic)

    assert story.total("unexpected") == 1


def test_publications_before_the_mesh_stood_do_not_count(story):
    early = story.send()
    story.ledger.begin()
    story.come(story.send())
    story.come(early, NEAR)
    story.come(early, NEAR)

    assert story.ledger.violations == []
    assert story.total("attempted") == 1


def test_a_dead_origin_takes_along_what_nobody_elsewhere_got_until_its_stream_resumes(story):
    story.come(story.send())
    story.fault("broker-kill-origin")
    story.come(story.send(), NEAR)  # it left the origin: FAR is owed it
    lost = story.send()
    story.die(1)
    story.back(1)
    unheard = story.send()
    story.come(story.send())
    story.send()  # after the stream resumed: lost, and not the broker's doing

    counts = story.ledger.counts()["broker-kill-origin"]
    assert counts.spared_lost == 2 * len({lost, unheard})
    assert counts.lost == 1 + 2


def test_a_dead_destination_takes_along_what_only_its_own_subscribers_miss(story):
    story.fault("broker-kill-destination")
    story.send()
    story.die(2)
    story.back(2, NEAR)
    story.come(story.send())
    story.send()

    counts = story.ledger.counts()["broker-kill-destination"]
    assert (counts.spared_lost, counts.lost) == (1, 1 + 2)


def test_what_was_missing_before_the_fault_is_not_the_dead_brokers_doing(story):
    story.send()
    story.fault("broker-kill-destination")
    story.die(2)
    story.back(2, NEAR)
    story.come(story.send())

    assert story.total("lost") == 2


def test_a_broker_that_kept_its_queues_on_disk_loses_nothing_but_may_repeat(story):
    story.come(again := story.send())
    story.send()
    story.die(2, keeps=True)
    story.back(2, NEAR)
    story.come(again, NEAR)
    story.come(story.send())

    assert story.total("lost") == 2
    assert (story.total("twice"), story.total("spared_twice")) == (0, 1)


def test_a_relays_death_excuses_nothing(story):
    story.come(number := story.send())
    story.send()
    story.die(7)
    story.back(7)
    story.come(number)

    assert (story.total("lost"), story.total("twice")) == (2, 2)


def test_copies_long_after_a_brokers_return_are_not_its_doing(story):
    story.come(number := story.send())
    story.die(2)
    story.back(2, NEAR)
    story.wait(3_600)
    story.come(number, NEAR)

    assert story.total("twice") == 1


@pytest.mark.parametrize(("keeps", "spared"), [(False, 2), (True, 0)])
def test_a_killed_origin_may_double_what_is_published_before_its_agent_is_back(
    story, keeps, spared
):
    story.come(story.send())
    story.die(1, keeps=keeps)
    story.back(1)
    story.wait(2)
    story.come(early := story.send())
    story.wait(6)
    story.come(late := story.send())

    story.come(early)
    story.come(late)

    assert (story.total("twice"), story.total("spared_twice")) == (4 - spared, spared)


def test_what_was_in_flight_at_an_interruption_may_be_handed_over_again_and_no_more(story):
    before = story.send()
    story.come(before)
    story.wait(2)
    numbers = [story.send() for _ in range(21)]
    story.interrupt(2, seconds=6)
    for number in numbers:
        story.come(number)
    story.come(before, NEAR)
    story.come(numbers[0], FAR)
    assert story.total("twice") == 2, "one too old, one where nothing was interrupted"

    for number in numbers:
        story.come(number, NEAR)

    assert (story.total("twice"), story.total("spared_twice")) == (3, 20)


def test_what_is_given_up_is_not_waited_for_but_stays_lost(story):
    story.send()
    story.ledger.give_up()
    story.come(story.send())

    assert story.ledger.behind(story.now_s) == 0
    assert story.total("lost") == 2


def test_a_pair_that_gets_nothing_new_is_stalled(story):
    story.come(story.send())
    healed_s = story.now_s
    story.come(story.send(), NEAR)

    assert story.ledger.stalled(healed_s) == [f"{FAR} chaos/1/temp"]


def test_what_happens_counts_under_the_fault_of_its_time(story):
    number = story.send()
    story.come(number)
    story.fault("agent-kill-relay")
    lost = story.send()
    story.come(number, NEAR)
    story.fault("none")

    counts = story.ledger.counts()
    assert counts["agent-kill-relay"].twice == 1
    assert counts["agent-kill-relay"].lost == 2
    assert {v.number for v in story.ledger.violations if v.kind == "lost"} == {lost}


def test_the_slowest_delivery_is_told(story):
    early, late = story.send(), story.send()
    story.come(early)
    story.wait(7)
    story.come(late)

    assert story.ledger.counts()["none"].slowest_s == pytest.approx(7.2, abs=0.01)


def test_loss_and_order_are_no_promises_at_qos_0(story):
    story.send()
    first, second = story.send(), story.send()
    story.come(second)
    story.come(first)
    counts = story.ledger.counts()["none"]

    assert (counts.lost, counts.order) == (2, 2)
    assert counts.broken(0) == 0
    assert counts.broken(1) == 4


def test_a_copy_breaks_a_promise_at_any_qos(story):
    story.come(number := story.send())
    story.come(number, NEAR)

    assert [story.ledger.counts()["none"].broken(qos) for qos in (0, 1, 2)] == [1, 1, 1]


@pytest.mark.parametrize("rows", range(1, 5))
@pytest.mark.parametrize("columns", range(2, 5))
def test_every_role_is_there_and_relays_can_die_where_the_graph_allows(rows, columns):
    grid = Grid(rows, columns)
    for seed in range(10):
        layout = draw_layout(grid, random.Random(seed))

        assert layout.origins
        assert layout.destinations
        assert not set(layout.relays) & {*layout.origins, *layout.destinations}
        assert {*layout.relays, *layout.origins, *layout.destinations} == set(grid.ids)
        assert any(layout.topics[t] != s.broker for s, t in layout.pairs())
        if min(rows, columns) > 1:
            assert not any(is_cut_vertex(grid, here) for here in layout.relays)
        if len(grid.ids) >= 3:
            assert layout.relays


def test_of_mixed_qos_every_filter_has_a_subscriber_of_each():
    grid = Grid(2, 2)
    alike = draw_layout(grid, random.Random(3))

    mixed = draw_layout(grid, random.Random(3), (1, 2))

    wanted = [(s.broker, s.filter, qos) for s in alike.subscribers for qos in (1, 2)]
    assert [(s.broker, s.filter, s.qos) for s in mixed.subscribers] == wanted
    assert len({s.name for s in mixed.subscribers}) == len(wanted)


def test_a_gathered_layout_has_the_same_clients_at_one_broker():
    layout = draw_layout(Grid(3, 3), random.Random(3))

    alone = gathered(layout, 7)

    assert {pair[0].name for pair in alone.pairs()} == {pair[0].name for pair in layout.pairs()}
    assert len(alone.pairs()) == len(layout.pairs())
    assert {s.broker for s in alone.subscribers} | set(alone.topics.values()) == {7}
    assert (alone.origins, alone.destinations, alone.relays) == ((7,), (7,), ())
