"""Everything a node can ask its driver to do. Drivers perform effects in order."""

import msgspec

from federator.protocol.messages.control import Message
from federator.protocol.messages.guide import Guide
from federator.protocol.messages.session_records import FlowRow
from federator.protocol.types import BrokerId, ConnId, Millis


class Send(msgspec.Struct, frozen=True):
    """Publish ``message`` on the neighbour's broker, over ``conn``. A lost one is not an error."""

    conn: ConnId
    message: Message


class Dial(msgspec.Struct, frozen=True):
    """Connect to the broker at ``address``, which a hello announced, and keep reconnecting."""

    id: BrokerId
    address: str


class CallOff(msgspec.Struct, frozen=True):
    """Stop dialling ``id``."""

    id: BrokerId


class DialSeed(msgspec.Struct, frozen=True):
    """Connect to the broker at an address that the operator configured for joining."""

    address: str


class CallOffSeed(msgspec.Struct, frozen=True):
    """Stop dialling the seed at ``address``."""

    address: str


class Measure(msgspec.Struct, frozen=True):
    """Measure the round trip to the broker at ``address``, without identifying ourselves."""

    id: BrokerId
    address: str


class RememberBrokers(msgspec.Struct, frozen=True):
    """Keep ids and addresses over a restart, to find these brokers again."""

    brokers: tuple[tuple[BrokerId, str], ...]


class HangUp(msgspec.Struct, frozen=True):
    """Close ``conn`` and do not reconnect: it leads to a neighbour we already reach, or to us."""

    conn: ConnId


class NeighbourReachable(msgspec.Struct, frozen=True):
    """The link to ``neighbour`` is up: its data goes over ``conn`` from now on.

    ``takes_bundles``: its agent accepts several frames in one PUBLISH.
    """

    neighbour: BrokerId
    conn: ConnId
    takes_bundles: bool = False


class NeighbourUnreachable(msgspec.Struct, frozen=True):
    """The link to ``neighbour`` is down: nothing can be sent to it."""

    neighbour: BrokerId


class FilterRoute(msgspec.Struct, frozen=True, gc=False):
    """What the data plane does with publications that match one filter.

    Tables of very many filters hold it: Python's garbage collector need not track them.
    """

    local: bool  # our own clients subscribe to it: publish arriving frames on our broker
    wanted: bool  # others want it: subscribe to it on our broker
    # Neighbours that get each publication (except the one it came from), ascending: parents and
    # children for a member; one parent for a non-member (one per mesh while a hand-over lasts);
    # none while a route is being repaired.
    next_hops: tuple[BrokerId, ...]
    # Brokers that want it over the shortest path, ascending; each gets one copy, through the next
    # hop in ``SetDestination``.
    destinations: tuple[BrokerId, ...] = ()
    # Only collectors want it: where that is kept at the edge, no other broker needs it.
    collected: bool = False


class SetRoute(msgspec.Struct, frozen=True):
    """Replace the route of ``filter``; ``None`` forgets it.

    ``lost``: other brokers wanted it until now, and went out of reach without giving it up.
    """

    filter: str
    route: FilterRoute | None
    lost: bool = False


class SetDestination(msgspec.Struct, frozen=True):
    """Frames for ``broker`` go through ``next_hop``; ``None``: no route is known now."""

    broker: BrokerId
    next_hop: BrokerId | None


class Pause(msgspec.Struct, frozen=True):
    """Ignore the copies that ``broker`` keeps for us: another way serves us."""

    broker: BrokerId


class Proceed(msgspec.Struct, frozen=True):
    """Accept again what ``broker`` keeps for us, and remember that over a restart.

    ``since_us``: what it made before then came by another way; by its wall clock, or ours. 0: none
    did. ``resumes``: the positions of an earlier run stay valid.
    """

    broker: BrokerId
    since_us: int
    by_its_clock: bool
    resumes: bool = False


class RenewEpoch(msgspec.Struct, frozen=True):
    """Our id was seen with a newer epoch: persist this one and announce with it."""

    epoch: int


class PublishGuide(msgspec.Struct, frozen=True):
    """Retain ``guide`` on our broker, in place of the previous one."""

    guide: Guide


class StepIn(msgspec.Struct, frozen=True):
    """We are the substitute of ``broker``, missed since ``missed_at_ms``.

    ``sessions`` are the subscriptions of persistent sessions there.
    """

    broker: BrokerId
    missed_at_ms: Millis
    sessions: tuple[FlowRow, ...]


class StepBack(msgspec.Struct, frozen=True):
    """We are no longer the substitute of ``broker``: it is back, or another one is."""

    broker: BrokerId


class SetDraining(msgspec.Struct, frozen=True):
    """Remember an order to move our clients away, or to let them return."""

    drain: bool


class Notice(msgspec.Struct, frozen=True):
    """Something an operator may want to know. ``name`` is stable: docs/events.md."""

    name: str
    level: str = "info"
    details: dict[str, int | str] = {}


LinkEffect = Send | Dial | CallOff | HangUp | NeighbourReachable | NeighbourUnreachable
TopologyEffect = DialSeed | CallOffSeed | Measure | RememberBrokers
RoutingEffect = SetRoute | SetDestination | RenewEpoch
LeafEffect = Pause | Proceed
ControllerEffect = PublishGuide | StepIn | StepBack | SetDraining
Effect = LinkEffect | TopologyEffect | RoutingEffect | LeafEffect | ControllerEffect | Notice
