"""What the machines of one node tell each other. Nothing here leaves the node."""

from collections.abc import Set as AbstractSet

import msgspec

from federator.protocol.effects import Effect
from federator.protocol.types import BrokerId, Epoch


class SignalBase(msgspec.Struct, frozen=True):
    """Tells signals from effects: ``isinstance`` with it is much faster than with their union."""


class LinkUp(SignalBase, frozen=True):
    """A link is up at both ends, and came up anew at the other: it knows nothing said before."""

    neighbour: BrokerId


class LinkDown(SignalBase, frozen=True):
    """The link to ``neighbour`` is down: it is gone, or does not hear us."""

    neighbour: BrokerId


class LinkCostChanged(SignalBase, frozen=True):
    """The link to ``neighbour`` takes longer, or less long, than before."""

    neighbour: BrokerId


class OwnIdHeard(SignalBase, frozen=True):
    """Somebody spoke in our name, with an epoch newer than ours."""

    epoch: Epoch  # that one
    told_by: BrokerId  # the neighbour that says so
    proven: bool = True  # it shows our own word, as far as anybody proves anything here
    greeted: bool = False  # its own hello says so, as an answer to ours


class CoreMoved(SignalBase, frozen=True):
    """The parents towards ``core`` changed, or it became unreachable or reachable."""

    core: BrokerId


class CoreRefreshed(SignalBase, frozen=True):
    """A newer announcement of ``core`` was adopted: memberships are due."""

    core: BrokerId


class AnnouncedFiltersChanged(SignalBase, frozen=True):
    """``core`` announces other filters than before.

    ``gave_up``: nobody wants those that are missing now; otherwise they may be out of reach.
    """

    core: BrokerId
    filters: AbstractSet[str] = frozenset()
    gave_up: bool = False


class ChildFiltersChanged(SignalBase, frozen=True):
    """A child of ours wants other filters than before in the meshes of ``core``."""

    core: BrokerId
    child: BrokerId
    filters: AbstractSet[str] = frozenset()
    gave_up: bool = False


class ParentsChanged(SignalBase, frozen=True):
    """``filters`` go by way of our parents towards ``core``, which are others now."""

    core: BrokerId
    filters: AbstractSet[str] = frozenset()
    gave_up: bool = False


class OwnFiltersChanged(SignalBase, frozen=True):
    """What we announce changed: filters whose core we are, and destination records.

    ``lost``: who wanted the removed ones went out of reach.
    """

    added: frozenset[str]
    removed: frozenset[str]
    lost: bool = False


class RouteChanged(SignalBase, frozen=True):
    """One of the routings has another route for ``filter``; see ``SetRoute`` for ``lost``."""

    filter: str
    lost: bool = False


LinkSignal = LinkUp | LinkDown | LinkCostChanged | OwnIdHeard
FiltersChanged = AnnouncedFiltersChanged | ChildFiltersChanged | ParentsChanged
CoreSignal = CoreMoved | CoreRefreshed | OwnFiltersChanged | RouteChanged
Signal = LinkSignal | FiltersChanged | CoreSignal

Step = Effect | Signal
"""What a machine returns: orders for the driver, and news for the other machines."""
