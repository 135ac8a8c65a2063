"""Chooses the hub that serves a leaf: one that is up, and after a while the preferred one.

A leaf with two hubs has a link to each. The serving hub keeps serving while its link is up. When
that link is lost the other hub takes over at once; when the preferred hub is back, the leaf returns
to it after a delay of its own, so that thousands do not return together, or on order. It asks for a
little of the past each time, since the loss was noticed late: publications that both hubs deliver
for that reason are recognised by their stamp.

Source: docs/hubs.md.
"""

from collections.abc import Callable, Sequence
from typing import Final

from federator.protocol.events import HubChosen
from federator.protocol.types import BrokerId, Millis, Now

FIRST_WAIT_MS: Final = 1_000
"""How long a leaf that starts waits for the hub that served it, or that it prefers."""

CATCH_UP_MS: Final = 15_000
"""How long a hub serves until all that was missed before has come: tails come every 10 s."""

TICK_MS: Final = 1_000
"""Call ``on_time`` so often while we are served."""

ASLEEP_MS: Final = 2 * TICK_MS
"""Without a call for longer, the process or machine was suspended, and losses went unnoticed."""

LOOK_BACK_MS: Final = 2_000
"""Added to the time to notice a dead link, for publications under way or queued."""


class HubChoice:
    """Chooses among the hubs with links that are up.

    Args:
        hubs: The preferred one first.
        look_back_ms: How late a dead link may be noticed.
        missing_since_us: Since when something is known to be missing between us and a hub, by our
            wall clock; 0: nothing is.
        return_after_ms: How long the preferred hub must be back; 0: stay until ordered to return.
        served_by: The hub that served before our restart,
        served_since_us: since when, as announced then, and
        served_until_us: until when at least, by our wall clock.
    """

    def __init__(
        self,
        hubs: Sequence[BrokerId],
        now: Now,
        *,
        look_back_ms: int,
        return_after_ms: int,
        missing_since_us: Callable[[BrokerId, Now], int] = lambda hub, now: 0,
        served_by: BrokerId | None = None,
        served_since_us: int = 0,
        served_until_us: int = 0,
    ) -> None:
        self.hub = served_by  # perhaps no longer one of our hubs
        self._announced_us = served_since_us  # the hub may not have received it yet
        self._hubs = tuple(hubs)
        self._look_back_us = (look_back_ms + LOOK_BACK_MS) * 1_000
        self._return_after_ms = return_after_ms
        self._missing_since_us = missing_since_us
        self._up: dict[BrokerId, Millis] = {}  # since when each link is up
        self._chosen = False
        self._started_ms = now.ms
        self._behind_us = served_until_us  # since when something may be missing; 0: nothing is
        self._served_ms: Millis | None = None  # since when we are served without interruption
        self._awake = now

    @property
    def others(self) -> frozenset[BrokerId]:
        """The hubs that do not serve."""
        return frozenset(self._hubs) - {self.hub}

    @property
    def is_served(self) -> bool:
        """Whether the link to the serving hub is up."""
        return self._chosen and self.hub in self._up

    def on_link(self, hub: BrokerId, up: bool, now: Now) -> HubChosen | None:
        """Handle a link to ``hub`` that came up or was lost."""
        self._wake_up(now)
        if hub not in (*self._hubs, self.hub):
            return None
        if up:
            self._up.setdefault(hub, now.ms)
            if self._chosen and hub == self.hub and self._served_ms is None:
                self._served_ms = now.ms
        elif self._up.pop(hub, None) is not None and hub == self.hub:
            self._behind_us = self._since_us(now)
            self._served_ms = None
        return self.on_time(now)

    def prefer(self, hubs: Sequence[BrokerId]) -> None:
        """Replace the hubs, or change their order."""
        self._hubs = tuple(hubs)

    def return_now(self, now: Now) -> HubChosen | None:
        """Return to the preferred hub, on the operator's order."""
        preferred = self._hubs[0]
        return self._choose(preferred, now) if preferred in self._up else None

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_time`` is due."""
        if not self._chosen:
            return Millis(self._started_ms + FIRST_WAIT_MS) if self._up else None
        if not self.is_served:
            return None
        tick_ms, return_ms = self._awake.ms + TICK_MS, self._return_ms()
        return Millis(tick_ms if return_ms is None else min(tick_ms, return_ms))

    def _return_ms(self) -> int | None:
        """When we return to the preferred hub."""
        since_ms = self._up.get(self._hubs[0])
        if self.hub == self._hubs[0] or since_ms is None or not self._return_after_ms:
            return None
        return since_ms + self._return_after_ms

    def on_time(self, now: Now) -> HubChosen | None:
        """Choose a hub, if there is a reason to."""
        self._wake_up(now)
        if not self._up:
            return None
        first = self._hubs[0] if self.hub is None else self.hub
        if not self._chosen and first not in self._up:
            if now.ms < self._started_ms + FIRST_WAIT_MS:
                return None
        elif self._chosen and self.hub in self._up:
            due_ms = self._return_ms()
            return None if due_ms is None or now.ms < due_ms else self._choose(self._hubs[0], now)
        there = [hub for hub in (first, *self._hubs) if hub in self._up]
        return self._choose(there[0], now)

    def _choose(self, hub: BrokerId, now: Now) -> HubChosen | None:
        before, resumes = self.hub, not self._chosen
        if self._chosen and hub == before:
            return None
        moved, look_back_us = before is not None and hub != before, self._look_back_us
        if self.is_served:  # the new hub may itself still wait for what the other one has
            look_back_us = max(look_back_us, CATCH_UP_MS * 1_000)
        if before is not None:
            self._behind_us = self._since_us(now)
        since_us = max(1, self._behind_us - look_back_us) if moved else 0
        self.hub, self._served_ms, self._chosen = hub, now.ms, True
        if hub == before and resumes:
            return HubChosen(hub, self.others, self._announced_us, resumes=True)
        return HubChosen(hub, self.others, since_us)

    def _wake_up(self, now: Now) -> None:
        """Record the time. After a suspension, publications since then may be lost."""
        if self.is_served and now.ms - self._awake.ms > ASLEEP_MS:
            self._behind_us, self._served_ms = self._since_us(self._awake), now.ms
        self._awake = now

    def _since_us(self, now: Now) -> int:
        """Since when something may be missing if the serving hub is lost now."""
        caught_up = self._served_ms is not None and now.ms >= self._served_ms + CATCH_UP_MS
        since_us = now.us if caught_up or not self._behind_us else self._behind_us
        missing_us = 0 if self.hub is None else self._missing_since_us(self.hub, now)
        return min(since_us, missing_us or since_us)
