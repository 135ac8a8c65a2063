"""Our priority as a core, as set by a steerer's plan."""

import asyncio
from collections.abc import Callable

import structlog

from federator.config.settings import Settings
from federator.protocol.events import PriorityChanged
from federator.protocol.routing.placed_priority import PlacedPriority
from federator.runtime.process.clocks import monotonic_ms

_log = structlog.get_logger()


async def follow_placement(
    settings: Settings,
    *,
    planned: Callable[[], int | None],
    changed: Callable[[PriorityChanged], None],
) -> None:
    """Report our priority as a core whenever it changes, until cancelled.

    Args:
        planned: The priority in a steerer's current plan; without one ``broker.priority`` holds.
    """
    mesh = settings.mesh
    follower = PlacedPriority(settings.broker.priority, hold_ms=mesh.core_hold_ms)
    while True:
        priority = follower.on_read(planned(), now_ms=monotonic_ms())
        if priority is not None:
            _log.info("core.priority", priority=priority)
            changed(PriorityChanged(priority))
        await asyncio.sleep(mesh.core_check_ms / 1000)
