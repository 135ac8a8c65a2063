"""Frames that wait in their origin's log instead of a full queue."""

from federator.protocol.data.outgoing import QUIET_MS, SIGN_GAP_MS, CongestionControl
from federator.protocol.types import BrokerId

N2, N3 = BrokerId(2), BrokerId(3)


def test_a_neighbour_that_refused_nothing_gets_everything():
    congestion = CongestionControl()

    congestion.repaired(N2, now_ms=0)

    assert not congestion
    assert not congestion.keeps_out(N2, idle=False, now_ms=0)


def test_while_something_waits_nothing_joins_it_at_that_neighbour_alone():
    congestion = CongestionControl()
    congestion.refused(N2, now_ms=0)

    assert all(congestion.keeps_out(N2, idle=False, now_ms=t) for t in range(0, 100_000, 1_000))
    assert not congestion.keeps_out(N3, idle=False, now_ms=0)


def test_while_repairs_go_one_frame_in_a_while_tells_how_far_the_origin_is():
    congestion = CongestionControl()
    congestion.refused(N2, now_ms=0)
    let_in = 0
    for tenth in range(1_000):
        congestion.repaired(N2, now_ms=tenth * 100)
        let_in += not congestion.keeps_out(N2, idle=True, now_ms=tenth * 100)

    assert let_in == 100_000 / SIGN_GAP_MS


def test_a_link_that_was_quiet_is_trusted_again():
    congestion = CongestionControl()
    congestion.refused(N2, now_ms=0)
    congestion.keeps_out(N2, idle=True, now_ms=100)
    assert congestion.keeps_out(N2, idle=True, now_ms=QUIET_MS)

    assert not congestion.keeps_out(N2, idle=True, now_ms=QUIET_MS + 100)
    assert not congestion
    assert not congestion.keeps_out(N2, idle=False, now_ms=QUIET_MS + 200)
