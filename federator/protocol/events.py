"""Everything that can happen to a node."""

import msgspec

from federator.protocol.messages.control import NodeMessage
from federator.protocol.messages.session_records import BrokerRecord
from federator.protocol.parameters import LinkCost
from federator.protocol.types import BrokerId, ConnId, Cost


class LocalBrokerUp(msgspec.Struct, frozen=True):
    """Our own broker answers, and we are subscribed to the control topics there."""


class LocalBrokerDown(msgspec.Struct, frozen=True):
    """The connection to our own broker is gone: we neither receive nor deliver."""


class NeighbourConnected(msgspec.Struct, frozen=True):
    """Connection ``conn`` to a neighbour's broker can carry messages.

    ``expected_id`` and ``cost`` are as configured, or ``None`` when only an address was given;
    ``cost`` is then 1 or the measured delay, as ``Parameters.link_cost`` says. ``takes_outbox``: on
    it we subscribe to our outbox at the other end, so no agent need dial us.
    """

    conn: ConnId
    address: str
    expected_id: BrokerId | None = None
    cost: Cost | None = None
    takes_outbox: bool = False


class NeighbourDisconnected(msgspec.Struct, frozen=True):
    """Connection ``conn`` is gone. Reconnecting gives a new ``ConnId``."""

    conn: ConnId


class Received(msgspec.Struct, frozen=True):
    """A control message arrived on our own broker."""

    message: NodeMessage


class LocalFiltersChanged(msgspec.Struct, frozen=True):
    """What our own clients subscribe to, as a change."""

    added: frozenset[str]
    removed: frozenset[str]


class PriorityChanged(msgspec.Struct, frozen=True):
    """The priority of this broker as a core changed; the smaller is preferred."""

    priority: int


class StatusChanged(msgspec.Struct, frozen=True):
    """The state of our broker: draining or not, its load, its address. Its links are known here."""

    status: BrokerRecord


class CollectsChanged(msgspec.Struct, frozen=True):
    """Our clients' subscriptions to exactly these filters only collect: see ``BrokerRecord``."""

    filters: frozenset[str]


class RowsChanged(msgspec.Struct, frozen=True):
    """What our clients publish and subscribe, as a change of our rows of the session flow table.

    Each row is the record that announces it (``session_records.encode_record`` of a ``FlowRow``).
    """

    added: frozenset[str]
    removed: frozenset[str]


class DrainRequested(msgspec.Struct, frozen=True):
    """An operator wants the clients of ``broker`` moved away, or lets them come back."""

    broker: BrokerId
    drain: bool


class Measured(msgspec.Struct, frozen=True):
    """The round trip to the broker of ``id``; ``None``: it did not answer."""

    id: BrokerId
    round_trip_ms: int | None


class NamedNeighbour(msgspec.Struct, frozen=True):
    """The configuration of the neighbour at ``address``, as in ``NeighbourConnected``."""

    address: str
    expected_id: BrokerId | None = None
    cost: Cost | None = None


class LinksConfigured(msgspec.Struct, frozen=True):
    """The operator's configuration of links changed, all at once.

    ``neighbours`` are all configured ones, ``given_up`` the addresses of those that no longer are;
    a new neighbour is reported when it is connected.
    """

    neighbours: tuple[NamedNeighbour, ...]
    given_up: frozenset[str]
    link_cost: LinkCost


class HubChosen(msgspec.Struct, frozen=True):
    """We, a leaf, are served by ``hub`` from now on, and not by any of ``others``.

    ``since_us``, our wall clock: what was published before then came through the previous hub; 0:
    there was none. ``resumes``: it served us before our restart, and positions stay valid.
    """

    hub: BrokerId
    others: frozenset[BrokerId]
    since_us: int
    resumes: bool = False


class DeadlineReached(msgspec.Struct, frozen=True):
    """The instant returned by ``next_deadline_ms`` has come.

    ``behind``: messages may be waiting to be read, so silence proves little.
    """

    behind: bool = False


class LeaveRequested(msgspec.Struct, frozen=True):
    """The operator stops this agent: send byes to the neighbours."""


OwnBrokerEvent = (
    LocalBrokerUp
    | LocalBrokerDown
    | LocalFiltersChanged
    | StatusChanged
    | RowsChanged
    | CollectsChanged
)
NeighbourEvent = NeighbourConnected | NeighbourDisconnected | Received | Measured
Order = PriorityChanged | DrainRequested | LinksConfigured | HubChosen | LeaveRequested
Event = OwnBrokerEvent | NeighbourEvent | Order | DeadlineReached
