"""Equivalence of brokers against the definitions, evaluated stupidly over all pairs and rows."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.controller.flow_table import Likeness, SessionFlowTable, relate
from federator.protocol.filters import matches
from federator.protocol.messages.session_records import FlowRow

CLIENTS = ("x", "y", "z")
rows = st.builds(
    FlowRow,
    client=st.sampled_from(CLIENTS),
    action=st.sampled_from(("pub", "sub")),
    topic=st.sampled_from(("t", "u", "v/w")),
)
brokers = st.lists(st.tuples(st.sampled_from((1, 2)), rows), max_size=10)


def table_of(pairs):
    table = SessionFlowTable()
    for broker, row in pairs:
        table.add(broker, row)
    return table


def by_definition(pairs):
    def session(broker, x, y):
        mine = [row for at, row in pairs if at == broker]
        return any(
            p.client == x and p.action == "pub" and s.client == y and s.action == "sub"
            and matches(s.topic, p.topic)
            for p in mine
            for s in mine
        )  # fmt: skip

    def present(broker, x):
        return any(at == broker and row.client == x for at, row in pairs)

    both = list(permutations(CLIENTS, 2))
    if any(session(1, x, y) and session(2, x, y) for x, y in both):
        return Likeness.STRONG
    if any(session(1, x, y) and session(2, y, x) for x, y in both):
        return Likeness.WEAK
    if any(all(present(b, c) for b in (1, 2) for c in pair) for pair in both):
        return Likeness.WEAK_BY_PRESENCE
    return Likeness.NONE


@given(brokers)
def test_the_relation_is_the_best_that_the_definitions_give(pairs):
    assert relate(table_of(pairs), 1, 2).likeness == by_definition(pairs)


@given(brokers)
def test_a_relation_holds_both_ways(pairs):
    table = table_of(pairs)

    assert relate(table, 1, 2).likeness == relate(table, 2, 1).likeness


@given(brokers, st.data())
def test_rows_taken_out_leave_no_trace(pairs, data):
    kept = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    table = table_of(pairs)

    for pair in {*pairs} - {*kept}:
        table.discard(*pair)

    assert relate(table, 1, 2).likeness == by_definition(kept)
    assert len(table) == len(kept)


def test_a_filter_with_wildcards_relates_like_the_topics_it_matches():
    table = table_of([
        (1, FlowRow("x", "pub", "a/b")), (1, FlowRow("y", "sub", "a/+")),
        (2, FlowRow("x", "pub", "c")), (2, FlowRow("y", "sub", "$share/g/#")),
    ])  # fmt: skip

    relation = relate(table, 1, 2)

    assert (relation.likeness, relation.clients) == (Likeness.STRONG, ("x", "y"))
    assert relation.topics == ("a/b", "c")


def test_a_client_that_hears_itself_relates_nothing():
    rows = [FlowRow("x", "pub", "a"), FlowRow("x", "sub", "a")]

    assert relate(table_of([(b, r) for b in (1, 2) for r in rows]), 1, 2).likeness == Likeness.NONE


def test_a_client_is_found_however_its_name_is_written():
    table = SessionFlowTable()
    for number, client in enumerate(('q"uo\\te', "plain", "ümlaut")):
        table.add(number, FlowRow(client, "sub", "t"))
    escaped = r'["\u0070lain","sub","u",true,false,0,false]'
    table.add(3, FlowRow("plain", "sub", "u"), f"$fed/controller/flow/{escaped}")

    assert table.connected_at('q"uo\\te') == [0]
    assert table.connected_at("plain") == [1, 3]
    assert table.connected_at("ümlaut") == [2]
    assert table.rows(3) == [FlowRow("plain", "sub", "u")]
