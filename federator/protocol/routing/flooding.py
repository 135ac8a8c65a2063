"""Flooding: what carries a core's filters when the core is gone, until a successor's meshes stand.

A mesh is told by the announcements of its core: when no way leads there any more, nobody has a
parent, and what is left of the mesh may be in pieces. Whoever notices hands publications of these
filters to all its neighbours, as a bridge does with a frame for somebody it does not know; so they
reach everybody who can be reached, whatever the pieces, and the duplicate window takes out what
comes twice.

That costs a copy or two per link, so it has an end by the clock: ``solicit_timeout_ms``, which is
more than a round trip across the federation, to find out whether the core is dead, and as long
again for its successor's announcement to go out, and for the memberships to come in. And it has a
price: a core that was flooded for is in debt for five times as long. So somebody who retracts a
core again and again has its filters flooded for a fifth of the time, and no more; a broker that
crashes again and again may do so every five seconds. (In a federation where anybody may invent
cores, each of these has a fifth; where announcements are signed, nobody can.)

Source: docs/protocol.md 7.5; IEEE 802.1D-2004, 7.7 (frames whose destination is not known).
"""

from typing import Final

from federator.protocol.bounded_cache import Recent
from federator.protocol.parameters import Parameters
from federator.protocol.timers import Timers, earliest
from federator.protocol.types import BrokerId, Millis

PRICE: Final = 5
"""What flooding for a core adds to its debt, for each millisecond; one is forgiven in each."""


class Flooding:
    """The cores that went out of reach lately, and filters that had one of them."""

    def __init__(self, parameters: Parameters) -> None:
        self._round_trip_ms = parameters.solicit_timeout_ms
        self._lasts_ms = 2 * parameters.solicit_timeout_ms
        # Who is no way between its neighbours does not become one.
        self._allowed = parameters.transit
        self._begun_ms: dict[BrokerId, Millis] = {}  # of the cores in ``_cores``
        # When the debt of each core is forgiven.
        self._debts: Recent[BrokerId, Millis] = Recent(parameters.cores_max)
        self._cores: Timers[BrokerId] = Timers()
        self._filters: Timers[str] = Timers()

    def next_deadline_ms(self) -> Millis | None:
        """When ``pop_due`` has something to tell."""
        return earliest(self._cores.next_deadline_ms(), self._filters.next_deadline_ms())

    def pop_due(self, now_ms: Millis) -> tuple[list[BrokerId], list[str]]:
        """The cores, and the filters without their core, for which the time is over."""
        cores = self._cores.pop_due(now_ms)
        for core in cores:
            self._charge(core, now_ms)
        return cores, self._filters.pop_due(now_ms)

    def on_core_lost(self, core: BrokerId, *, now_ms: Millis) -> None:
        """Begin: no way leads to ``core``, which owes for one time at most, but not for two."""
        debt_ms = (self._debts.get(core) or now_ms) - now_ms
        if self._allowed and core not in self._cores and debt_ms <= PRICE * self._lasts_ms:
            self._begun_ms[core] = now_ms
            self._cores.set(core, Millis(now_ms + self._lasts_ms))

    def on_core_found(self, core: BrokerId, *, now_ms: Millis) -> None:
        """End: a way leads to ``core``."""
        if core in self._cores:
            self._cores.clear(core)
            self._charge(core, now_ms)

    def on_core_changed(self, filter_: str, lost: BrokerId, *, now_ms: Millis) -> bool:
        """Go on for ``filter_``, whose core is another one now, or none that we know of yet.

        ``lost`` was its core, and is out of reach. Whether there is anything to go on with.
        """
        if not self.is_for(filter_, lost):
            return False
        self._filters.set(filter_, Millis(now_ms + self._round_trip_ms))
        return True

    def is_for(self, filter_: str, core: BrokerId | None) -> bool:
        """Whether ``filter_`` is flooded, which has ``core``, because that is out of reach.

        Records between agents, which begin with ``$``, have one announcer each: nobody succeeds it.
        """
        return core is not None and core in self._cores and not filter_.startswith("$")

    def __contains__(self, filter_: str) -> bool:
        """Whether ``filter_`` is flooded still, although it has another core now, or none."""
        return filter_ in self._filters

    def _charge(self, core: BrokerId, now_ms: Millis) -> None:
        begun_ms = self._begun_ms.pop(core)
        forgiven_ms = max(begun_ms, self._debts.get(core) or begun_ms)
        self._debts.put(core, Millis(forgiven_ms + PRICE * (now_ms - begun_ms)))
