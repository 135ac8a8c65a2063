"""The controller among real nodes: elections, takeovers, returns, splits, draining."""

import pytest

from tests.protocol.controller.brokers import GONE_MS, Brokers

RING = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 1), (2, 4), (2, 5), (3, 5)]


@pytest.fixture
def ring():
    brokers = Brokers(RING)
    brokers.run(5_000)
    return brokers


def test_a_controller_that_returns_leaves_to_others_whom_they_took_over_from_it(ring):
    for broker in (2, 3, 5):
        ring.say(broker, load=100)
    ring.run(3_000)
    ring.kill(4)
    ring.run(GONE_MS)
    assert ring.takeovers(4) == {4: 1}, "the controller itself is the best substitute"
    ring.kill(1)
    ring.run(GONE_MS)
    before = ring.takeovers(1, 4)[4]
    assert before != 1
    ring.steps.clear()

    ring.revive(1)
    for _ in range(300):
        ring.run(20)
        for id in (2, 3, 5):
            named = {t.broker: t.substitute for t in ring.guides[id].takeovers}
            assert named[4] == before

    assert ring.controllers(4) == {1}
    assert ring.takeovers(4) == {4: before}
    for_4 = [(id, step) for id, step in ring.steps if step.broker == 4]
    assert not for_4, "nobody prepares sessions twice, or drops what is prepared"
