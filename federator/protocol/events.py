"""Everything that can happen to a node."""

from dataclasses import dataclass

from federator.protocol.messages.control import NodeMessage
from federator.protocol.messages.session_records import BrokerRecord, FlowRow
from federator.protocol.types import BrokerId, ConnId, Cost


@dataclass(frozen=True, slots=True)
class LocalBrokerUp:
    """The own broker answers, and we are subscribed to the control topics there."""


@dataclass(frozen=True, slots=True)
class LocalBrokerDown:
    """The connection to our own broker is gone: we neither hear nor deliver."""


@dataclass(frozen=True, slots=True)
class NeighbourConnected:
    """Connection ``conn`` to a neighbour's broker can carry messages.

    ``expected_id`` and ``cost`` are what the operator wrote, or ``None`` when only an address was
    given; ``cost`` is then 1 or the measured delay, as ``Parameters.link_cost`` says.
    """

    conn: ConnId
    address: str
    expected_id: BrokerId | None = None
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class NeighbourDisconnected:
    """Connection ``conn`` is gone. Reconnecting gives a new ``ConnId``."""

    conn: ConnId


@dataclass(frozen=True, slots=True)
class Received:
    """A control message arrived on our own broker."""

    message: NodeMessage


@dataclass(frozen=True, slots=True)
class LocalFiltersChanged:
    """What our own clients subscribe to, as a change."""

    added: frozenset[str]
    removed: frozenset[str]


@dataclass(frozen=True, slots=True)
class PriorityChanged:
    """The priority of this broker as a core changed; the smaller is preferred."""

    priority: int


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """How our broker is: draining or not, its load, its address. Its links we know ourselves."""

    status: BrokerRecord


@dataclass(frozen=True, slots=True)
class RowsChanged:
    """What our clients publish and subscribe, as a change of our rows of the session flow table."""

    added: frozenset[FlowRow]
    removed: frozenset[FlowRow]


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """An operator wants the clients of ``broker`` moved away, or lets them come back."""

    broker: BrokerId
    drain: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """How far the broker of ``id`` is; ``None``: it did not answer."""

    id: BrokerId
    round_trip_ms: int | None


@dataclass(frozen=True, slots=True)
class DeadlineReached:
    """The instant returned by ``next_deadline_ms`` has come."""


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The operator stops this agent: tell the neighbours."""


Event = (
    LocalBrokerUp
    | LocalBrokerDown
    | NeighbourConnected
    | NeighbourDisconnected
    | Received
    | LocalFiltersChanged
    | PriorityChanged
    | StatusChanged
    | RowsChanged
    | DrainRequested
    | Measured
    | DeadlineReached
    | LeaveRequested
)
