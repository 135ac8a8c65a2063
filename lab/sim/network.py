"""Brokers, agents, the connections from agents to neighbours' brokers, and the paths they run over.

An agent is the real node and data plane, and what a process adds to them. What survives the process
(``Disk``) is kept apart from what dies with it (``Agent``), so a restart cannot inherit by accident
what a real one would have lost.

An agent publishes on its neighbour's *broker* over a TCP connection of its own, so what it sends
arrives in order or not at all; only messages of different connections overtake each other. A path
is one direction of a link and belongs to the agent that sends over it. Where only one end can dial,
both directions share its connection: the other agent publishes on its own broker, in an outbox, and
what it says arrives as long as that connection stands. What can befall a path:

- **cut**: the connection is reset and none can be made until it heals;
- **silent**: a middlebox forgot the connection. Nothing says so: messages vanish until the path
  heals or somebody's keep-alive runs out;
- **clogged**: nothing moves for a while, then everything arrives at once;
- **lossy**: the neighbour's broker drops a message (QoS 0, full queue) or hands it over twice.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from federator.protocol.data.plane import DataPlane
from federator.protocol.events import Event
from federator.protocol.node import Node
from federator.protocol.types import BrokerId, ConnId, Cost, Epoch, Millis

INBOX_MAX = 1_020
"""Messages a broker keeps for a client that does not read: Mosquitto's default queue."""

FIRST_EPOCH = 1_000
"""Leaves room below for an agent whose disk was lost and whose clock was set back."""


@dataclass(slots=True)
class Path:
    """One direction of a link: from ``owner``'s agent to ``target``'s broker."""

    owner: BrokerId
    target: BrokerId
    delay_ms_min: int
    delay_ms_max: int
    cuts: int = 0  # Faults that keep it cut; several may overlap.
    silences: int = 0
    clogged_until_ms: int = 0

    @property
    def usable(self) -> bool:
        return not self.cuts and not self.silences


@dataclass(slots=True, eq=False)
class Connection:
    """One TCP connection with an MQTT session on it, from an agent to a neighbour's broker."""

    id: ConnId
    path: Path
    at: BrokerId  # whose broker it leads to: into an outbox, the agent's own
    will: bytes  # the Bye that the broker publishes if the connection ends without a DISCONNECT
    broker_life: int  # which life of the broker accepted it: it does not survive the broker
    open_here: bool = True  # the agent believes in it
    open_there: bool = True  # the broker believes in it
    lost: bool = False  # what is on its way will never arrive
    last_arrival_ms: int = 0  # when the message sent last arrives; nothing overtakes it
    takes_outbox: bool = False  # what is said at its other end is heard over it

    @property
    def in_outbox(self) -> bool:
        """Whether what is published over it is for who comes for it."""
        return self.at == self.path.owner


@dataclass(slots=True, eq=False)
class Dialler:
    """Keeps one connection to an address up, as the runtime's link does: capped back-off."""

    address: str  # as configured or advertised by the neighbour; two may lead to one broker
    target: BrokerId
    expected_id: BrokerId | None
    cost: Cost | None  # ``None``: measured
    outbox: bool = False  # it leads to our own broker, into the target's outbox there
    takes_outbox: bool = False  # what is said to us at the target's broker is heard over it
    connection: Connection | None = None
    failures: int = 0
    pending: int = 0  # tells an attempt that was overtaken by events that it is no longer wanted
    wanted: bool = True


@dataclass(slots=True)
class Broker:
    """An unmodified broker: who is connected, and whether it runs."""

    id: BrokerId
    stops: int = 0  # faults that keep it down
    life: int = 0  # grows at every start; nothing of an earlier life arrives in a later one
    # The connection that holds each client id, by (agent, address).
    sessions: dict[tuple[BrokerId, str], Connection] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        return self.stops == 0


@dataclass(frozen=True, slots=True)
class Published:
    """A publication as its broker took it."""

    number: int
    publisher: str
    broker: BrokerId
    topic: str
    qos: int
    at_ms: int


@dataclass(slots=True)
class Disk:
    """What an agent finds again when it starts."""

    epoch: Epoch = Epoch(FIRST_EPOCH)
    draining: bool = False


@dataclass(slots=True, eq=False)
class Agent:
    """A running agent process."""

    id: BrokerId
    life: int  # which incarnation, counted from 1; calls meant for another are ignored
    node: Node
    clock_offset_ms: int  # its monotonic clock minus the world's
    data: DataPlane = field(init=False)
    cover: tuple[str, ...] = ()  # what is subscribed on our broker for others
    subscribed: bool = False  # connected to its own broker: what neighbours publish reaches it
    pauses: int = 0  # faults that keep it stopped (SIGSTOP)
    pause_ticket: int = 0
    # What waits for a paused agent, in order: events, frames as bytes, and calls.
    inbox: deque[Event | bytes | Callable[[], None]] = field(default_factory=deque)
    armed_at_ms: Millis | None = None  # the world's instant of the earliest wake-up on the agenda
    crash_after: int | None = None  # steps after which it is doomed; ``None``: it is not to be
    doomed: bool = False  # it was killed between two writes; the world has not noticed yet
    connections: dict[ConnId, tuple[Connection, Dialler]] = field(default_factory=dict)
    diallers: dict[str, Dialler] = field(default_factory=dict)
    # The connection that the data plane uses for each neighbour.
    reach: dict[BrokerId, ConnId] = field(default_factory=dict)
    connections_made: int = 0
    local_failures: int = 0

    def connection_to(self, neighbour: BrokerId) -> Connection | None:
        """The connection that the data plane uses, while it is there."""
        conn = self.reach.get(neighbour)
        held = None if conn is None else self.connections.get(conn)
        return None if held is None else held[0]
