"""The log of seen frames, against a set that remembers everything."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol import duplicates
from federator.protocol.duplicates import DuplicateLog
from federator.protocol.types import BrokerId, Epoch

WINDOW_BITS = 32
A, B = BrokerId(1), BrokerId(2)
N, M = BrokerId(8), BrokerId(9)
E1, E2, E3 = Epoch(1), Epoch(2), Epoch(3)


class Model:
    """Every frame ever taken."""

    def __init__(self) -> None:
        self.taken: dict[tuple[int, int, int], int] = {}

    def admit(self, origin: int, epoch: int, seq: int, mask: int) -> tuple[bool, int]:
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
            st.sampled_from([N, M]),
        ),
        max_size=200,
    )
)
def test_what_never_came_is_new_whatever_anybody_claimed_before(
    copies: list[tuple[int, int, int, int, BrokerId]],
) -> None:
    log, model = DuplicateLog(window_bits=WINDOW_BITS), Model()

    for origin, epoch, seq, mask, sender in copies:
        k = 1 if seq % 3 == 0 else 3
        mask = 1 if k == 1 else mask
        first, new = log.admit(BrokerId(origin), Epoch(epoch), seq, k=k, mask=mask, sender=sender)
        never_came, untaken = model.admit(origin, epoch, seq, mask)

        assert first or not never_came, (origin, epoch, seq, k, mask)
        assert new == (mask if first else new & untaken), (origin, epoch, seq, k, mask)


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
        seq = max(top - window_bits + 1, min(top + window_bits // 2, seq + step)) if top else seq
        top = max(top, seq)
        expected = seq not in seen
        seen.add(seq)

        assert log.admit(A, E1, seq, k=1, mask=1, sender=N) == (expected, int(expected))


@pytest.mark.parametrize("jump", range(1, WINDOW_BITS // 2 + 1))
def test_a_jump_of_any_length_clears_what_it_passes(jump: int) -> None:
    log = DuplicateLog(window_bits=WINDOW_BITS)
    for seq in range(WINDOW_BITS):
        log.admit(A, E1, seq, k=1, mask=1, sender=N)
    top = WINDOW_BITS - 1 + jump

    log.admit(A, E1, top, k=1, mask=1, sender=N)

    shown = range(top - WINDOW_BITS + 1, top + 1)
    first = [seq for seq in shown if log.admit(A, E1, seq, k=1, mask=1, sender=N)[0]]
    assert first == list(range(WINDOW_BITS, top))


def test_a_frame_is_first_once() -> None:
    log = DuplicateLog()

    assert log.admit(A, E1, 1, k=1, mask=1, sender=N) == (True, 1)
    assert log.admit(A, E1, 1, k=1, mask=1, sender=N) == (False, 0)
    assert log.admit(B, E1, 1, k=1, mask=1, sender=N) == (True, 1)


def test_copies_for_different_filters_are_each_carried_on_once() -> None:
    log = DuplicateLog()

    assert log.admit(A, E1, 1, k=3, mask=0b001, sender=N) == (True, 0b001)
    assert log.admit(A, E1, 1, k=3, mask=0b011, sender=N) == (False, 0b010)
    assert log.admit(A, E1, 1, k=3, mask=0b011, sender=N) == (False, 0)
    assert log.admit(A, E1, 1, k=3, mask=0b111, sender=N) == (False, 0b100)
    assert log.admit(A, E1, 1, k=3, mask=0b111, sender=N) == (False, 0)


def test_a_restarted_origin_is_accepted_at_once_and_its_stragglers_too() -> None:
    log = DuplicateLog()
    log.admit(A, E1, 500, k=1, mask=1, sender=N)

    assert log.admit(A, E2, 1, k=1, mask=1, sender=N) == (True, 1)
    assert log.admit(A, E1, 501, k=1, mask=1, sender=N) == (True, 1)
    assert log.admit(A, E1, 500, k=1, mask=1, sender=N) == (False, 0)


def test_a_flood_of_epochs_and_numbers_evicts_only_what_its_neighbour_began() -> None:
    log = DuplicateLog(origins_max=8)
    log.admit(A, E1, 500, k=1, mask=1, sender=N)

    for lie in range(1_000):
        log.admit(A, Epoch(2 + lie), 2**62 + lie, k=1, mask=1, sender=M)
        log.admit(A, E1, lie * 2**40, k=1, mask=1, sender=M)
        log.admit(BrokerId(100 + lie), E1, 1, k=1, mask=1, sender=M)

    assert log.admit(A, E1, 500, k=1, mask=1, sender=M) == (False, 0)
    assert log.admit(A, E1, 501, k=1, mask=1, sender=N) == (True, 1)
    assert len(log) <= 9


def test_beyond_the_bound_the_origin_unheard_for_longest_is_forgotten() -> None:
    log = DuplicateLog(origins_max=2)
    for origin in (A, B, A, BrokerId(3)):
        log.admit(origin, E1, 1, k=1, mask=1, sender=N)

    assert len(log) == 2
    assert log.admit(A, E1, 1, k=1, mask=1, sender=N) == (False, 0)
    assert log.admit(B, E1, 1, k=1, mask=1, sender=N) == (True, 1)


def test_beyond_the_bound_the_oldest_frame_taken_in_part_counts_as_taken_whole(monkeypatch):
    monkeypatch.setattr(duplicates, "PARTIAL_MASKS_MAX", 2)
    log = DuplicateLog()
    for seq in (1, 2, 3):
        log.admit(A, E1, seq, k=2, mask=0b01, sender=N)

    assert log.admit(A, E1, 1, k=2, mask=0b10, sender=N) == (False, 0)
    assert log.admit(A, E1, 2, k=2, mask=0b10, sender=N) == (False, 0b10)


def test_huge_jumps_of_the_numbers_take_no_time() -> None:
    log = DuplicateLog()
    jumps = 1_000
    start = time.process_time()

    for jump in range(jumps):
        log.admit(A, E1, jump * 2**50, k=1, mask=1, sender=N)
        log.admit(A, E1, jump * 2**50 + 60_000, k=1, mask=1, sender=N)

    assert time.process_time() - start < 2


@pytest.mark.parametrize("window_bits", [0, -8, 12])
def test_a_window_that_is_no_multiple_of_eight_is_refused(window_bits: int) -> None:
    with pytest.raises(ValueError, match=str(window_bits)):
        DuplicateLog(window_bits=window_bits)
