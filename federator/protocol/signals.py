"""What the machines of one node tell each other. Nothing here leaves the node."""

from dataclasses import dataclass
from typing import Final

from federator.protocol.effects import Effect
from federator.protocol.types import BrokerId, Epoch


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A link is up at both ends, and came up anew at the other: it knows nothing said before."""

    neighbour: BrokerId


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The link to ``neighbour`` is down: it is gone, or does not hear us."""

    neighbour: BrokerId


@dataclass(frozen=True, slots=True)
class LinkCostChanged:
    """The link to ``neighbour`` takes longer, or less long, than before."""

    neighbour: BrokerId


@dataclass(frozen=True, slots=True)
class OwnIdHeard:
    """Somebody spoke in our name, with an epoch newer than ours.

    Attributes:
        epoch: That one.
        told_by: The neighbour that says so.
        proven: It shows our own word, as far as anybody proves anything here.
        greeted: Its own hello says so, as an answer to ours.
    """

    epoch: Epoch
    told_by: BrokerId
    proven: bool = True
    greeted: bool = False


@dataclass(frozen=True, slots=True)
class CoreMoved:
    """The parents towards ``core`` changed, or it became unreachable or reachable."""

    core: BrokerId


@dataclass(frozen=True, slots=True)
class CoreRefreshed:
    """A newer announcement of ``core`` was adopted: memberships are due."""

    core: BrokerId


@dataclass(frozen=True, slots=True)
class AnnouncedFiltersChanged:
    """``core`` announces other filters than before.

    ``gave_up``: nobody wants those that are missing now; otherwise they may be out of reach.
    """

    core: BrokerId
    filters: frozenset[str]
    gave_up: bool = False


@dataclass(frozen=True, slots=True)
class OwnFiltersChanged:
    """What we announce changed: filters whose core we are, and destination records.

    ``lost``: who wanted the removed ones went out of reach.
    """

    added: frozenset[str]
    removed: frozenset[str]
    lost: bool = False


@dataclass(frozen=True, slots=True)
class RouteChanged:
    """One of the routings has another route for ``filter``; see ``SetRoute`` for ``lost``."""

    filter: str
    lost: bool = False


Signal = (
    LinkUp
    | LinkDown
    | LinkCostChanged
    | OwnIdHeard
    | CoreMoved
    | CoreRefreshed
    | AnnouncedFiltersChanged
    | OwnFiltersChanged
    | RouteChanged
)

SIGNALS: Final = (
    LinkUp,
    LinkDown,
    LinkCostChanged,
    OwnIdHeard,
    CoreMoved,
    CoreRefreshed,
    AnnouncedFiltersChanged,
    OwnFiltersChanged,
    RouteChanged,
)
"""The same for ``isinstance``, which is much faster with a tuple."""

Step = Effect | Signal
"""What a machine returns: orders for the driver, and news for the other machines."""
