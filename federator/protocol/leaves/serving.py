"""Which of two hubs serves a leaf: the same rules at both ends.

The leaf names the hub in its announcement, then acts as its hubs do when they receive it: with the
serving hub it exchanges publications; with the other one **each sends nothing, and accepts
nothing**, but keeps in its log what the other wants. So the hub in reserve has in its log all that
the leaf would get, and can continue from there at once.

Source: docs/hubs.md; docs/protocol.md 20.
"""

from collections.abc import Collection
from typing import Final

from federator.protocol.effects import Notice, Pause, Proceed
from federator.protocol.messages.serving import Served, latest, served_record
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.routing.announcements import Announcements
from federator.protocol.routing.topic_routing import TopicRouting
from federator.protocol.signals import OwnFiltersChanged, Step
from federator.protocol.types import BrokerId, Millis

NOTICE_GAP_MS: Final = Millis(1_000)
"""A leaf may change its hub as often as it likes; the operator is notified less often."""


class Serving:
    """Which hub serves which leaf, for a leaf and for a hub."""

    def __init__(
        self, self_id: BrokerId, announcements: Announcements, routing: TopicRouting
    ) -> None:
        self.served: Served | None = None  # the hub that serves us
        self._self_id = self_id
        self._announcements = announcements
        self._routing = routing
        self._complaints: RateLimiter[BrokerId] = RateLimiter(gap_ms=NOTICE_GAP_MS, keys_max=1)
        self._of: dict[BrokerId, Served] = {}  # last announcement of each leaf

    def of(self, leaf: BrokerId) -> Served | None:
        """What ``leaf`` announced last about the hub that serves it."""
        return self._of.get(leaf)

    def wait(self, hubs: Collection[BrokerId]) -> None:
        """For a leaf: which of ``hubs`` serves us is not decided yet; none is linked yet."""
        for hub in hubs:
            self._routing.pause(hub)

    def resume(self, leaf: BrokerId, served: Served) -> None:
        """Restore what ``leaf`` announced before our restart; nothing is linked yet."""
        self._of[leaf] = served
        if served.hub != self._self_id:
            self._routing.pause(leaf)

    def choose(
        self, served: Served, others: Collection[BrokerId], *, resumes: bool = False
    ) -> list[Step]:
        """For a leaf: ``served`` names our hub from now on; ``others`` do not serve us.

        ``resumes``: it was so before our restart.
        """
        before = set() if self.served is None else {served_record(self.served)}
        now = {served_record(served)}
        self.served = served
        steps: list[Step] = []
        if now != before:
            steps.append(OwnFiltersChanged(frozenset(now - before), frozenset(before - now)))
        for other in sorted(others):
            steps += [Pause(other), *self._routing.pause(other)]
        proceed = Proceed(served.hub, served.since_us, by_its_clock=False, resumes=resumes)
        notice = Notice("hub.chosen", "info", {"hub": served.hub})
        return [*steps, proceed, *self._routing.proceed(served.hub), notice]

    def on_announced(self, leaf: BrokerId, *, now_ms: Millis) -> list[Step]:
        """A leaf announces other records than before; an unreachable one announces nothing new."""
        route = self._announcements.routes.get(leaf)
        announced = None if route is None else latest(route.announced.filters.filters)
        if announced is None or announced == self._of.get(leaf):
            return []
        self._of[leaf] = announced
        notice = Notice("leaf.served", "info", {"leaf": leaf, "hub": announced.hub})
        notices = [notice] if self._complaints.allow(leaf, now_ms) else []
        if announced.hub != self._self_id:
            return [*notices, Pause(leaf), *self._routing.pause(leaf)]
        proceed = Proceed(leaf, announced.since_us, by_its_clock=True)
        return [*notices, proceed, *self._routing.proceed(leaf)]
