"""What a leaf says of who serves it: one form, and nothing that is not quite it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.messages.codec import decode, encode, kind_of
from federator.protocol.messages.serving import (
    ID_MAX,
    SINCE_MAX,
    Served,
    latest,
    parse_served,
    served_record,
)
from federator.protocol.types import BrokerId
from tests.protocol.messages.test_destinations import announcement

SERVED = st.builds(Served, st.integers(0, ID_MAX).map(BrokerId), st.integers(0, SINCE_MAX))


@given(SERVED)
def test_a_record_says_what_was_meant_and_travels(served):
    record = served_record(served)

    assert parse_served(record) == served
    said = announcement(record)
    assert decode(kind_of(said), encode(said)) == said


@pytest.mark.parametrize(
    "text",
    [
        "$fed/served/1",
        "$fed/served/1/",
        "$fed/served//5",
        "$fed/served/-1/5",
        "$fed/served/1/5/6",
        "$fed/served/²/5",
        f"$fed/served/{ID_MAX + 1}/5",
        f"$fed/served/1/{SINCE_MAX + 1}",
        "$fed/served/1/" + "0" * 5_000,
        "served/1/5",
    ],
)
def test_anything_else_is_none(text):
    assert parse_served(text) is None
    if text.startswith("$"):
        said = announcement(text)
        with pytest.raises(DecodeError, match="must not travel"):
            decode(kind_of(said), encode(said))


@given(st.lists(SERVED, min_size=1))
def test_of_several_the_last_decision_counts(served):
    records = ["a/b", *(served_record(each) for each in served)]

    assert latest(records).since_us == max(each.since_us for each in served)
    assert latest(["a/b"]) is None
