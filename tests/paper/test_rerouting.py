"""What "Topic-Based Routing and Rerouting" (Chen 2020) says of brokers that replace each other."""

import pytest

from federator.protocol.controller.flow_table import (
    Likeness,
    SessionFlowTable,
    relate,
    topic_sessions,
)
from federator.protocol.messages.session_records import FlowRow

B1, B2 = 1, 2
TABLE_11 = (
    ("a", B1, 0, "t1", 1),
    ("a", B1, 1, "t6", 0),
    ("a", B2, 1, "t2", 1),
    ("b", B1, 1, "t3", 1),
    ("a", B1, 0, "t4", 1),
    ("c", B2, 1, "t5", 0),
    ("c", B1, 0, "t6", 1),  # printed "11"
)
"""Things, broker, Sub (1) or Pub (0), topic, on/off."""


@pytest.fixture
def table():
    table = SessionFlowTable()
    for client, broker, sub, topic, on in TABLE_11:
        table.add(broker, FlowRow(client, "sub" if sub else "pub", topic, on=bool(on)))
    return table


def test_section_3_3_4_table_11_has_one_topic_session_c_to_a_on_b1(table):
    assert topic_sessions(table.behaviours(B1, "abc")) == {("c", "a"): "t6"}
    assert topic_sessions(table.behaviours(B2, "abc")) == {}


def test_section_3_3_4_b1_and_b2_replace_each_other_by_the_third_rule_only(table):
    """On B2 both a and c just subscribe, so neither Definition 13 nor 14 relates the two."""
    relation = relate(table, B1, B2)

    assert relation.likeness is Likeness.WEAK_BY_PRESENCE
    assert relation.clients == ("a", "c")


def test_definition_13_the_same_pair_on_both_is_strong_whatever_the_topics(table):
    table.add(B2, FlowRow("c", "pub", "t2"))

    relation = relate(table, B1, B2)

    assert relation.likeness is Likeness.STRONG
    assert (relation.clients, relation.topics) == (("c", "a"), ("t6", "t2"))


def test_definition_14_the_pair_turned_round_is_weak(table):
    table.add(B2, FlowRow("a", "pub", "t5"))

    relation = relate(table, B1, B2)

    assert relation.likeness is Likeness.WEAK
    assert (relation.clients, relation.topics) == (("c", "a"), ("t6", "t5"))
