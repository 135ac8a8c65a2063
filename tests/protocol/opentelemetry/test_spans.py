"""Names of traces and spans: all agents make the same ones, and OpenTelemetry's samplers agree."""

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.opentelemetry.spans import (
    PLACES,
    FrameName,
    places_of,
    span_id_of,
    trace_id_of,
    trace_state_of,
)
from federator.protocol.telemetry.records import is_sampled, place_of, salt_of

ids = st.integers(0, 2**32 - 1)
numbers = st.integers(0, 2**63 - 1)
frames = st.builds(FrameName, ids, numbers, st.integers(0, 1), numbers)
shares = st.floats(0, 1)


def place(frame):
    return place_of(salt_of(frame.origin, frame.epoch), frame.seq)


def threshold_in(trace_state):
    """What a reader of OpenTelemetry's specification makes of ``ot=th:...``, of 56 bits."""
    return int(trace_state.removeprefix("ot=th:").ljust(14, "0"), 16)


@given(frames, shares.filter(lambda share: share > 0))
def test_whoever_compares_the_end_of_a_trace_with_its_threshold_takes_what_we_take(frame, share):
    taken = place(frame) < places_of(share)

    trace_id = trace_id_of("fed", frame, place(frame))

    assert 0 < trace_id < 2**128
    assert (trace_id % 2**56 >= threshold_in(trace_state_of(places_of(share)))) == taken


@given(frames, shares, shares)
def test_a_smaller_share_is_a_part_of_a_greater_one(frame, one, other):
    less, more = sorted((one, other))

    if place(frame) < places_of(less):
        assert place(frame) < places_of(more)


@given(frames, st.integers(1, 1_000_000))
def test_the_metrics_stream_samples_the_same_frames(frame, one_in):
    salt = salt_of(frame.origin, frame.epoch)

    taken = is_sampled(salt, frame.seq, one_in)

    assert taken == (place(frame) * one_in < PLACES)
    if place(frame) < places_of(1 / one_in) - 1:  # but for how 1 / 3 is rounded
        assert taken


@given(st.lists(frames, unique=True, min_size=2, max_size=20))
def test_no_two_frames_share_a_trace_and_no_two_federations_do(several):
    named = {trace_id_of("fed", frame, place(frame)) for frame in several}
    others = {trace_id_of("fed-2", frame, place(frame)) for frame in several}

    assert len(named) == len(several)
    assert not named & others


@given(st.integers(1, 2**128 - 1), st.lists(ids, unique=True, min_size=2, max_size=20))
def test_agents_have_spans_of_their_own(trace_id, brokers):
    spans = [span_id_of(trace_id, broker) for broker in brokers]

    assert len({*spans, *(span_id_of(trace_id, each, "delivery") for each in brokers)}) == (
        2 * len(brokers)
    )
    assert all(0 < span < 2**64 for span in spans)


def test_a_share_is_rounded_to_places_and_the_least_is_one():
    assert [places_of(share) for share in (0, 1e-12, 0.5, 1)] == [0, 1, PLACES // 2, PLACES]
    assert [trace_state_of(places_of(share)) for share in (1, 0.5, 0.25)] == [
        "ot=th:0",
        "ot=th:8",
        "ot=th:c",
    ]


def test_names_are_the_same_for_good():
    """Agents of two releases name the same frame alike; a change of this tears traces apart."""
    frame = FrameName(7, 1_700_000_000_000, 1, 42)

    trace_id = trace_id_of("fed", frame, place(frame))

    assert f"{trace_id:032x}" == "af3d14ad37669fe192a214e76e5169e5"
    assert f"{span_id_of(trace_id, 7):016x}" == "226c796b8554f01c"
