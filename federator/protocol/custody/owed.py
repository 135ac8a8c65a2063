"""Filters that we still owe to brokers that are out of reach.

When the only brokers that want a filter are cut off, no broker in reach wants it, and we would
unsubscribe: what is published meanwhile would be lost to them. So a filter that was lost, rather
than given up, stays wanted for as long as its frames would be kept.

A broker that only collects is owed what an agent does not keep at the edge, and nothing else.

Source: docs/protocol.md section 11.
"""

from msgspec.structs import replace

from federator.protocol.effects import FilterRoute
from federator.protocol.timers import Timers
from federator.protocol.types import Millis

OWED_MAX = 262_144
"""Filters remembered; further ones are given up at once."""


class Owed:
    """Filters that stay wanted, for ``keep_ms``, although no broker in reach wants them."""

    def __init__(self, *, keep_ms: int) -> None:
        self.keep_ms = keep_ms
        self._until: Timers[str] = Timers()
        # Of owed filters, as the control plane last reported them.
        self._routes: dict[str, FilterRoute | None] = {}
        self._collected: set[str] = set()  # of these, the filters owed to collectors only

    def __len__(self) -> int:
        return len(self._routes)

    def __contains__(self, filter: str) -> bool:
        return filter in self._routes

    def owe(
        self,
        filter: str,
        until_ms: Millis,
        route: FilterRoute | None = None,
        *,
        collected: bool = False,
    ) -> None:
        """Owe ``filter`` until then, whatever its ``route``; ``collected``: to collectors only.

        A filter that is owed to others, too, stays so.
        """
        if filter in self._routes or len(self._routes) < OWED_MAX:
            if not collected:
                self._collected.discard(filter)
            elif filter not in self._routes:
                self._collected.add(filter)
            self._routes[filter] = route
            self._until.set(filter, until_ms)

    def on_route(
        self,
        filter: str,
        route: FilterRoute | None,
        *,
        lost: bool,
        now_ms: Millis,
        collected: bool = False,
    ) -> FilterRoute | None:
        """Return the effective route of ``filter``; ``route`` is the one of the control plane.

        ``lost``: the brokers that wanted it went out of reach; they did not give it up.
        ``collected``: they only collected.
        """
        if lost:
            self.owe(filter, Millis(now_ms + self.keep_ms), route, collected=collected)
        elif filter in self._routes:
            self._routes[filter] = route
        return self.effective(filter, route)

    def effective(self, filter: str, route: FilterRoute | None) -> FilterRoute | None:
        """``route``, but wanted if the filter is owed."""
        if filter not in self._routes:
            return route
        collected = filter in self._collected
        if route is not None and route.wanted:
            return replace(route, collected=False) if route.collected > collected else route
        if route is None:
            return FilterRoute(local=False, wanted=True, next_hops=(), collected=collected)
        return replace(route, wanted=True, collected=collected)

    def expire(self, now_ms: Millis) -> list[tuple[str, FilterRoute | None]]:
        """The filters that are no longer owed, and their routes."""
        due = list(self._until.pop_due(now_ms))
        self._collected.difference_update(due)
        return [(filter, self._routes.pop(filter)) for filter in due]
