"""What each filter is to a broker: who wants it, which core it has, how its publications go.

Of a hundred thousand filters most are the same to a broker as thousands of others. Such share one
object, so who alters a state alters a copy, which is shared again when all is decided.

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
    """What one filter is to this broker.

    Holds nothing that could lead back to it, so Python's collector need not look at it.
    """

    local: bool = False  # whether our own clients want it
    announcers: tuple[BrokerId, ...] = ()  # cores that announce it, apart from ourselves
    child_cores: tuple[BrokerId, ...] = ()  # cores of meshes in which a child of ours wants it
    core: BrokerId | None = None  # the core that we follow; our own id when it is us
    previous: BrokerId | None = None  # the core before, while the hand-over lasts
    stays: bool = False  # whether we keep our place in the mesh of the core before
    member_of: tuple[BrokerId, ...] = ()  # other cores to whose meshes of this filter we belong
    meshed: tuple[BrokerId, ...] = ()  # next hops without flooding: those that the meshes have
    # Next hops, and cores, that went out of reach while others wanted the filter still.
    missing: tuple[BrokerId, ...] = ()
    route: FilterRoute = NO_ROUTE  # what the data plane was told last; one object for equal ones


class SharedStates:
    """One object for each state that filters have."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], FilterState] = {}  # by what they say

    def like(self, state: FilterState) -> FilterState:
        """The one for filters that are as ``state`` says."""
        fields = (*astuple(state)[:-1], id(state.route))  # equal routes are the same
        if len(self._known) >= SHARED_STATES_MAX:
            self._known = {}
        return self._known.setdefault(fields, state)
