"""What our clients want, from every source, and what is wanted while that is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.discovery import (
    Discovery,
    DiscoveryParameters,
    InterestChanged,
    MembersChanged,
)
from federator.protocol.discovery.beginnings import CUT_MARK
from federator.protocol.discovery.interest import Interest
from federator.protocol.discovery.log_lines import (
    NOTICE_TOPIC,
    SUBSCRIBE_TOPIC,
    ClientConnected,
    ClientEnded,
    ClientEvent,
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
    Driven,
    restarted,
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


def test_without_widening_a_gap_is_only_reported():
    agent = Driven(widen=False)

    agent.up()

    assert agent.wanted == set()
    assert agent.notices[-1].details["widened"] == 0
    assert not agent.discovery.snapshot().trusted


# Gaps


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


def test_who_came_and_went_since_we_are_back_is_not_kept_in_mind():
    agent = Driven()
    agent.settle()

    agent.down()
    agent.up(session_present=True)  # and no uptime ever comes
    for number in range(100):
        agent.log(*arrive(f"guest {number}", f"a/{number}"), ClientEnded(f"guest {number}"))

    assert agent.discovery._table._logged_since_up.keys() <= {OWN_ID}


# Ambiguity


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


def test_many_ambiguous_lines_make_few_notices():
    agent = Driven()
    agent.settle()

    for number in range(1_000):
        agent.log(Subscribed("a", 0, f"0 1 {number}"))
        agent.later(10)

    assert agent.names().count("discovery.ambiguous") <= 2


# Policy, configuration, registrations


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


# Bounds


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


def test_readings_of_one_line_are_still_guesses_after_a_restart():
    agent = Driven()
    agent.up()
    agent.line(SUBSCRIBE_TOPIC, "1700000000: sp 0 ace 1 home/+")
    guesses = agent.discovery.record(now_ms=agent.now_ms).guesses
    assert guesses == [("sp", "ace 1 home/+"), ("sp 0 ace", "home/+")]

    successor = restarted(agent, away_ms=None)

    assert successor.discovery.record(now_ms=successor.now_ms).guesses == guesses


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
