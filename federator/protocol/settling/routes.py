"""A node's knowledge about filters in waves (``waves``).

Filters have the form they have in waves: those wanted over shortest paths are destination records.
"""

from federator.protocol.messages.destinations import (
    destination_filter,
    destination_record,
    is_destination_record,
)
from federator.protocol.node import Node
from federator.protocol.types import BrokerId


class SettledRoutes:
    """Answers questions about filters in waves from a node's tables."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def text(self, filter: str) -> str:
        """The form in a wave of ``filter``, which our own clients want."""
        record = destination_record(filter) if self._node.topic_routing.asks_for(filter) else None
        return filter if record is None else record

    def is_told(self, filter: str) -> bool:
        """Whether we have announced to the federation that our own clients want ``filter``."""
        node = self._node
        own = node.announcements.own
        if is_destination_record(filter):
            return own.is_told(filter)
        state = node.meshes.states.get(filter)
        if state is None or not state.local or state.core is None:
            return False
        if state.core == node.links.self_id:
            return own.is_told(filter)
        return node.meshes.memberships.is_told(state.core, filter)

    def leads(self, filter: str, to: BrokerId) -> bool:
        """Whether publications go to the destination ``to``, or into the mesh of that core."""
        node = self._node
        if not is_destination_record(filter):
            state = node.meshes.states.get(filter)
            return state is not None and state.core == to and state.route.wanted
        straight = node.topic_routing.states.get(destination_filter(filter))
        wanted_there = straight is not None and to in straight.brokers
        return wanted_there and to in node.topic_routing.next_hops

    def core_of(self, filter: str) -> BrokerId | None:
        """The core of the mesh of ``filter``; ``None`` when we are the core, or there is none."""
        state = self._node.meshes.states.get(filter)
        core = None if state is None else state.core
        return None if core == self._node.links.self_id else core

    def parent_to(self, core: BrokerId) -> BrokerId | None:
        """Our first parent towards ``core``."""
        return next(iter(self._node.meshes.parents_of(core)), None)

    def has_child(self, core: BrokerId, child: BrokerId, filter: str) -> bool:
        """Whether ``child`` is our child for ``filter`` in the mesh of ``core``."""
        return child in self._node.meshes.children_of(core, filter)


def plain_filter(filter: str) -> str:
    """The client's filter of a filter in a wave."""
    return destination_filter(filter) if is_destination_record(filter) else filter
