"""One simulated agent process: the real node and data plane, and what a process adds to them.

What survives the process (``Disk``) is kept apart from what dies with it (``Agent``), so a restart
cannot inherit by accident what a real one would have lost.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from federator.protocol.data_plane import DataPlane
from federator.protocol.events import Event
from federator.protocol.node import Node
from federator.protocol.types import BrokerId, ConnId, Epoch, Millis
from lab.sim.network import Connection, Dialler

INBOX_MAX = 1_020
"""Messages a broker keeps for a client that does not read: Mosquitto's default queue."""


FIRST_EPOCH = 1_000
"""Leaves room below for an agent whose disk was lost and whose clock was set back."""


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
