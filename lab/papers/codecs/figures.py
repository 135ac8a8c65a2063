"""Figures 4 to 9 as a table of values: what each scheme reaches, over time and over sizes.

All seeds are computed as one forest. In Figures 4 to 6 the games are played while messages flow:
one round for every ten, from the first strategies on; the others have decided before.
Figures 7 to 9 show what stands when all is settled.

Every link has PLR .02 and ABL 2; planners expect as many losses as .95 of messages do not exceed,
2 of 16 packets. Not given in the paper and chosen here: that share; the opening of a codec, which
is the 16 packets of a message; the shape of the trees; how often gossip sends its lists.
docs/codecs.md has what other choices give.

Source: Esposito 2018, 4.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lab.frame.settings import setting
from lab.papers.codecs.games import Game, Rule
from lab.papers.codecs.gossip import Mode, simulate_gossip
from lab.papers.codecs.loss import Loss, planned_for
from lab.papers.codecs.plan import Charge, Plan, Problem
from lab.papers.codecs.schemes import Scheme, decide
from lab.papers.codecs.simulator import Lossy, Metrics, Outcome, metrics, simulate
from lab.papers.codecs.tree import FANOUT_MAX, Tree, forest, random_tree
from lab.papers.figures import Row

OVER_TIME: Mapping[int, str] = {4: "resiliency", 5: "latency_ms", 6: "overhead"}
OVER_SIZE: Mapping[int, str] = {7: "latency_ms", 8: "overhead", 9: "resiliency"}
SIZES = (10, 40, 100, 400, 1_000, 4_000, 10_000)
BY_LOAD = "exact, link load"  # the optimum when every link counts; ours, beside the paper's

GAMES = {Scheme.NON_COOPERATIVE: Rule.ALL_AT_ONCE, Scheme.LEADER_FOLLOWER: Rule.LEADER_FIRST}


@dataclass(frozen=True, slots=True)
class Setting:
    """What the experiments share."""

    seeds: int = setting(30, "", 2)  # trees, each with its own chance
    nodes: int = 40  # in Figures 4 to 6
    messages: int = setting(1_000, "", 100)  # in Figures 4 to 6, per tree
    pairs: int = 100_000  # about how many (message, subscriber) pairs per tree in Figures 7 to 9
    loss: Loss = field(default_factory=Loss)  # of every link
    share: float = 0.95  # of messages whose losses the planners cover on one link
    opening: float = 16.0  # cost of a codec
    fanout_max: int = FANOUT_MAX  # children of a node
    round_messages: int = 10  # published between two rounds of a game
    window: int = 100  # messages per point of Figures 4 to 6; a multiple of ``round_messages``
    sizes: tuple[int, ...] = SIZES  # nodes, in Figures 7 to 9


def trees(setting: Setting, nodes: int) -> list[Tree]:
    return [
        random_tree(nodes, np.random.default_rng([seed, nodes]), fanout_max=setting.fanout_max)
        for seed in range(setting.seeds)
    ]


def problem_of(setting: Setting, tree: Tree, charge: Charge = Charge.PAPER) -> Problem:
    lossy = lossy_of(setting, tree)
    lost = planned_for(lossy.plr, lossy.abl, share=setting.share)
    lost[: tree.roots] = 0
    return Problem(tree, lost, setting.opening, charge)


def lossy_of(setting: Setting, tree: Tree) -> Lossy:
    """``tree`` as the simulator wants it."""
    return Lossy(tree, np.full(len(tree), setting.loss.plr), np.full(len(tree), setting.loss.abl))


def over_time(setting: Setting) -> Iterator[Row]:
    each = trees(setting, setting.nodes)
    whole, order = forest(each)
    lossy = lossy_of(setting, whole)
    decided = {
        Scheme.BEST_EFFORT.value: (Scheme.BEST_EFFORT, Charge.PAPER),
        Scheme.COMPLAINTS.value: (Scheme.COMPLAINTS, Charge.PAPER),
        Scheme.GENETIC.value: (Scheme.GENETIC, Charge.PAPER),
        BY_LOAD: (Scheme.EXACT, Charge.LINK_LOAD),
    }
    for number, (name, (scheme, charge)) in enumerate(decided.items()):
        rng = np.random.default_rng([setting.seeds, number])
        plans = [decide(scheme, problem_of(setting, tree, charge), rng) for tree in each]
        plan = Plan(
            np.concatenate([plan.codec for plan in plans])[order],
            np.concatenate([plan.total for plan in plans])[order],
        )
        for end in _windows(setting):
            outcome = simulate(lossy, plan, setting.window, rng)
            yield from _rows(OVER_TIME, name, end, metrics(whole, outcome))
    for scheme, rule in GAMES.items():
        rng = np.random.default_rng([setting.seeds, 100 + len(scheme)])
        game = Game(problem_of(setting, whole), rule, rng)
        for end in _windows(setting):
            outcome = _while_playing(setting, game, lossy, rng)
            yield from _rows(OVER_TIME, scheme.value, end, metrics(whole, outcome))


def _windows(setting: Setting) -> range:
    return range(setting.window, setting.messages + 1, setting.window)


def _while_playing(setting: Setting, game: Game, lossy: Lossy, rng: np.random.Generator) -> Outcome:
    """One window of messages, with a round before every few of them until all is settled."""
    left = setting.window
    total: Outcome | None = None
    while left:
        count = setting.round_messages if game.round() else left
        part = simulate(lossy, game.plan, count, rng)
        total = part if total is None else total + part
        left -= count
    assert total is not None
    return total


def over_size(setting: Setting) -> Iterator[Row]:
    for nodes in setting.sizes:
        messages = max(setting.pairs // nodes, 10)
        each = trees(setting, nodes)
        whole, _ = forest(each)
        lossy, problem = lossy_of(setting, whole), problem_of(setting, whole)
        rng = np.random.default_rng([setting.seeds, nodes])
        for scheme in (Scheme.BEST_EFFORT, Scheme.LEADER_FOLLOWER):
            found = metrics(whole, simulate(lossy, decide(scheme, problem, rng), messages, rng))
            yield from _rows(OVER_SIZE, scheme.value, nodes, found)
        for mode in Mode:
            parts = [
                metrics(tree, simulate_gossip(lossy_of(setting, tree), mode, messages, rng))
                for tree in each
            ]
            yield from _rows(OVER_SIZE, mode.value, nodes, _joined(parts))


def _joined(parts: Sequence[Metrics]) -> Metrics:
    measures = ("resiliency", "latency_ms", "overhead")
    return Metrics(*(np.concatenate([getattr(p, name) for p in parts]) for name in measures))


def _rows(figures: Mapping[int, str], name: str, x: float, found: Metrics) -> Iterator[Row]:
    for figure, measure in figures.items():
        for seed, value in enumerate(getattr(found, measure).tolist()):
            yield Row(figure, name, float(x), seed, value)
