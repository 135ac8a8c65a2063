import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.filters import matches
from tests.protocol.filters.small_world import FILTERS, TOPICS, matches_stupidly

levels = st.sampled_from(["", "a", "b", "$x", "é", " "])
topics = st.lists(levels, min_size=1, max_size=7).map("/".join).filter(bool)
any_filters = (
    st.tuples(st.lists(st.one_of(levels, st.just("+")), max_size=7), st.sampled_from([[], ["#"]]))
    .map(lambda parts: "/".join(parts[0] + parts[1]))
    .filter(bool)
)


@pytest.mark.parametrize(
    ("filter", "topic"),
    [
        # OASIS MQTT 5.0, 4.7.1.2
        ("sport/tennis/player1/#", "sport/tennis/player1"),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking"),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
        ("sport/#", "sport"),
        ("#", "sport"),
        ("#", "/"),
        # 4.7.1.3
        ("sport/tennis/+", "sport/tennis/player1"),
        ("sport/tennis/+", "sport/tennis/player2"),
        ("sport/+", "sport/"),
        ("+/+", "/finance"),
        ("/+", "/finance"),
        ("+/#", "sport"),
        # 4.7.2
        ("$SYS/#", "$SYS/broker"),
        ("$SYS/monitor/+", "$SYS/monitor/Clients"),
        ("a/+", "a/$SYS"),
        # 4.7.3
        ("/", "/"),
        ("Accounts payable", "Accounts payable"),
    ],
)
def test_a_filter_of_the_specification_matches(filter, topic):
    assert matches(filter, topic)


@pytest.mark.parametrize(
    ("filter", "topic"),
    [
        ("sport/tennis/+", "sport/tennis/player1/ranking"),
        ("sport/+", "sport"),
        ("+", "/finance"),
        ("#", "$SYS/broker"),
        ("+/monitor/Clients", "$SYS/monitor/Clients"),
        ("+/#", "$SYS"),
        ("ACCOUNTS", "Accounts"),
        ("/finance", "finance"),
        ("sport/tennis/player1/#", "sport/tennis/player10"),
        ("sport/tennis/player1/#", "sport/tennis"),
        ("a/+/#", "a"),
        ("a", "a/"),
    ],
)
def test_a_filter_of_the_specification_does_not_match(filter, topic):
    assert not matches(filter, topic)


def test_nothing_matches_a_topic_with_wildcards():
    assert not matches("a/+", "a/+")
    assert not matches("#", "#")
    assert not matches("+", "a#")


def test_matching_agrees_with_the_stupid_matcher_in_the_small_world():
    wrong = [
        (filter, topic)
        for filter in FILTERS
        for topic in TOPICS
        if matches(filter, topic) != matches_stupidly(filter, topic)
    ]

    assert not wrong


@given(any_filters, topics)
def test_matching_agrees_with_the_stupid_matcher(filter, topic):
    assert matches(filter, topic) == matches_stupidly(filter, topic)
