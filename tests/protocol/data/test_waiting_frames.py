"""What a successor gets waits until the former agent had its time to bring it."""

from federator.protocol.data.delivery import WAIT_LOOKS, WAITING_MAX, WaitingFrames
from tests.protocol.leaves.test_stamps import HUB, frame


def numbers(frames):
    return [each.seq for each in frames]


def test_a_frame_waits_for_as_many_looks_however_long_they_take():
    waiting = WaitingFrames()
    assert not waiting.look()
    waiting.put(frame(HUB, 1))
    assert not waiting.look()
    waiting.put(frame(HUB, 2))
    came = [numbers(waiting.look()) for _ in range(WAIT_LOOKS + 1)]
    assert came == [[]] * (WAIT_LOOKS - 1) + [[1], [2]]


def test_what_waits_is_given_in_its_order():
    waiting = WaitingFrames()
    for seq in (3, 4, 5):
        assert not waiting.put(frame(HUB, seq))
    assert numbers(waiting.all()) == [3, 4, 5]


def test_of_more_than_may_wait_the_oldest_goes():
    waiting = WaitingFrames()
    over = [numbers(waiting.put(frame(HUB, seq))) for seq in range(WAITING_MAX + 2)]
    assert over == [[]] * WAITING_MAX + [[0], [1]]
