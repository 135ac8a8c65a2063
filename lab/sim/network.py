"""Connections from agents to neighbours' brokers, and the paths they run over.

An agent publishes on its neighbour's *broker* over a TCP connection of its own, so what it sends
arrives in order or not at all; only messages of different connections overtake each other. A path
is one direction of a link and belongs to the agent that sends over it. What can befall it:

- **cut**: the connection is reset and none can be made until it heals;
- **silent**: a middlebox forgot the connection. Nothing says so: messages vanish until the path
  heals or somebody's keep-alive runs out;
- **clogged**: nothing moves for a while, then everything arrives at once;
- **lossy**: the neighbour's broker drops a message (QoS 0, full queue) or hands it over twice.

Source: docs/simulator.md.
"""

from dataclasses import dataclass, field

from federator.protocol.types import BrokerId, ConnId, Cost

Link = tuple[BrokerId, BrokerId]
"""The two ends of a link, the smaller id first."""


def link_of(one: BrokerId, other: BrokerId) -> Link:
    """The link between two brokers."""
    return (one, other) if one < other else (other, one)


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
        """Can a new connection be made?"""
        return not self.cuts and not self.silences


@dataclass(slots=True, eq=False)
class Connection:
    """One TCP connection with an MQTT session on it, from an agent to a neighbour's broker."""

    id: ConnId
    path: Path
    will: bytes  # the Bye that the broker publishes if the connection ends without a DISCONNECT
    broker_life: int  # which life of the broker accepted it: it does not survive the broker
    open_here: bool = True  # the agent believes in it
    open_there: bool = True  # the broker believes in it
    lost: bool = False  # what is on its way will never arrive
    last_arrival_ms: int = 0  # when the message sent last arrives; nothing overtakes it


@dataclass(slots=True, eq=False)
class Dialler:
    """Keeps one connection to an address up, as the runtime's link does: capped back-off."""

    address: str  # as configured or advertised by the neighbour; two may lead to one broker
    target: BrokerId
    expected_id: BrokerId | None
    cost: Cost
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
        """Does it answer?"""
        return self.stops == 0
