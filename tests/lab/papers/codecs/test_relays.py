"""What a relay that passes repair packets on untouched would gain: docs/udp-fec.md, "How many, and
who decodes"."""

import numpy as np
import pytest

from federator.protocol.datagrams.protection import repairs_for
from lab.papers.codecs.figures import Setting, lossy_of, problem_of
from lab.papers.codecs.loss import received
from lab.papers.codecs.schemes import Scheme, decide
from lab.papers.codecs.simulator import CODE_MS, DECODE_MS, metrics, simulate
from lab.papers.codecs.tree import arranged

HOPS, PLR, ABL = 3, 0.02, 2.0


def test_on_a_chain_a_leader_that_sends_for_all_saves_times_to_decode_and_costs_packets():
    tree, _ = arranged([-1, 0, 1, 2])
    setting = Setting()
    problem, lossy = problem_of(setting, tree), lossy_of(setting, tree)

    found = {}
    for scheme in (Scheme.EVERY_NODE, Scheme.LEADER_FOLLOWER):
        rng = np.random.default_rng(1)
        plan = decide(scheme, problem, rng)
        outcome = simulate(lossy, plan, 20_000, rng)
        last_ms = outcome.waited_ms[-1] / outcome.delivered[-1]
        found[scheme] = (last_ms, metrics(tree, outcome).overhead[0], plan.total.tolist())

    every, led = found[Scheme.EVERY_NODE], found[Scheme.LEADER_FOLLOWER]
    assert (every[2], led[2]) == ([2, 2, 2, 0], [6, 4, 2, 0])
    assert every[0] - led[0] == pytest.approx((HOPS - 1) * (CODE_MS + DECODE_MS))
    assert every[1] == pytest.approx(1.11, abs=0.01)
    assert led[1] == pytest.approx(1.35, abs=0.01)


@pytest.mark.parametrize("parts", [1, 4, 16])
def test_windows_that_relays_pass_on_fail_more_often_and_need_more_packets(parts):
    rng = np.random.default_rng(1)
    repairs = repairs_for(parts, PLR, ABL, failing_max=0.0005, repairs_max=16, late_max=0.0015)

    def passed_on(hops, repairs):
        """Share of windows that fail, and packets on all links per part of a hop."""
        came, sent = np.full((1, 2_000_000 // parts), parts + repairs), 0.0
        for _ in range(hops):
            sent += came.mean()
            came = received(came, np.array([PLR]), np.array([ABL]), rng)
        return (came < parts).mean(), sent / HOPS / parts

    one_hop, _ = passed_on(1, repairs)
    every = 1 - (1 - one_hop) ** HOPS
    fail, sent = passed_on(HOPS, repairs)
    _, more_sent = passed_on(HOPS, repairs + 1)

    assert fail > 1.05 * every
    assert sent == pytest.approx(0.98 * (1 + repairs / parts), rel=0.01)
    assert more_sent > 1.015 * (1 + repairs / parts)
