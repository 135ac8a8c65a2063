"""Codecs as players who hear only their neighbours: the paper's two games.

In each round a node reads what its parent and its children said last, decides, and tells them. Down
goes how many repair packets it sends; up goes an ``Ask``: what the link loses, and what would be
needed below. Messages that say nothing new are not sent, and who hears nothing new need not decide
again: that changes no result.

**Non-cooperative**, (9)-(11): who is no codec pays for the redundancy that reaches it and for the
worst below, a codec pays the opening:

    C(S) = opening * S + (rho + worst) * (1 - S)

All move at once, from strategies drawn at random. If a codec were none, the codec above would have
to send enough for what is below, so it compares with max(rho, worst). Read as printed, with the rho
of now, (10) and (11) can both fail, and no equilibrium exist (rho 0, worst 5, opening 7).

**Leader and followers**, (12): from the root down, each node moves before its children. It picks
its role, and as a codec how much it sends, for the least of its own cost plus the largest cost
among its children, who answer by (10) and (11) when what reaches them is enough, and must be codecs
when it is not. The largest cost is often the same for several choices; then that wins which leaves
the fewest children without enough.

Source: Esposito 2018, 3.2; docs/codecs.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from lab.papers.codecs.plan import REPAIR_MAX, Plan, Problem
from lab.papers.codecs.tree import ROOT

ROUNDS_MAX = 1000


class Rule(StrEnum):
    """The game that is played."""

    ALL_AT_ONCE = "non-cooperative"
    LEADER_FIRST = "leader-follower"


HORIZON = 4
"""Levels below its children that a leader hears of. So the second game ends within depth + HORIZON
rounds; with more, what is said of the deepest leaves would first have to climb to the root."""


class Ask(NamedTuple):
    """What a child asks of its parent."""

    lost: int  # packets to plan for on the link between them
    # The most that its own children ask for. Under the second rule a list: seen one level down, two
    # levels, and so on to ``HORIZON``. Empty for a leaf.
    below: tuple[int, ...]
    codec: bool  # whether it is one


class Move(NamedTuple):
    """What a node decides."""

    codec: bool  # its role
    total: int  # repair packets it sends on each of its links


@dataclass(frozen=True, slots=True)
class Player:
    """One node with children."""

    _rule: Rule
    _opening: float  # cost of being a codec
    _root: bool  # a root is a codec, and no repair packets reach it

    def decide(self, lost: int, sent: int, asks: Sequence[Ask]) -> tuple[Move, Ask]:
        """The node's move, and what to tell the parent.

        ``lost`` packets are to be planned for on the link from the parent, 0 at a root, which says
        that it ``sent`` so many repair packets; ``asks`` are what each child said last.
        """
        here = max(sent - lost, 0)
        if self._rule is Rule.LEADER_FIRST:
            move = self._led(here, asks)
            return move, Ask(lost, self._levels(asks), move.codec)
        worst = max(ask.lost + (0 if ask.codec else _last(ask)) for ask in asks)
        worst = min(worst, REPAIR_MAX)
        codec = self._root or max(here, worst) + worst > self._opening
        return Move(codec, max(here, worst) if codec else here), Ask(lost, (worst,), codec)

    def _levels(self, asks: Sequence[Ask]) -> tuple[int, ...]:
        """What is asked below when one level counts, two, and so on.

        A child counts as no codec if that pays when it is covered just so: (10), rho = worst.
        """
        found = [max(ask.lost for ask in asks)]
        for level in range(HORIZON - 1):
            passed = [
                ask.lost + (below if 2 * below <= self._opening else 0)
                for ask in asks
                for below in ((ask.below[level],) if level < len(ask.below) else (0,))
            ]
            found.append(min(max(passed), REPAIR_MAX))
        return tuple(found)

    def _led(self, here: int, asks: Sequence[Ask]) -> Move:
        least = max(here, max(ask.lost for ask in asks))
        covering = {min(ask.lost + _last(ask), REPAIR_MAX) for ask in asks}
        choices = [Move(True, total) for total in {least, *covering} if total >= least]
        if not self._root and here == least:
            choices.append(Move(False, here))
        return min(choices, key=lambda move: self._augmented(move, asks))

    def _augmented(self, move: Move, asks: Sequence[Ask]) -> tuple[float, int, float, int, bool]:
        """Cost (12), and what decides between equals."""
        worst = lacking = 0
        answers: list[float] = []
        for ask in asks:
            here, below = move.total - ask.lost, _last(ask)
            opens = below > 0 and (here < below or here + below > self._opening)
            answers.append(self._opening if opens else here + below if below else 0.0)
            worst = max(worst, ask.lost if opens else ask.lost + below)
            lacking += here < below
        own = self._opening if move.codec else move.total + worst
        return own + max(answers), lacking, sum(answers), move.total, move.codec


def _last(ask: Ask) -> int:
    return ask.below[-1] if ask.below else 0


@dataclass(frozen=True, eq=False)
class Played:
    """How a game ended."""

    plan: Plan  # what stands at the end
    rounds: int  # until nobody changed anything any more
    settled: bool  # false when ``ROUNDS_MAX`` came first


class Game:
    """All players of one tree or forest; what redundancy costs is not looked at.

    First strategies are drawn under the first rule; the second starts with codecs everywhere.
    """

    def __init__(self, problem: Problem, rule: Rule, rng: np.random.Generator) -> None:
        tree = problem.tree
        self._lost = problem.lost.tolist()
        self._parent = tree.parent.tolist()
        self._inside = np.flatnonzero(tree.children).tolist()
        first, last = tree.first_child, tree.first_child + tree.children
        self._children = {node: range(first[node], last[node]) for node in self._inside}
        self._player = {
            node: Player(rule, problem.opening, node < tree.roots) for node in self._inside
        }
        self._asks = [Ask(lost, (), False) for lost in self._lost]  # as leaves, who decide nothing
        self._codec = np.zeros(len(tree), dtype=bool)
        self._total = np.zeros(len(tree), dtype=np.int64)
        drawn = rng.random(len(tree)) < 0.5
        for node in self._inside:
            codec = rule is Rule.LEADER_FIRST or node < tree.roots or bool(drawn[node])
            self._asks[node] = Ask(self._lost[node], (), codec)
            self._codec[node] = codec
        self._due = set(self._inside)

    @property
    def plan(self) -> Plan:
        """What stands now; before the end some nodes may be left without enough."""
        return Plan(self._codec.copy(), self._total.copy())

    def round(self) -> bool:
        decided = []
        for node in self._due:
            above = self._parent[node]
            sent = 0 if above == ROOT else int(self._total[above])
            asks = self._asks[self._children[node].start : self._children[node].stop]
            decided.append((node, *self._player[node].decide(self._lost[node], sent, asks)))
        self._due = set()
        changed = False
        for node, move, ask in decided:
            changed |= bool(self._codec[node] != move.codec)
            self._codec[node] = move.codec
            if self._total[node] != move.total:
                self._total[node] = move.total
                self._due.update(child for child in self._children[node] if child in self._player)
                changed = True
            if self._asks[node] != ask:
                self._asks[node] = ask
                changed = True
                if self._parent[node] != ROOT:
                    self._due.add(self._parent[node])
        return changed


def play(problem: Problem, rule: Rule, rng: np.random.Generator) -> Played:
    game = Game(problem, rule, rng)
    for rounds in range(ROUNDS_MAX):
        if not game.round():
            return Played(game.plan, rounds, settled=True)
    return Played(game.plan, ROUNDS_MAX, settled=False)
