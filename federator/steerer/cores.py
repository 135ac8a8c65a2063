"""Places cores: the preference of brokers as cores, published in the same plans as trees.

``planner.steering.placing`` makes the decisions.

Source: docs/steering.md, "Cores".
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

import structlog

from federator.planner.flow.watch import Watch
from federator.planner.steering.moves import Manner
from federator.planner.steering.placing import CoreMove, CorePlacer, Placing
from federator.protocol.messages.steering import Load, Plan
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.clocks import wall_clock_ms

ASK_GAP_MS: Final = Millis(5_000)
"""Least time between two changes of what agents are asked about: filters change constantly."""

DECISIONS_KEPT: Final = 32
LISTED_MAX: Final = 100

_log = structlog.get_logger()


class Cores:
    """Places cores, if configured.

    Attributes:
        moves: How often a broker was given another priority.
        last: The last decision.
        asked: The filters that agents are asked about; ``None``: no mesh is asked about.
        priorities: Of brokers as cores, as published in their plans.
    """

    def __init__(self, manner: Manner, *, wanted: bool) -> None:
        self.moves = 0
        self.last = Placing(why="steering.cores is off" if not wanted else "")
        self.decisions: deque[dict[str, object]] = deque(maxlen=DECISIONS_KEPT)
        self._placer = CorePlacer(manner) if wanted else None
        self._followed = False  # whether some agent supports placed cores
        self.asked: tuple[str, ...] | None = None
        self._asked_ms = Millis(0)  # when ``asked`` last changed
        self.priorities: dict[BrokerId, int] = {}

    def adopt(self, plans: Iterable[Plan], *, now_ms: Millis, dry: bool) -> None:
        """Take over the priorities that the steerer before us published."""
        if self._placer is not None:
            priorities = {p.broker: p.priority for p in plans if p.priority is not None}
            self._placer.adopt(priorities, now_ms=now_ms)
            self.priorities = {} if dry else priorities

    def decide(
        self, loads: Iterable[tuple[Load, Millis]], steerer: str, now_ms: Millis, watch: Watch
    ) -> Placing:
        """Decide, in a thread: nothing else uses the placer meanwhile."""
        if self._placer is None:
            return self.last
        for load, came_ms in loads:
            self._followed = self._followed or load.placed
            self._placer.on_load(load, now_ms=came_ms, is_ours=load.steerer == steerer)
        return self._placer.decide(now_ms=now_ms, watch=watch)

    def follow(self, placing: Placing, *, obeyed: bool, number: int, now_ms: Millis) -> bool:
        """Publish the decision from plan ``number`` on; return whether that plan is due now."""
        self.last = placing
        if self._placer is None:
            return False
        if not obeyed:
            self._placer.take_back()
        elif placing.changed:
            self._follow_placing(placing)
        else:
            self.priorities = dict(placing.priorities)
        waited = not self.asked or now_ms - self._asked_ms >= ASK_GAP_MS
        asks = self._followed and placing.asked != self.asked and waited
        if asks:
            self.asked, self._asked_ms = placing.asked, now_ms
            self._placer.ask(placing.asked, number=number)
        return asks or (obeyed and placing.changed)

    def _follow_placing(self, placing: Placing) -> None:
        before, self.priorities = self.priorities, dict(placing.priorities)
        now = self.priorities
        self.moves += sum(before.get(b) != now.get(b) for b in before.keys() | now.keys())
        figures = {
            "cost_before": round(placing.cost, 1),
            "cost_promised": round(placing.cost_promised, 1),
            "why": placing.why,
        }
        moves = [as_text(move) for move in placing.moves[:LISTED_MAX]]
        self.decisions.append({"at_ms": wall_clock_ms(), **figures, "moves": moves})
        _log.info("steer.cores_placed", brokers=len(now), moves=moves[:8], **figures)

    def end(self) -> None:
        """Publish no priority any longer, and ask nothing."""
        self._placer, self.asked, self.priorities = None, None, {}

    def snapshot(self) -> dict[str, object]:
        """For ``/status``."""
        last = self.last
        return {
            "priorities": [
                {"broker": broker, "priority": priority}
                for broker, priority in sorted(self.priorities.items(), key=lambda entry: entry[1])
            ][:LISTED_MAX],
            "meshes": last.meshes,
            "cost": round(last.cost, 1),
            "why": last.why,
            "decisions": list(self.decisions),
        }


def as_text(move: CoreMove) -> str:
    """Format a move for people."""
    return f"{move.filter} ({move.rate:.3g}/s): core {move.core}, not {move.was}"


def placing_text(placing: Placing) -> list[str]:
    """Format what would move, for people; empty if nothing would."""
    if not placing.changed:
        return []
    lines = [f"cores: {placing.why}: {placing.cost:.4g} before, {placing.cost_promised:.4g} then"]
    lines += [f"  {as_text(item)}" for item in placing.moves[:LISTED_MAX]]
    order = [f"{item}" for item in sorted(placing.priorities, key=placing.priorities.__getitem__)]
    return [*lines, f"  brokers by preference: {', '.join(order) or 'as configured'}"]
