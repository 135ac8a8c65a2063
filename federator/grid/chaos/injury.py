"""What a fault is: drawn from the run's seed, inflicted, shown to have happened, healed.

A fault that did not happen proves nothing, so each injury looks, just before it is healed, for a
trace that only a fault leaves: a process that is gone, a connection broken, bytes swallowed. That
is the "sometimes" assertion of simulators, on real processes.

Source: testing.md, "SOMETIMES"; FoundationDB's and Antithesis's "sometimes" assertions.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from federator.grid.chaos.stage import Stage

Act = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Injury:
    """One fault to inflict.

    Attributes:
        kind: Its class.
        victims: What it touches: injuries of one time do not share victims.
        detail: Which way, how long.
        hold_s: Between ``inflict`` and ``heal``.
        felt: Asked before ``heal``: whether the fault left its trace.
    """

    kind: str
    victims: frozenset[str]
    detail: str
    hold_s: float
    inflict: Act
    heal: Act
    felt: Callable[[], Awaitable[bool]]

    def __str__(self) -> str:
        return f"{' '.join([self.kind, ', '.join(sorted(self.victims))]).strip()}: {self.detail}"


Draw = Callable[[Stage, random.Random], Injury]


@dataclass(frozen=True, slots=True)
class Kind:
    """A fault class.

    Attributes:
        what: One line for people.
        lacks: Why it cannot be drawn on such a stage; empty when it can.
    """

    name: str
    what: str
    draw: Draw
    lacks: Callable[[Stage], str] = lambda stage: ""
