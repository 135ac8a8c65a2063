"""The log of seen frames, against a set that remembers everything."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.duplicates import DuplicateLog
from federator.protocol.types import BrokerId, Epoch

WINDOW_BITS = 32
A, B = BrokerId(1), BrokerId(2)
E1, E2, E3 = Epoch(1), Epoch(2), Epoch(3)


class Model:
    """What the log should say: every frame ever taken, and the newest number of each window."""

    def __init__(self) -> None:
        self.taken: dict[tuple[int, int, int], int] = {}
        self.tops: dict[tuple[int, int], int] = {}
        self.epochs: dict[int, set[int]] = {}

    def admit(self, origin: int, epoch: int, seq: int, k: int, mask: int) -> tuple[bool, int]:
        kept = sorted(self.epochs.setdefault(origin, set()) | {epoch})[-2:]
        if epoch not in kept:
            return False, 0
        self.epochs[origin] = set(kept)
        top = max(self.tops.get((origin, epoch), seq), seq)
        self.tops[origin, epoch] = top
        if seq <= top - WINDOW_BITS:
            return False, 0
        before = self.taken.get((origin, epoch, seq))
        self.taken[origin, epoch, seq] = (before or 0) | mask
        return before is None, mask & ~(before or 0)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.integers(1, 4),
            st.one_of(st.integers(0, 100), st.integers(0, 2**64 - 1)),
            st.integers(1, 7),
        ),
        max_size=200,
    )
)
def test_it_agrees_with_a_log_that_forgets_nothing(
    copies: list[tuple[int, int, int, int]],
) -> None:
    log, model = DuplicateLog(window_bits=WINDOW_BITS), Model()

    for origin, epoch, seq, mask in copies:
        k = 1 if seq % 3 == 0 else 3
        mask = 1 if k == 1 else mask
        said = log.admit(BrokerId(origin), Epoch(epoch), seq, k=k, mask=mask)

        assert said == model.admit(origin, epoch, seq, k, mask), (origin, epoch, seq, k, mask)


@given(
    st.lists(
        st.one_of(st.integers(-8, 12), st.integers(1, 3), st.integers(-60, 200)), max_size=200
    ),
    st.integers(1, 5).map(lambda n: n * 8),
)
def test_it_agrees_while_the_numbers_drift_around_the_window(
    steps: list[int], window_bits: int
) -> None:
    log = DuplicateLog(window_bits=window_bits)
    seq, top, seen = 1000, 0, set[int]()

    for step in steps:
        seq = max(0, seq + step)
        top = max(top, seq)
        expected = seq > top - window_bits and seq not in seen
        seen.add(seq)

        assert log.admit(A, E1, seq, k=1, mask=1) == (expected, int(expected))


@pytest.mark.parametrize("jump", range(1, 100))
def test_a_jump_of_any_length_clears_what_it_passes(jump: int) -> None:
    log = DuplicateLog(window_bits=WINDOW_BITS)
    for seq in range(WINDOW_BITS):
        log.admit(A, E1, seq, k=1, mask=1)
    top = WINDOW_BITS - 1 + jump

    log.admit(A, E1, top, k=1, mask=1)

    first = [seq for seq in range(top + 1) if log.admit(A, E1, seq, k=1, mask=1)[0]]
    assert first == list(range(max(WINDOW_BITS, top - WINDOW_BITS + 1), top))


def test_a_frame_is_first_once() -> None:
    log = DuplicateLog()

    assert log.admit(A, E1, 1, k=1, mask=1) == (True, 1)
    assert log.admit(A, E1, 1, k=1, mask=1) == (False, 0)
    assert log.admit(B, E1, 1, k=1, mask=1) == (True, 1)


def test_copies_for_different_filters_are_each_carried_on_once() -> None:
    log = DuplicateLog()

    assert log.admit(A, E1, 1, k=3, mask=0b001) == (True, 0b001)
    assert log.admit(A, E1, 1, k=3, mask=0b011) == (False, 0b010)
    assert log.admit(A, E1, 1, k=3, mask=0b011) == (False, 0)
    assert log.admit(A, E1, 1, k=3, mask=0b111) == (False, 0b100)
    assert log.admit(A, E1, 1, k=3, mask=0b111) == (False, 0)


def test_a_restarted_origin_is_accepted_at_once_and_its_stragglers_too() -> None:
    log = DuplicateLog()
    log.admit(A, E1, 500, k=1, mask=1)

    assert log.admit(A, E2, 1, k=1, mask=1) == (True, 1)
    assert log.admit(A, E1, 501, k=1, mask=1) == (True, 1)
    assert log.admit(A, E1, 500, k=1, mask=1) == (False, 0)


def test_the_epoch_before_the_previous_is_refused() -> None:
    log = DuplicateLog()
    for epoch in (E1, E2, E3):
        log.admit(A, epoch, 1, k=1, mask=1)

    assert log.admit(A, E1, 2, k=1, mask=1) == (False, 0)


def test_beyond_the_bound_the_origin_unheard_for_longest_is_forgotten() -> None:
    log = DuplicateLog(origins_max=2)
    for origin in (A, B, A, BrokerId(3)):
        log.admit(origin, E1, 1, k=1, mask=1)

    assert len(log) == 2
    assert log.admit(A, E1, 1, k=1, mask=1) == (False, 0)
    assert log.admit(B, E1, 1, k=1, mask=1) == (True, 1)


def test_beyond_the_bound_the_oldest_frame_taken_in_part_counts_as_taken_whole() -> None:
    log = DuplicateLog(partial_masks_max=2)
    for seq in (1, 2, 3):
        log.admit(A, E1, seq, k=2, mask=0b01)

    assert log.admit(A, E1, 1, k=2, mask=0b10) == (False, 0)
    assert log.admit(A, E1, 2, k=2, mask=0b10) == (False, 0b10)


def test_huge_jumps_of_the_numbers_take_no_time() -> None:
    log = DuplicateLog()
    jumps = 1_000
    start = time.perf_counter()

    for jump in range(jumps):
        log.admit(A, E1, jump * 2**50, k=1, mask=1)
        log.admit(A, E1, jump * 2**50 + 60_000, k=1, mask=1)

    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("window_bits", [0, -8, 12])
def test_a_window_that_is_no_multiple_of_eight_is_refused(window_bits: int) -> None:
    with pytest.raises(ValueError, match=str(window_bits)):
        DuplicateLog(window_bits=window_bits)
