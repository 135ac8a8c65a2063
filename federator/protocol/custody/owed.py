"""What we still owe to brokers that are out of reach.

When the only brokers that want a filter are cut off, nobody seems to want it, and we would no
longer subscribe to it: what is published meanwhile would be lost to them. So a filter that was
lost, rather than given up, stays wanted for as long as its frames would be kept.

Who only collected is owed what an agent does not keep at the edge, and nothing else.

Source: docs/protocol.md section 11.
"""

from msgspec.structs import replace

from federator.protocol.effects import FilterRoute
from federator.protocol.timers import Timers
from federator.protocol.types import Millis

OWED_MAX = 262_144
"""Filters remembered; more are given up at once."""


class Owed:
    """The filters that stay wanted, for ``keep_ms``, although nobody in reach wants them."""

    def __init__(self, *, keep_ms: int) -> None:
        self.keep_ms = keep_ms
        self._until: Timers[str] = Timers()
        self._routes: dict[str, FilterRoute | None] = {}  # of owed filters, as last told
        self._collected: set[str] = set()  # of these, those owed to nobody but who collects

    def __len__(self) -> int:
        """How many filters are owed."""
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
        """Owe ``filter`` until then, whatever its ``route``; ``collected``: to who only collects.

        What is owed to others, too, stays so.
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
        """What to do with ``filter``, whose route is ``route``, as the control plane sees it.

        ``lost``: those who wanted it went out of reach; they did not give it up. ``collected``:
        they only collected.
        """
        if lost:
            self.owe(filter, Millis(now_ms + self.keep_ms), route, collected=collected)
        elif filter in self._routes:
            self._routes[filter] = route
        return self.effective(filter, route)

    def effective(self, filter: str, route: FilterRoute | None) -> FilterRoute | None:
        """``route``, but wanted when it is owed."""
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
