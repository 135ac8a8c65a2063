"""Flooding: carries a core's filters when the core is gone, until a successor's meshes stand.

The announcements of its core define a mesh: when no path leads to the core any longer, no broker
has a parent, and the mesh may be in pieces. A broker that notices this forwards publications of
these filters to all its neighbours, as a bridge forwards a frame with an unknown destination; so
they reach every reachable broker, whatever the pieces, and the duplicate window drops copies.

That costs a copy or two per link, so it has a time limit: ``solicit_timeout_ms``, more than a round
trip across the federation, to find out whether the core is dead, and as long again for the
announcement of its successor and for the memberships. And it creates a debt: flooding for a core is
charged five times its duration. So a broker that retracts a core again and again has the filters
flooded for a fifth of the time at most; a broker that crashes again and again may do so every five
seconds. (In a federation where any client can invent cores, each of these has a fifth; where
announcements are signed, none can.)

Source: docs/protocol.md 7.5; IEEE 802.1D-2004, 7.7 (frames whose destination is not known).
"""

from typing import Final

from federator.protocol.bounded_cache import Recent
from federator.protocol.parameters import Parameters
from federator.protocol.timers import Timers, earliest
from federator.protocol.types import BrokerId, Millis

PRICE: Final = 5
"""Debt in ms for each millisecond of flooding for a core; one is forgiven per millisecond."""


class Flooding:
    """The cores that became unreachable lately, and the filters that had one of them."""

    def __init__(self, parameters: Parameters) -> None:
        self._round_trip_ms = parameters.solicit_timeout_ms
        self._lasts_ms = 2 * parameters.solicit_timeout_ms
        # A broker that does not relay between its neighbours does not start to.
        self._allowed = parameters.transit
        # Start of flooding, for the cores in ``_cores``.
        self._begun_ms: dict[BrokerId, Millis] = {}
        # When the debt of each core is forgiven.
        self._debts: Recent[BrokerId, Millis] = Recent(parameters.cores_max)
        self._cores: Timers[BrokerId] = Timers()
        self._filters: Timers[str] = Timers()

    def next_deadline_ms(self) -> Millis | None:
        """When ``pop_due`` has anything to return."""
        return earliest(self._cores.next_deadline_ms(), self._filters.next_deadline_ms())

    def pop_due(self, now_ms: Millis) -> tuple[list[BrokerId], list[str]]:
        """The cores, and the filters without their core, for which flooding ends now."""
        cores = self._cores.pop_due(now_ms)
        for core in cores:
            self._charge(core, now_ms)
        return cores, self._filters.pop_due(now_ms)

    def on_core_lost(self, core: BrokerId, *, now_ms: Millis) -> None:
        """Start flooding: no path leads to ``core``, and its debt is small enough."""
        debt_ms = (self._debts.get(core) or now_ms) - now_ms
        if self._allowed and core not in self._cores and debt_ms <= PRICE * self._lasts_ms:
            self._begun_ms[core] = now_ms
            self._cores.set(core, Millis(now_ms + self._lasts_ms))

    def on_core_found(self, core: BrokerId, *, now_ms: Millis) -> None:
        """Stop flooding: a path leads to ``core``."""
        if core in self._cores:
            self._cores.clear(core)
            self._charge(core, now_ms)

    def on_core_changed(self, filter_: str, lost: BrokerId, *, now_ms: Millis) -> bool:
        """Keep flooding ``filter_``: its core is now another one, or still unknown.

        ``lost`` was its core, and is unreachable. Returns whether the filter was flooded.
        """
        if not self.is_for(filter_, lost):
            return False
        self._filters.set(filter_, Millis(now_ms + self._round_trip_ms))
        return True

    def is_for(self, filter_: str, core: BrokerId | None) -> bool:
        """Whether ``filter_`` of ``core`` is flooded because ``core`` is unreachable.

        Records between agents, which begin with ``$``, have one announcer each: it has no
        successor.
        """
        return core is not None and core in self._cores and not filter_.startswith("$")

    def __contains__(self, filter_: str) -> bool:
        """Whether ``filter_`` is still flooded although its core is another one or none."""
        return filter_ in self._filters

    def _charge(self, core: BrokerId, now_ms: Millis) -> None:
        begun_ms = self._begun_ms.pop(core)
        forgiven_ms = max(begun_ms, self._debts.get(core) or begun_ms)
        self._debts.put(core, Millis(forgiven_ms + PRICE * (now_ms - begun_ms)))
