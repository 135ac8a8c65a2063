"""What our clients want, from every source, and what is wanted while that is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.discovery import (
    Discovery,
    DiscoveryParameters,
    DiscoveryRecord,
    InterestChanged,
    MembersChanged,
    decode_record,
    encode_record,
)
from federator.protocol.discovery.beginnings import CUT_MARK
from federator.protocol.discovery.interest import Interest
from federator.protocol.discovery.log_lines import (
    NOTICE_TOPIC,
    SUBSCRIBE_TOPIC,
    ClientConnected,
    ClientEnded,
    ClientEvent,
    Dropping,
    SessionExpired,
    Subscribed,
    Unsubscribed,
)
from federator.protocol.discovery.subscription_table import (
    Fate,
    Kind,
    SubscriptionTable,
    Tally,
)
from federator.protocol.types import Millis
from tests.protocol.discovery.harness import (
    CONNECTED,
    OWN_ID,
    PLAIN,
    SHARED,
    UPTIME,
    VERSION,
    Driven,
)


def arrive(id: str, *filters: str, clean: bool = True, protocol: int = 4) -> list[ClientEvent]:
    return [ClientConnected(id, clean, protocol), *(Subscribed(id, 1, f) for f in filters)]


def table_of(**bounds: int) -> SubscriptionTable:
    parameters = DiscoveryParameters(**bounds)
    return SubscriptionTable(Interest(parameters), parameters)


def counted(table: SubscriptionTable) -> dict[Kind, Tally]:
    """What ``tallies`` should say, one subscription after the other."""
    counts = {Kind.PLAIN: [0, 0, 0], Kind.SHARED: [0, 0, 0]}
    for client in table.records(lambda _: True):
        doubt = 1 if client.fate is Fate.PERSISTS else 2
        for place, filters in ((0, client.sure), (doubt, client.doubtful)):
            for filter in filters:
                kind = Kind.SHARED if filter.startswith("$share/") else Kind.PLAIN
                counts[kind][place] += 1
    return {kind: Tally(*numbers) for kind, numbers in counts.items()}


def leave(id: str) -> ClientEvent:
    return ClientEnded(id)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["connect", "clean", "end", "subscribe", "unsubscribe", "doubt", "gap"]
            ),
            st.sampled_from(["c1", "c2"]),
            st.sampled_from(["a", "a/b", "$share/g/a", "$share/h/#", f"$share/g/long{CUT_MARK}"]),
        ),
        max_size=30,
    )
)
def test_subscriptions_are_tallied_as_if_counted_one_by_one(steps):
    table = table_of()

    for what, id, filter in steps:
        match what:
            case "connect" | "clean":
                table.on_connected(
                    id, clean=what == "clean", protocol=5 if filter.startswith("$") else 4
                )
            case "end":
                table.on_ended(id)
            case "subscribe":
                table.on_subscribed(id, filter)
            case "unsubscribe":
                table.on_unsubscribed(id, filter)
            case "doubt":
                table.doubt_subscribed(id, filter)
            case "gap":
                table.on_gap()

        assert table.tallies() == counted(table)


def test_of_our_own_clients_only_who_hears_the_log_is_written_down():
    agent = Driven()
    agent.up()
    agent.discovery.on_own_subscriptions("federator-1-data", frozenset(["a"]), now_ms=agent.now_ms)
    agent.discovery.on_own_subscriptions(OWN_ID, frozenset(["b"]), now_ms=agent.now_ms)

    record = agent.discovery.record(now_ms=agent.now_ms)

    assert [client.id for client in record.clients] == [OWN_ID]


# Trust


def test_everything_is_wanted_until_the_counts_agree():
    agent = Driven()

    agent.up()
    assert agent.wanted == {"#"}
    agent.counts(0)

    assert agent.wanted == set()
    assert agent.discovery.snapshot().trusted
    assert agent.names() == ["discovery.untrusted", "discovery.trusted"]


def test_subscriptions_older_than_the_agent_keep_it_widened_until_their_clients_return():
    agent = Driven()
    agent.up()
    agent.counts(2)
    agent.later(2_000)

    reason = agent.discovery.snapshot().reason
    assert reason == "subscriptions: the broker counts 6, 4 are known"
    assert agent.wanted == {"#"}

    agent.log(*arrive("old", "a", "b"))
    agent.counts(2)
    assert agent.wanted == {"a", "b"}


def test_one_agreeing_count_is_not_enough_shared_subscriptions_are_counted_apart():
    agent = Driven()
    agent.up()

    agent.sys(PLAIN, agent.own)
    assert agent.wanted == {"#"}

    agent.sys(SHARED, 0)
    agent.later(600)
    assert agent.wanted == set()


def test_counts_stored_before_we_came_count_from_the_brokers_next_tick_on():
    agent = Driven()
    agent.up()

    agent.sys(PLAIN, agent.own, retained=True)
    agent.sys(SHARED, 0, retained=True)
    agent.later(900)
    assert agent.wanted == {"#"}

    agent.sys(UPTIME, "10 seconds")
    agent.later(600)
    assert agent.wanted == set()
    agent.later(60_000)
    assert agent.probes == []


def test_a_count_that_did_not_change_settles_doubts_too():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("brief", "a", protocol=5), leave("brief"))
    assert agent.wanted == {"a"}

    agent.sys(UPTIME, "10 seconds")
    agent.log(*arrive("next", "b"))

    assert agent.wanted == {"b"}


def test_counts_are_asked_for_until_both_have_come():
    agent = Driven(probe_interval_ms=Millis(5_000))
    agent.up()
    agent.sys(PLAIN, agent.own)

    agent.later(12_000)
    assert agent.probes == [True, False, True]

    agent.sys(SHARED, 0)
    agent.later(60_000)
    assert agent.probes == [True, False, True]


def test_a_broker_that_publishes_no_counts_is_named_as_the_reason():
    agent = Driven(probe_interval_ms=Millis(5_000))
    agent.up()

    agent.later(20_000)

    assert "sys_interval" in agent.discovery.snapshot().reason


@pytest.mark.parametrize("count", [0, 2])
def test_any_count_but_that_of_what_we_know_widens(count):
    agent = Driven()
    agent.settle()
    agent.log(*arrive("c", "a"))

    agent.count_plain(count)

    assert agent.wanted == {"a", "#"}


def test_bridges_that_are_away_are_not_missing():
    agent = Driven(unlogged_subscriptions=2)
    agent.settle(2)
    agent.log(*arrive("c", "a"))

    agent.count_plain(1)

    assert agent.wanted == {"a"}


def test_what_went_unheard_does_not_make_up_for_what_came_unheard():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("storm", "s/1", "s/2"))
    agent.packets(7, 8)

    agent.packets(11)  # an UNSUBSCRIBE of s/1, and a client with a filter nobody heard of
    agent.counts(2)
    agent.later(60_000)
    assert agent.wanted == {"#", "s/1", "s/2"}

    agent.log(ClientEnded("storm"), *arrive("unheard", "b"))
    agent.packets(12)
    agent.counts(1)
    assert agent.wanted == {"b"}


def test_identifiers_begin_again_and_what_comes_twice_is_no_loss():
    agent = Driven()
    agent.settle()

    agent.packets(65_533, 65_534, 65_535, 1, 2)
    agent.packets(65_535, 1, 2, duplicate=True)
    agent.packets(3)

    assert agent.discovery.snapshot().lines_lost == 0
    agent.packets(2)
    assert agent.discovery.snapshot().lines_lost == 65_533


def test_what_was_lost_while_an_agent_restarted_is_missed_afterwards():
    first = Driven()
    first.settle()
    first.packets(7)
    record = first.discovery.record(now_ms=first.now_ms)

    second = Driven()
    second.apply(
        second.discovery.load(
            decode_record(encode_record(record)), away_ms=1_000, now_ms=second.now_ms
        )
    )
    second.up(session_present=True)
    assert second.wanted == set()

    second.packets(9)
    assert second.wanted == {"#"}


def test_what_a_killed_agent_heard_and_did_not_write_is_not_taken_for_lost():
    first = Driven()
    first.settle()
    first.packets(7)
    record = first.discovery.record(now_ms=first.now_ms)

    second = Driven()
    second.apply(second.discovery.load(record, away_ms=None, now_ms=second.now_ms))
    second.up(session_present=True)
    second.packets(20)

    assert second.discovery.snapshot().lines_lost == 0


def test_marks_that_are_late_widen_until_they_come():
    agent = Driven()
    agent.settle()

    sent_at_ms = agent.now_ms
    agent.mark()
    agent.later(5_000)
    agent.mark()
    assert agent.wanted == {"#"}
    agent.count_plain(0)
    assert agent.wanted == {"#"}

    agent.discovery.on_mark(sent_at_ms)
    agent.mark()
    agent.count_plain(0)
    assert agent.wanted == set()


def test_a_line_after_the_count_does_not_make_up_for_one_that_is_missing():
    agent = Driven()
    agent.up()
    agent.counts(1)

    agent.log(*arrive("c", "a"))
    agent.later(5_000)

    assert agent.wanted == {"a", "#"}


def test_without_widening_a_gap_is_only_reported():
    agent = Driven(widen=False)

    agent.up()

    assert agent.wanted == set()
    assert agent.notices[-1].details["widened"] == 0
    assert not agent.discovery.snapshot().trusted


def test_without_log_topics_nothing_is_ever_widened_or_probed():
    agent = Driven(log_topics=False, filters=("a/#",))

    agent.up()
    agent.later(100_000)

    assert agent.wanted == {"a/#"}
    assert agent.probes == []


def test_the_subscriptions_of_a_bridge_in_the_broker_can_be_set_off():
    agent = Driven(unlogged_subscriptions=3)

    agent.settle(plain=3)

    assert agent.wanted == set()


# Gaps


def test_a_short_absence_with_a_session_loses_nothing():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("c", "a"))

    agent.down()
    agent.later(5_000)
    agent.discovery.on_broker_up(session_present=True, now_ms=agent.now_ms)

    assert agent.discovery.snapshot().trusted
    assert agent.discovery.wanted == {"a"}


@pytest.mark.parametrize(("away_ms", "session_present"), [(25_000, True), (1_000, False)])
def test_a_gap_keeps_what_was_known_and_wants_everything(away_ms: int, session_present: bool):
    agent = Driven()
    agent.settle()
    agent.log(*arrive("c", "a"))

    agent.down()
    agent.later(away_ms)
    agent.up(session_present=session_present)
    assert agent.wanted == {"a", "#"}

    agent.counts(1)
    assert agent.wanted == {"a"}


def test_after_a_gap_a_lower_count_shows_that_the_old_subscriptions_are_gone():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("c", "a", "b"))
    agent.down()
    agent.up()

    agent.counts(0)

    assert agent.wanted == set()
    assert agent.discovery.snapshot().trusted


def test_a_restarted_broker_has_no_clean_sessions():
    agent = Driven()
    agent.settle()
    agent.sys(UPTIME, "500 seconds")
    agent.log(*arrive("clean", "a"), *arrive("keeper", "b", clean=False))
    agent.log(*arrive("five", "c", "d", protocol=5))

    agent.down()
    agent.up()
    agent.sys(UPTIME, "1 seconds", retained=True)

    assert agent.wanted == {"a", "b", "c", "d", "#"}
    agent.counts(1)
    assert agent.wanted == {"b"}


@pytest.mark.parametrize("agent_restarts", [False, True])
@pytest.mark.parametrize(("came", "comes"), [(5, 3), (3, 5)])
def test_what_a_client_had_in_a_session_of_another_fate_makes_up_for_nobody(
    came: int, comes: int, agent_restarts: bool
):
    agent = Driven()
    agent.settle()
    agent.sys(UPTIME, "500 seconds")
    agent.log(*arrive("changes", "a", clean=False, protocol=came))
    agent.log(*arrive("keeper", "b", clean=False), *arrive("clean", "c"))

    agent.down()
    agent.up()
    agent.log(*arrive("changes", clean=False, protocol=comes), leave("changes"))
    if agent_restarts:
        agent = restarted(agent, away_ms=None)
    agent.down()
    agent.up()
    agent.sys(UPTIME, "1 seconds")  # less than before: only "b" is left
    agent.counts(1)

    assert agent.wanted == {"a", "b", "c", "#"}
    agent.log(*arrive("changes", "a"), *arrive("clean", "c"))
    agent.counts(3)
    assert agent.wanted == {"a", "b", "c"}


def test_of_sessions_of_unknown_fate_some_may_have_outlived_a_restart():
    agent = Driven()
    agent.settle()
    agent.sys(UPTIME, "500 seconds")
    agent.log(*arrive("keeper", "a", clean=False), *arrive("five", "b", protocol=5))
    agent.log(*arrive("clean", "c"))

    agent.down()
    agent.up()
    agent.sys(UPTIME, "1 seconds")  # "a" and "b" are left, as many as of other sessions
    agent.counts(2)

    assert agent.wanted == {"a", "b", "c", "#"}


def test_who_is_heard_late_after_a_gap_does_not_cost_the_hope_for_the_others():
    agent = restarted(known_agent(), away_ms=None)
    agent.up(session_present=True)
    agent.counts(3, 1)  # a gateway, which answers the roll call
    assert "#" in agent.wanted

    agent.log(*arrive("federator-gw", "g"))
    agent.counts(3, 1)

    assert agent.wanted == {"a", "b", "c", "registered"}


@pytest.mark.parametrize("agent_restarts", [False, True])
def test_what_was_unheard_before_a_gap_makes_up_for_nobody_after_it(agent_restarts: bool):
    agent = Driven()
    agent.settle()
    agent.log(*arrive("one", "a"))
    agent.counts(2)  # somebody has "b", too
    assert agent.wanted == {"a", "#"}

    if agent_restarts:
        agent = restarted(agent, away_ms=None)
    else:
        agent.down()
    # "a" goes
    agent.up()
    agent.counts(1)

    assert agent.wanted == {"a", "#"}
    agent.log(*arrive("one", "a"), *arrive("two", "b"))
    agent.counts(2)
    assert agent.wanted == {"a", "b"}


def test_who_is_gone_with_a_broker_that_kept_our_session_makes_up_for_nobody():
    agent = Driven()
    agent.settle()
    agent.sys(UPTIME, "500 seconds")
    agent.log(*arrive("clean", "a", protocol=5), *arrive("keeper", "b", clean=False, protocol=5))

    agent.down()
    agent.apply(agent.discovery.on_broker_up(session_present=True, now_ms=agent.now_ms))
    agent.sys(UPTIME, "500 seconds")  # waited for us
    agent.sys(VERSION, f"mosquitto version {agent.version}", retained=True)
    agent.log(*arrive("keeper", clean=False, protocol=5))  # it need not subscribe again
    agent.sys(UPTIME, "1 seconds")
    agent.counts(1)

    assert agent.wanted == {"a", "b", "#"}
    agent.log(*arrive("clean", "a", protocol=5))
    agent.counts(2)
    assert agent.wanted == {"a", "b"}


def test_what_is_heard_before_a_restart_is_known_is_not_doubted():
    agent = Driven()
    agent.settle()
    agent.sys(UPTIME, "500 seconds")
    agent.log(*arrive("gone", "a"), *arrive("back", "b"))

    agent.down()
    agent.up(session_present=True)
    agent.sys(VERSION, "mosquitto version 2.0.11", retained=True)
    agent.log(*arrive("back", "b"))
    agent.sys(UPTIME, "1 seconds")
    agent.counts(1)

    assert agent.wanted == {"b"}


def test_who_came_and_went_since_we_are_back_is_not_kept_in_mind():
    agent = Driven()
    agent.settle()

    agent.down()
    agent.up(session_present=True)  # and no uptime ever comes
    for number in range(100):
        agent.log(*arrive(f"guest {number}", f"a/{number}"), ClientEnded(f"guest {number}"))

    assert agent.discovery._table._heard.keys() <= {OWN_ID}


def test_lines_that_the_broker_dropped_for_us_are_a_gap():
    agent = Driven()
    agent.settle()
    agent.log(Dropping("someone"))
    assert agent.wanted == set()

    agent.log(Dropping(OWN_ID))

    assert agent.wanted == {"#"}
    assert agent.notices[-1].name == "discovery.broker_drops"
    agent.counts(0)
    assert agent.wanted == set()


# Sessions


def test_a_clean_client_takes_its_filters_along_and_a_persistent_one_leaves_them():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("clean", "a"), *arrive("keeper", "b", clean=False))

    agent.log(leave("clean"), leave("keeper"))
    assert agent.wanted == {"b"}

    agent.log(SessionExpired("keeper"))
    assert agent.wanted == set()
    assert agent.discovery.snapshot().clients == 1


def test_a_clean_connection_ends_an_older_session():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("keeper", "b", clean=False), leave("keeper"))

    agent.log(ClientConnected("keeper", True, 4))

    assert agent.wanted == set()


def test_a_takeover_needs_no_line_about_the_end_of_the_old_connection():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("c", "a"))

    agent.log(*arrive("c", "b"))

    assert agent.wanted == {"b"}


def test_what_an_mqtt_5_client_leaves_behind_is_settled_by_the_next_count():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("gone", "a", protocol=5), leave("gone"))
    assert agent.wanted == {"a"}
    agent.count_plain()
    assert agent.wanted == set()

    agent.log(*arrive("stays", "b", protocol=5), leave("stays"))
    agent.count_plain(1)
    assert agent.wanted == {"b"}
    assert agent.discovery.snapshot().doubtful == 0


def test_two_clients_with_one_filter_hold_it_twice():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("one", "a"), *arrive("two", "a"))

    agent.log(leave("one"))
    assert agent.wanted == {"a"}
    agent.log(Unsubscribed("two", "a"))

    assert agent.wanted == set()


def test_shared_subscriptions_that_only_mosquitto_grants_are_read_and_widen_nothing():
    """It grants, logs and counts them: a group called ``+``, and groups of no filter."""
    agent = Driven()
    agent.settle()
    agent.log(*arrive("w", "$share/g", "$share/+", "$share/#", "$share/g/", "$share/+/x"))
    assert agent.wanted == {"x"}
    agent.settle(shared=5)
    assert agent.wanted == {"x"}
    agent.log(Unsubscribed("w", "$share/+/x"), Unsubscribed("w", "$share/g"))
    agent.settle(shared=3)
    assert agent.wanted == set()


def test_a_group_that_only_mosquitto_grants_is_of_its_broker_alone():
    agent = Driven(groups_span_brokers=True)
    agent.settle()
    agent.log(*arrive("w", "$share/+/x", "$share/g"))
    agent.settle(shared=2)
    assert agent.wanted == {"x"}
    assert agent.discovery.snapshot().groups_beyond_quota == 0
    agent.log(Unsubscribed("w", "$share/+/x"))
    assert agent.wanted == set()


def test_a_shared_subscription_is_interest_in_its_filter():
    agent = Driven()
    agent.settle()

    agent.log(*arrive("w1", "$share/g/jobs/+"), *arrive("w2", "jobs/+"))
    agent.counts(1, 1)

    assert agent.wanted == {"jobs/+"}
    agent.log(Unsubscribed("w2", "jobs/+"))
    assert agent.wanted == {"jobs/+"}
    agent.log(Unsubscribed("w1", "$share/g/jobs/+"))
    assert agent.wanted == set()


def test_our_own_clients_are_counted_and_want_nothing():
    agent = Driven()
    agent.settle()

    agent.log(*arrive("federator-1-data", "x/y", protocol=5))
    agent.counts(1)

    assert agent.wanted == set()
    assert agent.discovery.snapshot().trusted


def test_what_our_own_clients_hold_can_be_told_when_its_lines_passed_unheard():
    agent = Driven()
    agent.up()
    agent.apply(
        agent.discovery.on_own_subscriptions(
            "federator-1-data", frozenset({"x", "y"}), now_ms=agent.now_ms
        )
    )

    agent.later(600)
    agent.counts(2)

    assert agent.discovery.snapshot().trusted


def test_counts_older_than_what_our_own_clients_tell_do_not_hide_a_client_who_came_unheard():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("nomad", "s/+", clean=False))
    agent.down()
    agent.up()
    older = agent.own + 1  # the nomad is back, our other connection has not subscribed yet
    agent.apply(
        agent.discovery.on_own_subscriptions(
            "federator-1-data", frozenset({"x"}), now_ms=agent.now_ms
        )
    )

    agent.sys(UPTIME, "10 seconds")
    agent.sys(PLAIN, older)
    agent.sys(SHARED, 0)
    agent.later(600)
    assert agent.wanted == {"#", "s/+"}

    agent.counts(2)
    assert agent.wanted == {"s/+"}


def test_counts_that_waited_for_us_do_not_hide_clients_behind_what_came_since():
    agent = Driven()
    ours = "federator-1-retained", frozenset({"x", "y"})
    agent.settle()
    agent.apply(agent.discovery.on_own_subscriptions(*ours, now_ms=agent.now_ms))
    agent.later(600)
    agent.log(*arrive("keeper", "a", "b", protocol=5, clean=False))
    agent.down()
    agent.later(20_000)

    # The broker restarts, keeps both sessions, and counts before our other connection is back.
    agent.apply(agent.discovery.on_broker_up(session_present=True, now_ms=agent.now_ms))
    agent.apply(agent.discovery.on_own_subscriptions(*ours, now_ms=agent.now_ms))
    agent.sys(UPTIME, "1 seconds")
    agent.sys(PLAIN, agent.own + 2)
    agent.sys(SHARED, 0)
    agent.later(5_000)
    assert agent.wanted == {"#", "a", "b"}

    agent.sys(VERSION, f"mosquitto version {agent.version}", retained=True)
    agent.sys(UPTIME, "6 seconds")
    agent.counts(4)
    assert agent.wanted == {"a", "b"}


def test_topics_with_a_dollar_never_travel():
    agent = Driven()
    agent.settle()

    agent.log(*arrive("c", "$SYS/#", "$share/g/$SYS/x", "$fed/x"))

    assert agent.wanted == set()


# Ambiguity


def test_an_ambiguous_subscription_wants_every_reading():
    agent = Driven()
    agent.settle()
    agent.log(ClientConnected("sp", True, 4), ClientConnected("sp 0 ace", True, 4))

    agent.log(Subscribed("sp 0 ace", 0, "t/1"))

    assert agent.wanted == {"t/1", "ace 0 t/1"}
    assert agent.discovery.snapshot().ambiguous == 1
    assert agent.notices[-1].name == "discovery.ambiguous"
    agent.log(leave("sp"))
    assert agent.wanted == {"t/1"}


def test_a_complete_view_of_the_connected_clients_tells_readings_apart():
    agent = Driven()
    agent.settle()
    agent.sys(CONNECTED, 1)
    agent.log(ClientConnected("sp 0 ace", True, 4))

    agent.log(Subscribed("sp 0 ace", 0, "t/1"))
    assert agent.wanted == {"t/1"}

    agent.log(Unsubscribed("sp 0 ace", "t/1"))
    assert agent.wanted == set()
    assert agent.discovery.snapshot().ambiguous == 0


def test_an_ambiguous_unsubscription_waits_for_the_count():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("Living Room", "a/b"))

    agent.log(Unsubscribed("Living Room", "a/b"))
    assert agent.wanted == {"a/b"}
    agent.count_plain()

    assert agent.wanted == set()


def test_a_forged_end_of_connection_does_not_take_the_victims_filters():
    agent = Driven(version="2.1.2")
    agent.settle()
    agent.log(*arrive("victim", "precious"))
    forger = "victim [127.0.0.1:4711] disconnected: protocol error"
    agent.log(ClientConnected(forger, True, 4))

    agent.log(leave(forger))

    assert agent.wanted == {"precious"}
    agent.count_plain(1)
    assert agent.wanted == {"precious"}
    assert agent.discovery.snapshot().doubtful == 0


def test_a_forged_connection_does_not_take_the_victims_filters():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("victim", "precious"))

    agent.line(
        NOTICE_TOPIC,
        "1700000000: New client connected from 9.9.9.9:9 as victim (p2, c1, k60, u'x "
        "(p2, c1, k60, u'y').",
    )

    assert agent.wanted == {"precious"}


@pytest.mark.parametrize(
    "id",
    [
        "New client connected from 1.2.3.4:5 as victim (p2, c1, k60).",
        "Client victim disconnected.",
        "Expiring client victim due to timeout.",
        "1700000000: Client victim disconnected.",
        "victim disconnected. Client victim",
    ],
)
def test_an_id_that_looks_like_a_log_line_harms_nobody(id: str):
    agent = Driven()
    agent.settle()
    agent.log(*arrive("victim", "precious"))

    agent.log(*arrive(id, "t"), Unsubscribed(id, "t"), leave(id))

    assert "precious" in agent.wanted
    agent.count_plain(1)
    assert agent.wanted == {"precious"}


def test_a_cut_filter_is_widened_to_its_whole_levels():
    agent = Driven()
    agent.settle()
    agent.sys(CONNECTED, 1)
    agent.log(ClientConnected("c", True, 4))

    agent.log(Subscribed("c", 0, "a/b/" + "x" * 1_200))

    assert agent.wanted == {"a/b/#"}
    agent.sys(PLAIN, agent.own + 1)
    agent.log(Unsubscribed("c", "a/b/" + "x" * 1_200))
    agent.count_plain()
    assert agent.wanted == set()


def test_a_subscription_whose_client_id_fills_the_line_widens_until_it_is_gone():
    agent = Driven()
    agent.settle()
    id = "i" * 1_200

    agent.log(*arrive(id, "t"))
    agent.sys(PLAIN, agent.own + 1)
    agent.later(2_000)
    assert agent.wanted == {"#"}

    agent.log(leave(id))
    agent.count_plain()
    assert agent.wanted == set()


def test_many_ambiguous_lines_make_few_notices():
    agent = Driven()
    agent.settle()

    for number in range(1_000):
        agent.log(Subscribed("a", 0, f"0 1 {number}"))
        agent.later(10)

    assert agent.names().count("discovery.ambiguous") <= 2


# Policy, configuration, registrations


def test_match_all_filters_stay_local_and_visible_unless_federated():
    local, federated = Driven(), Driven(match_all="federate")

    for agent in (local, federated):
        agent.settle()
        agent.log(*arrive("explorer", "#", "+/#", "+/+"))

    assert local.wanted == {"+/+"}
    assert local.discovery.snapshot().kept_local == {"#": 1, "+/#": 1}
    assert federated.wanted == {"#", "+/#", "+/+"}
    local.log(leave("explorer"))
    assert local.discovery.snapshot().kept_local == {}


def test_a_configured_match_all_is_meant():
    agent = Driven(filters=("#", "a"))
    agent.settle()

    assert agent.wanted == {"#", "a"}


def test_a_registration_lasts_until_it_is_withdrawn_or_runs_out():
    agent = Driven(registration_ttl_ms=Millis(10_000))
    agent.settle()
    register = agent.discovery.on_regular_topic

    agent.apply(register(b"a/+", now_ms=agent.now_ms))
    agent.apply(register(b"b", now_ms=agent.now_ms))
    agent.apply(register(b"- a/+", now_ms=agent.now_ms))
    assert agent.wanted == {"b"}

    agent.later(6_000)
    agent.apply(register(b"b", now_ms=agent.now_ms))
    agent.later(6_000)
    assert agent.wanted == {"b"}
    agent.later(6_000)
    assert agent.wanted == set()


@pytest.mark.parametrize(
    "payload",
    [b"", b"-", b"- ", b"a/#/b", b"\xff\xfe", b"$SYS/x", b"$share/g", b"a\0b", b"x" * 70_000],
)
def test_a_bad_registration_is_reported_and_changes_nothing(payload: bytes):
    agent = Driven()
    agent.settle()

    agent.apply(agent.discovery.on_regular_topic(payload, now_ms=agent.now_ms))

    # A lone "-" is a topic like any other.
    refused = payload != b"-"
    assert (agent.wanted == set()) is refused
    assert ("discovery.registration_refused" in agent.names()) is refused


def test_registrations_are_bounded():
    agent = Driven(registrations_max=3)
    agent.settle()

    for number in range(5):
        agent.apply(agent.discovery.on_regular_topic(b"t/%d" % number, now_ms=agent.now_ms))

    assert agent.wanted == {"t/0", "t/1", "t/2"}


# Bounds


def test_a_filling_table_warns_at_75_percent_and_widens_when_full():
    agent = Driven(filters_max=20)
    agent.settle()
    agent.log(ClientConnected("greedy", True, 4))

    agent.log(*(Subscribed("greedy", 0, f"t/{number}") for number in range(11)))
    assert "discovery.table_filling" in agent.names()
    assert agent.discovery.snapshot().trusted
    agent.log(*(Subscribed("greedy", 0, f"u/{number}") for number in range(11)))

    assert "#" in agent.wanted
    assert len(agent.wanted) == 17
    assert agent.discovery.snapshot().refused == 6
    agent.log(leave("greedy"))
    agent.count_plain()
    assert agent.wanted == set()


def test_the_table_is_bounded_in_bytes_too():
    agent = Driven(bytes_max=10_000)
    agent.settle()

    agent.log(*arrive("c", *(f"{number}/" + "x" * 500 for number in range(30))))

    assert agent.discovery.snapshot().sure < 25
    assert "#" in agent.wanted


def test_clients_that_come_and_go_leave_nothing_behind():
    agent = Driven()
    agent.settle()
    before = agent.discovery.snapshot()

    for number in range(2_000):
        agent.log(*arrive(f"c{number}", f"t/{number}"), leave(f"c{number}"))

    after = agent.discovery.snapshot()
    assert (after.clients, after.sure, after.doubtful) == (before.clients, before.sure, 0)
    assert agent.wanted == set()


# On disk


def restarted(agent: Driven, *, away_ms: int | None, outdated: bool = False) -> Driven:
    stored = encode_record(agent.discovery.record(now_ms=agent.now_ms))
    successor = Driven()
    record: DiscoveryRecord = decode_record(stored)
    load = successor.discovery.load
    effects = load(record, away_ms=away_ms, now_ms=successor.now_ms, outdated=outdated)
    successor.apply(effects)
    return successor


def known_agent() -> Driven:
    agent = Driven()
    agent.settle()
    agent.log(*arrive("clean", "a"), *arrive("keeper", "b", "$share/g/c", clean=False))
    agent.apply(agent.discovery.on_regular_topic(b"registered", now_ms=agent.now_ms))
    agent.counts(2, 1)
    return agent


def test_an_orderly_quick_restart_is_trusted_at_once():
    agent = restarted(known_agent(), away_ms=2_000)

    agent.up(session_present=True)

    assert agent.wanted == {"a", "b", "c", "registered"}
    assert agent.discovery.snapshot().trusted


@pytest.mark.parametrize(
    ("away_ms", "session_present"), [(None, True), (60_000, True), (2_000, False)]
)
def test_any_other_restart_wants_everything_until_the_counts_agree(
    away_ms: int | None, session_present: bool
):
    agent = restarted(known_agent(), away_ms=away_ms)

    agent.up(session_present=session_present)
    assert agent.wanted == {"a", "b", "c", "registered", "#"}

    agent.counts(2, 1)
    assert agent.wanted == {"a", "b", "c", "registered"}


def test_a_count_that_agrees_with_an_outdated_record_proves_nothing():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("clean", "a"))

    agent = restarted(agent, away_ms=None, outdated=True)  # it has "b" instead since
    agent.up(session_present=True)
    agent.counts(1)
    assert agent.wanted == {"a", "#"}

    agent = restarted(agent, away_ms=None)
    agent.up(session_present=True)
    agent.counts(1)
    assert agent.wanted == {"a", "#"}

    agent.log(*arrive("clean", "b"))
    agent.counts(1)
    assert agent.wanted == {"b"}


def test_readings_of_one_line_are_still_guesses_after_a_restart():
    agent = Driven()
    agent.up()
    agent.line(SUBSCRIBE_TOPIC, "1700000000: sp 0 ace 1 home/+")
    guesses = agent.discovery.record(now_ms=agent.now_ms).guesses
    assert guesses == [("sp", "ace 1 home/+"), ("sp 0 ace", "home/+")]

    successor = restarted(agent, away_ms=None)

    assert successor.discovery.record(now_ms=successor.now_ms).guesses == guesses


def test_registrations_run_on_over_a_restart():
    agent = restarted(known_agent(), away_ms=2_000)

    agent.later(3_600_001)

    assert "registered" not in agent.wanted


def test_the_first_effects_tell_the_configured_filters():
    discovery = Discovery(
        own_id=OWN_ID, parameters=DiscoveryParameters(filters=("a",), widen=False)
    )

    effects = discovery.on_deadline(now_ms=Millis(0))

    assert InterestChanged(frozenset({"a"}), frozenset()) in effects


def test_garbage_on_any_topic_changes_nothing():
    agent = Driven()
    agent.settle()
    before = agent.discovery.snapshot()

    for topic in (PLAIN, SHARED, CONNECTED, UPTIME, "$SYS/broker/version", "other"):
        for payload in (b"", b"-1", b"\xff", b"1e9", b"9" * 400, b"12x"):
            agent.apply(agent.discovery.on_sys(topic, payload, now_ms=agent.now_ms))
    agent.line("$SYS/broker/log/X", "1700000000: c 1 t")
    agent.line(NOTICE_TOPIC, "1700000000: Something else entirely")

    assert agent.discovery.snapshot().sure == before.sure
    assert agent.wanted == set()


def test_an_unreadable_subscription_widens_until_the_next_count():
    agent = Driven()
    agent.settle()

    agent.line(SUBSCRIBE_TOPIC, "1700000000: nonsense")
    assert agent.wanted == {"#"}
    agent.count_plain()

    assert agent.wanted == set()


def test_a_long_unsubscription_doubts_every_beginning_it_may_have_had():
    agent = Driven()
    agent.settle()
    agent.sys(CONNECTED, 1)
    agent.log(ClientConnected("c", True, 4))
    agent.log(*(Subscribed("c", 0, f"a/{n}/" + "x" * 1_200) for n in range(70)))
    agent.count_plain(70)

    agent.log(Unsubscribed("c", "a/0/" + "x" * 1_200))

    assert len(agent.wanted) == 70
    assert agent.discovery.snapshot().doubtful == 70
    assert agent.discovery.snapshot().trusted


def test_unsubscribing_what_was_never_subscribed_costs_a_big_client_nothing():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("big", *(f"s/{n}" for n in range(100))))
    before = agent.discovery.snapshot()

    agent.log(*(Unsubscribed("big", f"never/{n}") for n in range(100)))

    assert agent.discovery.snapshot().doubtful == before.doubtful == 0
    assert len(agent.wanted) == 100


def test_a_clean_session_cannot_be_resumed():
    agent = Driven()
    agent.settle()
    agent.log(*arrive("c", "a", clean=True))

    agent.log(ClientConnected("c", False, 4))

    assert agent.wanted == set()


def test_shared_subscriptions_of_a_resumed_session_wait_for_the_count():
    # Mosquitto 2.0.11 forgets them without a line.
    agent = Driven()
    agent.settle()
    agent.log(*arrive("keeper", "a", "$share/g/b", clean=False), leave("keeper"))

    agent.log(ClientConnected("keeper", False, 4))
    assert agent.wanted == {"a", "b"}
    agent.counts(1, 0)

    assert agent.wanted == {"a"}
    assert agent.discovery.snapshot().trusted


def test_counts_from_before_a_gap_prove_nothing_after_it():
    agent = Driven()
    agent.settle()

    agent.down()
    agent.later(30_000)
    agent.up(session_present=True)
    agent.sys(UPTIME, "40 seconds")
    agent.later(600)

    assert agent.wanted == {"#"}


def test_an_end_that_may_be_another_clients_leaves_the_view_incomplete():
    table = table_of()
    table.on_connected("a", clean=True, protocol=4)
    table.complete = True

    table.doubt_client("a")

    assert not table.complete
    assert not table.is_connected("a")


def test_a_refused_guess_leaves_no_client_behind():
    table = table_of(bytes_max=10)

    assert not table.doubt_subscribed("a", "x" * 20)

    assert len(table) == 0


def test_beyond_its_quota_a_client_s_groups_are_wanted_like_any_filter():
    interest = Interest(
        DiscoveryParameters(groups_span_brokers=True, groups_max=3, client_groups_max=2)
    )
    for number in range(4):
        interest.count(f"$share/g/a/{number}", 1, client="greedy")
    interest.count("$share/g/b", 1, client="modest")
    interest.count("$share/g/c", 1, client="late")

    assert set(interest.held) == {"a/2", "a/3", "c"}
    assert len(interest.beyond) == 3
    *_, members = interest.take()
    assert isinstance(members, MembersChanged)
    assert members.members == {("g", "a/0"): 1, ("g", "a/1"): 1, ("g", "b"): 1}

    interest.count("$share/g/b", 1, client="greedy")  # costs nobody a group more
    *_, members = interest.take()
    assert isinstance(members, MembersChanged)
    assert members.members == {("g", "b"): 2}

    for number in range(4):
        interest.count(f"$share/g/a/{number}", -1, client="greedy")
    interest.count("$share/g/b", -1, client="greedy")
    interest.count("$share/g/b", -1, client="modest")
    interest.count("$share/g/c", -1, client="late")
    assert not interest.held
    assert not interest.beyond
    *_, members = interest.take()
    assert isinstance(members, MembersChanged)
    assert set(members.members.values()) == {0}


def test_groups_beyond_the_quota_are_told_once():
    agent = Driven(groups_span_brokers=True, client_groups_max=1)
    agent.settle()

    agent.log(*arrive("greedy", "$share/g/a", "$share/g/b"))
    agent.log(*arrive("other", "x"))

    assert agent.names().count("share.beyond_quota") == 1
    assert agent.discovery.snapshot().groups_beyond_quota == 1
    assert agent.wanted == {"b", "x"}
