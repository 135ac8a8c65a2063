"""Stories in which many links can be dialled by one end only: the other speaks in an outbox."""

from federator.protocol.links.neighbour import LinkConnection
from lab.sim.campaign import draw, run
from lab.sim.story import Kind
from tests.effort import seeds
from tests.lab.sim.violations import violations

SEEDS = seeds(30)
MUTANT_SEEDS_MAX = 5


def drawn(seed):
    return draw(Kind.ROUTES, seed, nodes=2 + seed % 8, outbound=True)


def test_every_invariant_holds_and_every_federation_heals():
    assert not violations(map(run, map(drawn, range(SEEDS))), "--outbound", nodes=True)


def test_everybody_gets_what_was_promised():
    told = (draw(Kind.MESSAGES, seed, outbound=True) for seed in range(SEEDS))

    assert not violations(map(run, told), "--outbound --messages")


def test_what_is_said_while_nobody_comes_for_it_is_lost_in_some_stories():
    results = [run(drawn(seed)) for seed in range(SEEDS)]

    assert any("outbox_unheard" in result.fired for result in results)


def test_who_does_not_say_that_it_comes_for_what_is_said_is_never_linked(monkeypatch):
    monkeypatch.setattr(LinkConnection, "address_told", lambda self, ours: ours)

    found = [run(drawn(seed)).violation for seed in range(MUTANT_SEEDS_MAX)]

    assert "converges" in {each.invariant for each in found if each is not None}
