"""Following a planner's word on how much this broker is preferred as a core.

A planner knows the traffic, but may be slow, gone or wrong. So its word holds until an instant that
it names itself, is followed at most once per hold time, and without it the operator's priority
holds again, under which the smallest id wins. Each change moves meshes: slow is a feature.

Source: docs/placement.md 5.
"""

from federator.protocol.types import Millis


class PlacedPriority:
    """What our priority should be."""

    def __init__(self, fallback: int, *, hold_ms: int) -> None:
        self.priority = fallback
        self._fallback = fallback  # the operator's priority, which also holds at the start
        self._hold_ms = hold_ms  # least time between two changes
        self._changed_at_ms: Millis | None = None

    def on_read(self, placed: int | None, *, now_ms: Millis) -> int | None:
        """Follow ``placed``, the planner's word if any is valid now, or not yet.

        Returns the priority to change to now; ``None``: stay.
        """
        wanted = self._fallback if placed is None else placed
        last_ms = self._changed_at_ms
        held = last_ms is not None and now_ms - last_ms < self._hold_ms
        if wanted == self.priority or held:
            return None
        self.priority = wanted
        self._changed_at_ms = now_ms
        return wanted
