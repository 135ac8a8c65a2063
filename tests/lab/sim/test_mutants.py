"""The simulator earns its keep: each mistake is found, most of them within fifty seeds."""

from functools import partial

import pytest

from federator.protocol.parameters import Strategy
from lab.sim.campaign import draw, run
from lab.sim.plan import MIXED
from lab.sim.story import Kind
from tests.lab.sim import mutants

SEEDS_MAX = 200


def routes(least, sizes=8, **manner):
    """Stories of routes, whose federations have ``least`` brokers and more."""
    return lambda seed: draw(Kind.ROUTES, seed, nodes=least + seed % sizes, **manner)


ROUTES = routes(6)
STRAIGHT = routes(6, strategy=Strategy.SHORTEST_PATH.value)
BY_DELAY = routes(4, 6, by_delay=True)
OUTBOUND = routes(2, outbound=True)
EDGES = routes(8, 1, strategy=MIXED, steered=True, edges=True)
MESSAGES = partial(draw, Kind.MESSAGES)
TAILS = partial(draw, Kind.MESSAGES, strategy=Strategy.SHORTEST_PATH.value)
HUBS = partial(draw, Kind.MESSAGES, hubs=True)
FAILOVER = partial(draw, Kind.FAILOVER)
JOINING = partial(draw, Kind.JOINING, nodes=10)
ATTACK = partial(draw, Kind.ATTACK)

UNHEARD = {"arrives_in_the_calm", "owed", "converges"}
TWICE = {"once_per_subscriber", "once_per_broker"}
BACK = {"not_back_home", "in_order"}
ANY = None
"""Whatever it violates first."""

MUTANTS = (
    (mutants.forwards_on_equal_cost, ROUTES, 0, {"announcement_cost", "no_storm"}),
    (mutants.core_ignores_children, ROUTES, 0, {"converges"}),
    (mutants.parents_reset_by_equal_copies, ROUTES, 0, {"converges"}),
    (mutants.reuses_an_epoch, ROUTES, 0, {"converges", "triggered_updates"}),
    (mutants.no_announcement_until_an_interval_passed, ROUTES, 0, {"triggered_updates"}),
    (mutants.duplicate_log_by_count_only, ROUTES, 0, {"once_per_broker", "once_per_link", "hops"}),
    (mutants.no_feasibility_condition, ROUTES, 0, {"cost_falls_towards_the_core"}),
    (mutants.flooding_does_not_end, ROUTES, 0, {"converges"}),
    (mutants.only_ties, BY_DELAY, 0, {"converges"}),
    (mutants.by_first_words, BY_DELAY, 0, {"cost_falls_towards_the_core"}),
    (mutants.is_not_dialled_for_its_outbox, OUTBOUND, 0, {"converges"}),
    (mutants.goes_by_the_last_parent, STRAIGHT, 0, {"one_copy"}),
    (mutants.forgets_no_destination, STRAIGHT, 0, {"converges", "triggered_updates"}),
    (
        *(mutants.remembers_old_ways, STRAIGHT, 0),
        {"probe_reaches_each_once", "one_copy", "shortest_path"},
    ),
    (mutants.tells_everybody_every_way, STRAIGHT, 0, {"one_copy", "shortest_path"}),
    (mutants.tails_go_down_meshes_only, TAILS, 0, {"owed", "arrives_in_the_calm"}),
    (mutants.keeps_what_somebody_else_wants, EDGES, 0, {"mixed_plans_reach_each_once"}),
    (mutants.forgets_to_widen_on_mismatch, MESSAGES, 0, {"converges", "settles"}),
    (mutants.acknowledges_early, MESSAGES, 0, {"logged_before_acknowledged"}),
    (mutants.acknowledges_what_waits_for_the_log, MESSAGES, 60, {"logged_before_acknowledged"}),
    (mutants.reuses_an_epoch, MESSAGES, 0, {*UNHEARD, "numbers_grow"}),
    (mutants.reuses_an_epoch_of_the_log, MESSAGES, 140, {"arrives_in_the_calm", "owed"}),
    (mutants.owes_nothing, MESSAGES, 0, {"owed", "logged_before_acknowledged"}),
    (mutants.never_asks, MESSAGES, 0, {"owed", "arrives_in_the_calm"}),
    (mutants.takes_any_old_frame_for_a_copy, MESSAGES, 2_000, {"owed"}),
    (mutants.a_hub_acknowledges_early, HUBS, 1, {"logged_before_acknowledged"}),
    (mutants.a_hub_does_not_log, HUBS, 1, {"logged_before_acknowledged"}),
    (mutants.misses_a_filter, HUBS, 0, UNHEARD),
    (mutants.both_serve, HUBS, 1, {*TWICE, "converges"}),
    (mutants.knows_nothing_again, HUBS, 0, {*TWICE, *BACK}),
    (mutants.looks_not_back, HUBS, 11, {"owed"}),
    (mutants.does_not_tell_the_mesh_what_leaves_want, HUBS, 60, UNHEARD),
    (mutants.sums_up_and_misses_a_filter, HUBS, 0, UNHEARD),
    (mutants.hears_itself, HUBS, 0, {*TWICE, *BACK}),
    (mutants.decides_anew, FAILOVER, 0, ANY),
    (mutants.terms_stand, FAILOVER, 0, ANY),
    (mutants.plans_once, FAILOVER, 0, ANY),
    (mutants.adopts_nothing, FAILOVER, 27, ANY),
    (mutants.nobody_is_back, FAILOVER, 1, ANY),
    (mutants.never_lets_go, JOINING, 0, ANY),
    (mutants.sits_alone, JOINING, 0, ANY),
    (mutants.never_fills, JOINING, 0, ANY),
    (mutants.takes_seals_twice, ATTACK, 0, ANY),
    (mutants.believes_anybody_about_cores, ATTACK, 0, ANY),
    (mutants.asks_no_origin, ATTACK, 0, ANY),
    (mutants.judges_no_frame, ATTACK, 0, ANY),
    (mutants.hangs_up_at_once, ATTACK, 0, ANY),
)


@pytest.mark.parametrize(("mutate", "drawn", "first", "invariants"), MUTANTS)
def test_mutant_is_caught(monkeypatch, mutate, drawn, first, invariants):
    """``first``: where to begin, for the sake of time; it is found from 0 on, too."""
    mutate(monkeypatch)

    found = (run(drawn(seed)).violation for seed in range(first, first + SEEDS_MAX))
    violation = next((each for each in found if each is not None), None)
    assert violation is not None, "no seed showed it"
    assert invariants is None or violation.invariant in invariants, violation
