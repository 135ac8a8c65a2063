"""The ways of frames past the brokers: what a transport is, and those that one agent has.

A transport is one class. An agent asks its transports in turn, and a frame that all of them decline
goes through the neighbour's broker (``by_broker``), which every link has: transports are used only
while that is up.

Source: docs/ARCHITECTURE.md, "A transport is one class".
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

from federator.protocol.data.ports import Backlog
from federator.protocol.types import BrokerId

BY_BROKER: Final = "tcp"
"""The name of the transport that every link has."""


class Queue(Backlog, Protocol):
    """What waits for one neighbour, as loads and traces report it."""

    @property
    def queued_bytes(self) -> int: ...

    @property
    def waiting_bytes(self) -> int: ...

    @property
    def stint(self) -> tuple[int, int]: ...


class Transport(Protocol):
    """Carries frames to neighbours past their brokers; made when the configuration names it.

    Attributes:
        name: As in ``links.transport``, traces and spans.
        section: As in ``/status``.
        messages: The control messages that it takes, with their handlers.
    """

    name: str
    section: str

    @property
    def messages(self) -> Mapping[type, Callable[[Any], None]]: ...

    def run(self) -> Coroutine[Any, Any, None]:
        """Accept frames, and look after links, until cancelled."""

    def send(
        self,
        neighbour: BrokerId,
        content: Sequence[bytes | memoryview],
        size: int,
        *,
        urgent: bool,
    ) -> int | None:
        """Send ``content``, a frame or a bundle of ``size`` bytes.

        Returns:
            The bytes sent; 0: there is no room. ``None``: another transport should be tried.
        """

    def on_neighbour(self, neighbour: BrokerId, up: bool) -> None:
        """The link by the brokers came up, or was lost."""

    def leave(self) -> None:
        """Resend by the brokers what may not have arrived: the agent ends."""

    def carries(self, neighbour: BrokerId) -> bool:
        """Whether frames for ``neighbour`` go this way now."""

    def queue_to(self, neighbour: BrokerId) -> Queue | None:
        """Where frames for ``neighbour`` wait; ``None``: not here."""

    def bytes_to(self, neighbour: BrokerId) -> int:
        """Bytes that left for ``neighbour``."""

    def snapshot(self, neighbour: BrokerId | None) -> Mapping[str, Any] | None:
        """For ``/status``: the link to one neighbour."""

    def totals(self) -> dict[str, object]:
        """For ``/status``: all of it."""


class Transports:
    """The transports of one agent.

    Args:
        chosen: The name of the transport that is configured for a neighbour.

    Attributes:
        all: In the order in which they are asked.
    """

    def __init__(self, chosen: Callable[[BrokerId], str] = lambda neighbour: BY_BROKER) -> None:
        self._chosen = chosen
        self.all: list[Transport] = []

    def named(self, name: str) -> Transport | None:
        return next((transport for transport in self.all if transport.name == name), None)

    def on_neighbour(self, neighbour: BrokerId, up: bool) -> None:
        """Use the transport of a neighbour only while the link by the brokers is up."""
        for transport in self.all:
            if not up or self._chosen(neighbour) == transport.name:
                transport.on_neighbour(neighbour, up)

    def used_to(self, neighbour: BrokerId) -> str:
        """How frames reach a neighbour now; the configured transport may not be up."""
        return next((t.name for t in self.all if t.carries(neighbour)), BY_BROKER)

    def queue_to(self, neighbour: BrokerId) -> Queue | None:
        """The queue past the neighbour's broker; ``None``: frames wait only for the broker's."""
        queues = (transport.queue_to(neighbour) for transport in self.all)
        return next((queue for queue in queues if queue is not None), None)

    def bytes_to(self, neighbour: BrokerId) -> int:
        """Bytes that left for ``neighbour`` past its broker."""
        return sum(transport.bytes_to(neighbour) for transport in self.all)

    def snapshots(self, neighbour: BrokerId | None) -> dict[str, Mapping[str, Any] | None]:
        """For ``/status``: the link to one neighbour, by section."""
        return {transport.section: transport.snapshot(neighbour) for transport in self.all}
