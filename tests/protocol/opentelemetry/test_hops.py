"""What a recorder makes of frame events: one hop a frame, within bounds, at all agents alike."""

from dataclasses import dataclass
from pathlib import Path

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
from tests.transcripts import play, scenes

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


SHOWN = {
    "frame": "federator.seq",
    "qos": "federator.qos",
    "from": "federator.previous_hop",
    "to": "federator.next_hops",
    "refused by": "federator.refused_by",
    "delivered": "federator.delivered",
    "messages": "messaging.batch.message_count",
    "us old": "federator.since_origin_us",
}


class Stage:
    """Broker 2's recorder, and frames of broker 1: ``came 5 1 --count=3`` is frame 5, from 1.

    ``pass 7`` lets 7 ms pass, ``take`` as many as a frame is followed. Prints the spans that are
    told then: where a frame came from and went to, what is unusual, and when it began and ended.
    """

    def __init__(self):
        self.clock, self.shown = Clock(), {}
        self.recorder = recorder(2, self.clock)

    def do(self, command, *words):
        options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
        numbers = [int(word) for word in words if not word.startswith("--")]
        self.flags = CUSTODY_FLAG * ("custody" in options) | REPAIR_FLAG * ("repair" in options)
        yield from getattr(self, f"_{command}")(*numbers, **options) or ()

    def _came(self, seq, sender, count="1", **options):
        repeated = "repeated" in options
        self.recorder.add(
            came(seq, sender, 1, flags=self.flags, count=int(count), repeated=repeated)
        )

    def _made(self, seq, count="1", **options):
        now = self.clock()
        self.recorder.add(Made(bytes(8), self.flags, EPOCH, seq, int(count), 10, now.us))

    def _sent(self, seq, to, **options):
        self.recorder.add(sent(seq, to, origin=2 if "own" in options else 1, flags=self.flags))

    def _delivered(self, seq, **options):
        self.recorder.add(delivered(seq, 1, flags=self.flags))

    def _refused(self, seq, to, count):
        self.recorder.add(Refused(to, count, False, self.flags, 1, EPOCH, seq))

    def _pass(self, ms):
        self.clock.ms += ms

    def _take(self):
        return self._tell(told(self.recorder, self.clock))

    def _leave(self):
        return self._tell(self.recorder.take_all())

    def _tell(self, hops):
        for hop in hops:
            made_of = span(hop, 2)
            above = self.shown.get(made_of.parent_id)
            self.shown[made_of.span_id] = made_of.name
            shown = [(name, made_of.attributes.get(long)) for name, long in SHOWN.items()]
            shown += [("below", above), ("error", made_of.error)]
            told = ", ".join(f"{name} {value}" for name, value in shown if value)
            yield f"{made_of.name} at {made_of.start_us} to {made_of.end_us}: {told}"


@scenes(Path(__file__).with_name("hops.txt"))
def test_transcript(path, number):
    play(path, number, Stage())
