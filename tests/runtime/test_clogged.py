"""Frames that wait in their origin's log instead of a full queue."""

from federator.protocol.types import BrokerId
from federator.runtime.clogged import QUIET_S, SIGN_GAP_S, Clogged

N2, N3 = BrokerId(2), BrokerId(3)


def test_a_neighbour_that_refused_nothing_gets_everything():
    clogged = Clogged()

    clogged.repaired(N2, now_s=0)

    assert not clogged
    assert not clogged.keeps_out(N2, idle=False, now_s=0)


def test_while_something_waits_nothing_joins_it_at_that_neighbour_alone():
    clogged = Clogged()
    clogged.refused(N2, now_s=0)

    assert all(clogged.keeps_out(N2, idle=False, now_s=t) for t in range(100))
    assert not clogged.keeps_out(N3, idle=False, now_s=0)


def test_while_repairs_go_one_frame_in_a_while_tells_how_far_the_origin_is():
    clogged = Clogged()
    clogged.refused(N2, now_s=0)
    let_in = 0
    for tenth in range(1_000):
        clogged.repaired(N2, now_s=tenth / 10)
        let_in += not clogged.keeps_out(N2, idle=True, now_s=tenth / 10)

    assert let_in == 100 / SIGN_GAP_S


def test_a_link_that_was_quiet_is_trusted_again():
    clogged = Clogged()
    clogged.refused(N2, now_s=0)
    clogged.keeps_out(N2, idle=True, now_s=0.1)
    assert clogged.keeps_out(N2, idle=True, now_s=QUIET_S)

    assert not clogged.keeps_out(N2, idle=True, now_s=QUIET_S + 0.1)
    assert not clogged
    assert not clogged.keeps_out(N2, idle=False, now_s=QUIET_S + 0.2)
