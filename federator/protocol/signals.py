"""Signals between the machines of one node. They never leave the node."""

from collections.abc import Set as AbstractSet

import msgspec

from federator.protocol.effects import Effect
from federator.protocol.types import BrokerId, Epoch


class SignalBase(msgspec.Struct, frozen=True):
    """Distinguishes signals from effects: ``isinstance`` with it is faster than with their
    union.
    """


class LinkUp(SignalBase, frozen=True):
    """A link is up at both ends, and the other end came up anew: it knows nothing sent before."""

    neighbour: BrokerId


class LinkDown(SignalBase, frozen=True):
    """The link to ``neighbour`` is down: it is gone, or does not receive us."""

    neighbour: BrokerId


class LinkCostChanged(SignalBase, frozen=True):
    """The cost of the link to ``neighbour`` changed."""

    neighbour: BrokerId


class OwnIdHeard(SignalBase, frozen=True):
    """Our id was seen with an epoch newer than ours."""

    epoch: Epoch  # the newer epoch
    told_by: BrokerId  # the neighbour that reported it
    # The report contains our own signature, as far as this federation proves messages.
    proven: bool = True
    greeted: bool = False  # its own hello says so, in answer to ours


class CoreMoved(SignalBase, frozen=True):
    """The parents towards ``core`` changed, or it became unreachable or reachable."""

    core: BrokerId


class CoreRefreshed(SignalBase, frozen=True):
    """A newer announcement of ``core`` was adopted: memberships are due."""

    core: BrokerId


class AnnouncedFiltersChanged(SignalBase, frozen=True):
    """``core`` announces other filters than before.

    ``gave_up``: no broker wants the missing filters now; otherwise the brokers may be out of reach.
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
    """``filters`` go through our parents towards ``core``, which changed."""

    core: BrokerId
    filters: AbstractSet[str] = frozenset()
    gave_up: bool = False


class OwnFiltersChanged(SignalBase, frozen=True):
    """What we announce changed: filters with us as core, and destination records.

    ``lost``: the brokers that wanted the removed ones went out of reach.
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
"""What a machine returns: effects for the driver, and signals for the other machines."""
