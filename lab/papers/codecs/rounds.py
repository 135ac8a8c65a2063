"""Games played to the end: who moves when, and what travels between neighbours.

Every round each node decides from what its neighbours said in the round before. Messages that say
nothing new are not sent, and who hears nothing new need not decide again: that changes no result.

Source: Esposito 2018, 3.2.
"""

from dataclasses import dataclass

import numpy as np

from lab.papers.codecs.games import Ask, Player, Rule
from lab.papers.codecs.plan import Plan, Problem
from lab.papers.codecs.tree import ROOT

ROUNDS_MAX = 1000


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
            node: Player(rule, opening=problem.opening, root=node < tree.roots)
            for node in self._inside
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
        """Everyone who heard something new decides; whether anything changed."""
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
    """Rounds until nothing changes."""
    game = Game(problem, rule, rng)
    for rounds in range(ROUNDS_MAX):
        if not game.round():
            return Played(game.plan, rounds, settled=True)
    return Played(game.plan, ROUNDS_MAX, settled=False)
