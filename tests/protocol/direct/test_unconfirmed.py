"""Frames that went straight, until their arrival is confirmed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.direct.unconfirmed import FRAME_BYTES, Unconfirmed

FRAMES = st.lists(st.tuples(st.binary(max_size=20), st.booleans()), max_size=40)


@given(FRAMES, st.data())
def test_what_was_not_confirmed_is_taken_back_each_sort_in_its_order(frames, data):
    sent = Unconfirmed(10**6)
    for frame, urgent in frames:
        sent.add(frame, urgent=urgent)
    lanes = [[f for f, urgent in frames if urgent is sort] for sort in (False, True)]
    counts = [data.draw(st.integers(0, len(lane))) for lane in lanes]
    steps = [data.draw(st.integers(0, count)) for count in counts]

    sent.confirm(*steps)
    sent.confirm(*counts)

    left = [lane[count:] for lane, count in zip(lanes, counts, strict=True)]
    assert len(sent) == sum(map(len, left))
    assert sent.confirmed == sum(counts)
    assert sent.bytes == sum(len(frame) + FRAME_BYTES for lane in left for frame in lane)
    assert sent.take_back() == left[1] + left[0]
    assert (len(sent), sent.bytes, sent.take_back()) == (0, 0, [])


@pytest.mark.parametrize("counts", [(3, 0), (0, 1), (0, 0)], ids=str)
def test_who_confirms_what_was_not_sent_or_takes_it_back_lies(counts):
    sent = Unconfirmed(10**6)
    for _ in range(2):
        sent.add(b"frame", urgent=False)
    sent.confirm(1, 0)

    with pytest.raises(DecodeError, match="frames confirmed of"):
        sent.confirm(*counts)


def test_there_is_room_until_so_many_bytes_are_not_confirmed():
    sent = Unconfirmed(2 * (FRAME_BYTES + 100))
    room = []
    for _ in range(3):
        room.append(sent.has_room)
        sent.add(bytes(100), urgent=False)
    sent.confirm(2, 0)

    assert room == [True, True, False]
    assert sent.has_room
