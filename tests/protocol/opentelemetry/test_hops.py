"""What a recorder makes of frame events: one hop a frame, within bounds, at all agents alike."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.forwarding.frames import CUSTODY_FLAG, REPAIR_FLAG
from federator.protocol.opentelemetry.hop_spans import hop_span
from federator.protocol.opentelemetry.hops import FOLLOWED_MS, HopRecorder
from federator.protocol.opentelemetry.spans import PLACES, places_of
from federator.protocol.telemetry.frame_events import (
    Came,
    Delivered,
    FrameEventBuffer,
    Made,
    Refused,
    Sent,
)
from federator.protocol.types import Now

EPOCH = 1_700_000_000_000


@dataclass
class Clock:
    ms: int = 1_000

    def __call__(self):
        return Now(self.ms, self.ms * 1_000)


def recorder(self_id, clock, *, share=1.0, per_s=1_000, also=None):
    return HopRecorder(
        self_id=self_id, places=places_of(share), hops_per_s_max=per_s, now=clock, also=also
    )


def made(seq, *, flags=0, count=1):
    return Made(bytes(8), flags, EPOCH, seq, count, 10, 1_000_000)


def came(seq, sender, hops, *, origin=1, flags=0, count=1, repeated=False, now_us=1_000_000):
    return Came(sender, count, 99, repeated, flags, origin, EPOCH, seq, hops, 999_000, now_us)


def sent(seq, to, *, origin=1, flags=0):
    return Sent(to, 1, 99, flags, origin, EPOCH, seq)


def delivered(seq, hops, *, origin=1, flags=0):
    return Delivered(origin, hops, flags, bytes(8), EPOCH, seq, 1, 10, 5_000, 999_000)


def told(followed, clock):
    clock.ms += FOLLOWED_MS
    return followed.take()


def span(hop, self_id):
    return hop_span(
        hop, federation="fed", self_id=self_id, filters=(), transport_to=lambda _: "tcp"
    )


@given(
    # A tree of agents: each of 2, 3, ... has the frame from one before it.
    st.lists(st.integers(0, 10**6), min_size=1, max_size=12),
    st.integers(1, 2**40),
    st.booleans(),
)
def test_spans_of_agents_that_never_spoke_are_one_tree(parents, seq, custody):
    flags, senders = int(custody), [1 + at % (n + 1) for n, at in enumerate(parents)]
    clock, spans, hops = Clock(), {}, {1: 0}
    for broker, sender in zip(range(1, 2 + len(senders)), [None, *senders], strict=True):
        followed = recorder(broker, clock)
        if sender is None:
            followed.add(made(seq, flags=flags))
            followed.add(sent(seq, 2, flags=flags))
        else:
            hops[broker] = hops[sender] + 1
            followed.add(came(seq, sender, hops[broker], flags=flags))
        (hop,) = told(followed, clock)
        spans[broker] = span(hop, broker)

    assert len({each.trace_id for each in spans.values()}) == 1
    assert len({each.span_id for each in spans.values()}) == len(spans)
    assert spans[1].parent_id is None
    for broker, sender in enumerate(senders, 2):
        assert spans[broker].parent_id == spans[sender].span_id


@given(st.lists(st.integers(1, 10**9), unique=True, max_size=60), st.floats(0.01, 1))
def test_agents_follow_the_same_frames(numbers, share):
    clock = Clock()
    origin, relay = recorder(1, clock, share=share), recorder(2, clock, share=share)
    for seq in numbers:
        origin.add(made(seq))
        origin.add(sent(seq, 2))
        relay.add(came(seq, 1, 1))

    at_origin, at_relay = told(origin, clock), told(relay, clock)

    assert [hop.frame for hop in at_origin] == [hop.frame for hop in at_relay]
    assert origin.passed_over == relay.passed_over == 0


def test_a_hop_holds_what_became_of_its_frame_and_ends_when_it_was_handed_on():
    clock = Clock()
    followed = recorder(2, clock)
    followed.add(came(5, 1, 1, count=3))
    clock.ms += 2
    followed.add(sent(5, 3))
    followed.add(delivered(5, 1))
    clock.ms += 3
    followed.add(Refused(4, 3, False, 0, 1, EPOCH, 5))
    followed.add(came(5, 9, 4, repeated=True))
    assert followed.take() == []

    (hop,) = told(followed, clock)
    made_of = span(hop, 2)

    assert (hop.sender, hop.sent_to, hop.refused_to, hop.delivered) == (1, [3], [4], 1)
    assert (made_of.start_us, made_of.end_us) == (1_000_000, 1_005_000)
    assert made_of.error == "3 publications lost: queue full or no link"
    assert made_of.attributes["messaging.batch.message_count"] == 3
    assert made_of.attributes["federator.since_origin_us"] == 1_000
    assert told(followed, clock) == []


def test_at_an_origin_under_custody_a_frame_is_sent_before_it_is_told_to_be_made():
    clock = Clock()
    followed = recorder(1, clock)
    followed.add(sent(5, 2, flags=CUSTODY_FLAG))
    followed.add(made(5, flags=CUSTODY_FLAG))

    (hop,) = told(followed, clock)

    assert (hop.sender, hop.sent_to) == (None, [2])
    assert span(hop, 1).attributes["federator.qos"] == 1


def test_what_custody_delivers_long_after_is_a_span_below_that_of_the_hop():
    clock = Clock()
    followed = recorder(2, clock)
    followed.add(came(5, 1, 1, flags=CUSTODY_FLAG))
    (hop,) = told(followed, clock)
    followed.add(came(5, 9, 2, flags=CUSTODY_FLAG))  # a copy for other filters: nothing new
    followed.add(delivered(5, 1, flags=CUSTODY_FLAG))
    (late,) = told(followed, clock)

    before, after = span(hop, 2), span(late, 2)

    assert after.parent_id == before.span_id != after.span_id
    assert after.trace_id == before.trace_id
    assert after.name == "deliver"
    assert after.attributes["federator.delivered"] == 1


def test_what_is_made_without_a_way_is_no_hop_and_leaves_its_number_to_the_next_frame():
    clock = Clock()
    followed = recorder(1, clock)
    followed.add(made(5))
    assert told(followed, clock) == []
    followed.add(made(5))
    clock.ms += 7
    followed.add(Made(bytes(8), 0, EPOCH, 5, 3, 10, 1_500_000))
    followed.add(sent(5, 2))

    (hop,) = told(followed, clock)

    assert (hop.start_us, hop.publications, hop.sent_to) == (1_500_000, 3, [2])


def test_repairs_tails_and_frames_without_publications_begin_nothing():
    clock = Clock()
    followed = recorder(1, clock)
    followed.add(sent(5, 2, flags=CUSTODY_FLAG | REPAIR_FLAG))
    followed.add(came(6, 2, 1, count=0))
    followed.add(came(8, 2, 1, repeated=True))  # whose first copy was not followed
    followed.add(sent(7, 2))  # of which nobody says how it came

    assert told(followed, clock) == []


def test_too_many_frames_in_a_second_are_not_followed_and_the_share_falls_and_returns():
    clock = Clock()
    followed = recorder(1, clock, per_s=10)
    for seq in range(1_000):
        followed.add(made(seq))
        followed.add(sent(seq, 2))
    assert followed.passed_over == 990
    hops = told(followed, clock)
    assert len(hops) == 10
    assert followed.places == PLACES // 100

    for seq in range(1_000, 2_000):
        followed.add(made(seq))
        followed.add(sent(seq, 2))
    calmer = told(followed, clock)

    assert 5 <= len(calmer) <= 10
    assert all(hop.place < hop.places == PLACES // 100 for hop in calmer)
    for _ in range(10):
        assert told(followed, clock) == []
    assert followed.places == PLACES


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 3)), max_size=300))
def test_never_are_more_followed_than_allowed_whatever_comes(events):
    clock = Clock()
    followed = recorder(2, clock, per_s=5)
    kinds = (
        lambda seq: came(seq, 1, 1),
        lambda seq: sent(seq, 3),
        lambda seq: delivered(seq, 1),
        lambda seq: Refused(3, 1, False, 0, 1, EPOCH, seq),
    )
    for seq, kind in events:
        followed.add(kinds[kind](seq))

    assert len(told(followed, clock)) <= 5


def test_the_metrics_stream_gets_every_event_all_the_same():
    clock, tape = Clock(), FrameEventBuffer()
    followed = recorder(1, clock, share=0.000001, also=tape)
    events = [made(seq) for seq in range(50)]
    for event in events:
        followed.add(event)

    assert tape.take() == events


def test_when_the_agent_leaves_hops_that_are_not_over_are_told():
    clock = Clock()
    followed = recorder(1, clock)
    followed.add(made(5))
    followed.add(sent(5, 2))
    followed.add(sent(6, 2))

    assert [hop.frame.seq for hop in followed.take_all()] == [5]
    assert followed.take_all() == []


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        ([], {}),
        (["a/b"], {"destination.template": "a/b", "destination.name": "a/b"}),
        (["a/+"], {"destination.template": "a/+"}),
        (["#"], {"destination.template": "#"}),
        (["a+b"], {"destination.template": "a+b", "destination.name": "a+b"}),
        (["a", "#"], {"destination.template": "a"}),
        (["a" * 999], {"destination.template": "a" * 256}),
    ],
)
def test_a_filter_is_the_name_of_a_topic_only_where_it_can_be_no_other(filters, told):
    clock = Clock()
    followed = recorder(1, clock)
    followed.add(made(5))
    followed.add(sent(5, 2))
    clock.ms += FOLLOWED_MS
    (hop,) = followed.take()

    made_of = hop_span(
        hop, federation="fed", self_id=1, filters=filters, transport_to=lambda _: "tcp"
    )

    said = {k: v for k, v in made_of.attributes.items() if k.startswith("messaging.destination.")}
    assert said == {f"messaging.{name}": text for name, text in told.items()}
    assert made_of.attributes.get("federator.filters", []) == (filters if filters[1:] else [])
    assert len(made_of.name) <= 256 + len("send ")
