"""Follows a planner's advice on how much this broker is preferred as a core.

A planner knows the traffic, but may be slow, dead or wrong. So its advice is valid until an instant
that it names, and is followed at most once per hold time; without it the operator's priority
applies, under which the smallest id wins. Each change moves meshes: slow is a feature.

Source: docs/placement.md 5.
"""

from federator.protocol.types import Millis


class PlacedPriority:
    """The priority that we should announce."""

    def __init__(self, fallback: int, *, hold_ms: int) -> None:
        self.priority = fallback
        self._fallback = fallback  # the operator's priority, which also applies at the start
        self._hold_ms = hold_ms  # least time between two changes
        self._changed_at_ms: Millis | None = None

    def on_read(self, placed: int | None, *, now_ms: Millis) -> int | None:
        """Follow ``placed``, the planner's priority; ``None``: no advice is valid now.

        Returns the priority to change to now; ``None``: keep the present one.
        """
        target = self._fallback if placed is None else placed
        last_ms = self._changed_at_ms
        held = last_ms is not None and now_ms - last_ms < self._hold_ms
        if target == self.priority or held:
            return None
        self.priority = target
        self._changed_at_ms = now_ms
        return target
