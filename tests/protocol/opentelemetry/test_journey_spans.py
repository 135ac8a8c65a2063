"""What ``federator trace`` heard as spans: one for each hop, below that of the hop before."""

from federator.protocol.messages.operators import Traced
from federator.protocol.opentelemetry.hop_spans import journey_spans
from federator.protocol.telemetry.journey import Journey


def journey(*told):
    made = Journey()
    for each in told:
        made.take(each)
    return made


START = Traced((1,), (100,), 105, True, False, ((2, 0), (3, 7)), "a mesh", {}, ("tcp", "direct"))
TWO = Traced((1, 2), (100, 140), 190, True, True, ((4, 0),), "", {"2": "hall"}, ("udp-fec",))
THREE = Traced((1, 3), (100, 90), 180, True, False, ((4, 0),), "")
FOUR = Traced((1, 2, 4), (100, 140, 150), 230, True, True, (), "")
AGAIN = Traced((1, 3, 4), (100, 90, 160), 240, False, False, (), "")


def test_hops_are_a_tree_of_spans_with_times_of_their_brokers():
    spans = journey_spans(journey(START, TWO, THREE, FOUR, AGAIN), "a/b", trace_id=9)

    root, *hops = spans
    by_hop = {
        (s.attributes["federator.previous_hop"], s.attributes["federator.broker"]): s for s in hops
    }
    assert (root.parent_id, root.start_us, root.end_us) == (None, 100, 240)
    assert set(by_hop) == {(1, 2), (1, 3), (2, 4), (3, 4)}
    assert by_hop[1, 2].parent_id == by_hop[1, 3].parent_id == root.span_id
    assert by_hop[2, 4].parent_id == by_hop[1, 2].span_id
    assert by_hop[3, 4].parent_id == by_hop[1, 3].span_id
    assert (by_hop[2, 4].start_us, by_hop[2, 4].end_us) == (140, 150)
    assert len({span.span_id for span in spans}) == 5
    assert {span.trace_id for span in spans} == {9}
    transports = {
        hop: span.attributes.get("federator.previous_hop.transport") for hop, span in by_hop.items()
    }
    assert transports == {(1, 2): "tcp", (1, 3): "direct", (2, 4): "udp-fec", (3, 4): None}
    assert by_hop[1, 2].attributes["federator.broker.name"] == "hall"
    assert by_hop[1, 3].attributes["federator.queued_bytes"] == 7
    assert not by_hop[3, 4].attributes["federator.first"]


def test_a_clock_that_is_behind_makes_no_span_that_ends_before_it_begins():
    _, _, hop = journey_spans(journey(START, TWO, THREE), "a/b", trace_id=9)[:3]

    assert (hop.start_us, hop.end_us) == (100, 100)
    assert hop.attributes["federator.clock_behind_us"] == 10


def test_a_hop_that_is_silent_is_an_error():
    spans = journey_spans(journey(START, TWO), "a/b", trace_id=9)

    assert [(s.attributes["federator.broker"], s.error) for s in spans] == [
        (1, ""),
        (2, ""),
        (3, "no answer"),
        (4, "no answer"),
    ]


def test_where_no_agent_answered_there_is_no_span():
    assert journey_spans(Journey(), "a/b", trace_id=9) == []
