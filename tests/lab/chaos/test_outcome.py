"""When a run counts as passed."""

from lab.chaos.layout import Layout
from lab.chaos.ledger import Counts
from lab.chaos.run import Happened, Outcome, Plan


def outcome(*happened, qos=(1,), **counts):
    plan = Plan(rows=1, columns=2, seed=1, minutes=1, rate=1, qos=qos, classes=())
    layout = Layout((1,), (2,), (), {}, ())
    return Outcome(plan, layout, counts={"none": Counts(**counts)}, happened=list(happened))


def episode(*felt):
    return Happened("mixed", "", 0.0, 1.0, 0.1, felt)


def test_a_fault_that_never_left_a_trace_proves_nothing():
    found = outcome(episode(("link-cut", True), ("half-open", False)))

    assert found.never_felt == ["half-open"]
    assert not found.held


def test_a_fault_that_was_felt_once_was_real():
    found = outcome(episode(("link-cut", False)), episode(("link-cut", True)))

    assert found.never_felt == []
    assert found.held


def test_what_mosquitto_swaps_itself_fails_no_run():
    assert outcome(swapped=3, qos=(1, 2)).held
    assert not outcome(order=1, qos=(1, 2)).held


def test_a_loss_fails_a_run_at_qos_1_only():
    assert not outcome(lost=1).held
    assert outcome(lost=1, qos=(0,)).held
