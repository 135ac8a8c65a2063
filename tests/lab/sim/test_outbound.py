"""Stories in which many links can be dialled by one end only: the other speaks in an outbox."""

from federator.protocol.links.neighbour import LinkConnection
from lab.sim.campaign import draw, run
from lab.sim.story import Kind

MUTANT_SEEDS_MAX = 5


def drawn(seed):
    return draw(Kind.ROUTES, seed, nodes=2 + seed % 8, outbound=True)


def test_who_does_not_say_that_it_comes_for_what_is_said_is_never_linked(monkeypatch):
    monkeypatch.setattr(LinkConnection, "announced_address", lambda self, ours: ours)

    found = [run(drawn(seed)).violation for seed in range(MUTANT_SEEDS_MAX)]

    assert "converges" in {each.invariant for each in found if each is not None}
