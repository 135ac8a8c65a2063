"""The state of each filter at this broker: demand, core, and route.

Most of a hundred thousand filters have the same state as thousands of others. They share one
object, so a change is made on a copy, which is shared again when the decision is complete.

Source: docs/protocol.md 7.
"""

from typing import Final

import msgspec
from msgspec.structs import astuple

from federator.protocol.effects import FilterRoute
from federator.protocol.types import BrokerId

SHARED_STATES_MAX: Final = 8_192
NO_ROUTE: Final = FilterRoute(local=False, wanted=False, next_hops=())


class FilterState(msgspec.Struct, gc=False):
    """The state of one filter at this broker.

    Contains no reference that could lead back to it, so Python's collector need not track it.
    """

    local: bool = False  # our own clients want it
    announcers: tuple[BrokerId, ...] = ()  # other cores that announce it
    child_cores: tuple[BrokerId, ...] = ()  # cores of meshes in which a child of ours wants it
    core: BrokerId | None = None  # the core that we follow; our own id if we are the core
    previous: BrokerId | None = None  # the core before, during the hand-over
    stays: bool = False  # whether we stay in the mesh of the core before
    member_of: tuple[BrokerId, ...] = ()  # other cores with meshes of this filter that we belong to
    meshed: tuple[BrokerId, ...] = ()  # next hops in the meshes, without flooding
    # Next hops and cores that became unreachable while others still wanted the filter.
    missing: tuple[BrokerId, ...] = ()
    route: FilterRoute = NO_ROUTE  # last sent to the data plane; equal ones are one object


class SharedStates:
    """One shared object for all filters with the same state."""

    def __init__(self) -> None:
        self._by_content: dict[tuple[object, ...], FilterState] = {}  # by content

    def like(self, state: FilterState) -> FilterState:
        """The shared object with the content of ``state``."""
        fields = (*astuple(state)[:-1], id(state.route))  # equal routes are the same object
        if len(self._by_content) >= SHARED_STATES_MAX:
            self._by_content = {}
        return self._by_content.setdefault(fields, state)
