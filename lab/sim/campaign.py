"""Draws the story of any seed, and tells it."""

from collections.abc import Callable, Mapping
from typing import Any

from lab.sim.attack import draw as attack
from lab.sim.attack import tale as attack_tale
from lab.sim.failover import draw as failover
from lab.sim.failover import tale as failover_tale
from lab.sim.joining import draw as joining
from lab.sim.joining import tale as joining_tale
from lab.sim.manner import Manner
from lab.sim.messages import draw as messages
from lab.sim.messages import tale as messages_tale
from lab.sim.routes import draw as routes
from lab.sim.routes import tale as routes_tale
from lab.sim.story import Kind, Story
from lab.sim.tale import SeedResult, Tale, tell

_KINDS: Mapping[Kind, tuple[Callable[[int, Manner], Story], Callable[[Story], Tale]]] = {
    Kind.ROUTES: (routes.draw, routes_tale.tale_of),
    Kind.MESSAGES: (messages.draw, messages_tale.tale_of),
    Kind.FAILOVER: (failover.draw, failover_tale.tale_of),
    Kind.JOINING: (joining.draw, joining_tale.tale_of),
    Kind.ATTACK: (attack.draw, attack_tale.tale_of),
}


def draw(kind: Kind, seed: int, **manner: Any) -> Story:  # noqa: ANN401  # fields of Manner
    """The story of ``seed``."""
    return _KINDS[kind][0](seed, Manner(**manner))


def run(story: Story) -> SeedResult:
    """Tell ``story`` to its end or to the first violation."""
    return tell(story, _KINDS[story.kind][1](story))
