"""Filters to which we stay subscribed although their subscribers are out of reach.

When the only brokers that want a filter are cut off, no broker in reach wants it, and we would
unsubscribe: what is published meanwhile would be lost to them. So if they went out of reach without
giving the filter up, it stays wanted for as long as custody keeps frames: we *owe* them what is
published on it.

Some brokers want a filter only to collect it (``FilterRoute.collected``), and agents may keep such
publications at the edge instead of sending them. If nothing but collectors was lost, that may go
on; if another broker was, it may not, and publications on the filter enter custody.

This module only remembers filters and changes routes: ``custodian`` writes the list to disk.

Source: docs/protocol.md 11.5; 18.8 for collectors.
"""

from msgspec.structs import replace

from federator.protocol.effects import FilterRoute
from federator.protocol.timers import Timers
from federator.protocol.types import Millis

OWED_MAX = 262_144
"""Filters owed at a time; further ones are not owed."""


class Owed:
    """Filters that stay wanted, for ``keep_ms``, although no broker in reach wants them."""

    def __init__(self, *, keep_ms: int) -> None:
        self.keep_ms = keep_ms
        self._ends: Timers[str] = Timers()  # when each filter is no longer owed
        # By owed filter, its route as the control plane last reported it.
        self._routes: dict[str, FilterRoute | None] = {}
        self._collected: set[str] = set()  # the filters that are owed to collectors only

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
        """Owe ``filter`` until ``until_ms``; do nothing if there is no room for another one.

        Args:
            filter: The filter; if it is owed already, ``until_ms`` replaces the earlier end.
            until_ms: When it ends.
            route: The route of the control plane, to return to at the end.
            collected: Owe it to collectors only. A filter that is owed to other brokers, too,
                stays so.
        """
        if filter in self._routes or len(self._routes) < OWED_MAX:
            if not collected:
                self._collected.discard(filter)
            elif filter not in self._routes:
                self._collected.add(filter)
            self._routes[filter] = route
            self._ends.set(filter, until_ms)

    def on_route(
        self,
        filter: str,
        route: FilterRoute | None,
        *,
        lost: bool,
        now_ms: Millis,
        collected: bool = False,
    ) -> FilterRoute | None:
        """Note a new route from the control plane; return the route to use instead.

        Args:
            filter: The filter.
            route: Its new route; ``None``: no broker in reach wants it.
            lost: The brokers that wanted it went out of reach, without giving it up.
            now_ms: The time.
            collected: Those brokers only collected.
        """
        if lost:
            self.owe(filter, Millis(now_ms + self.keep_ms), route, collected=collected)
        elif filter in self._routes:
            self._routes[filter] = route
        return self.effective(filter, route)

    def effective(self, filter: str, route: FilterRoute | None) -> FilterRoute | None:
        """The route to use: ``route``, but wanted if the filter is owed."""
        if filter not in self._routes:
            return route
        collectors_only = filter in self._collected
        if route is None:
            return FilterRoute(local=False, wanted=True, next_hops=(), collected=collectors_only)
        if not route.wanted:
            return replace(route, wanted=True, collected=collectors_only)
        if route.collected and not collectors_only:
            return replace(route, collected=False)
        return route

    def expire(self, now_ms: Millis) -> list[tuple[str, FilterRoute | None]]:
        """Remove the filters that are no longer owed; return them and their routes."""
        ended = list(self._ends.pop_due(now_ms))
        self._collected.difference_update(ended)
        return [(filter, self._routes.pop(filter)) for filter in ended]
