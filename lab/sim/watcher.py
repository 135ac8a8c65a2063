"""What an observer of the world is told. The base class listens to nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from federator.protocol.effects import Effect, Send
from federator.protocol.events import Event
from federator.protocol.forwarding.frames import Frame
from federator.protocol.messages.guide import Guide
from federator.protocol.types import BrokerId

if TYPE_CHECKING:
    from lab.sim.network import Agent


class InvariantError(AssertionError):
    """The federation is in a state that must not exist; ``invariant`` is its stable name."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


class Watcher:
    """Called by the world as things happen; may raise ``InvariantError``."""

    def started(self, agent: "Agent") -> None:
        """A new incarnation of an agent runs."""

    def stopped(self, agent: "Agent") -> None:
        """An agent runs no more."""

    def sent(self, agent: "Agent", target: BrokerId, send: Send) -> None:
        """``agent`` publishes a control message on ``target``'s broker."""

    def handled(self, agent: "Agent", event: Event, effects: Sequence[Effect]) -> None:
        """``agent`` handled ``event``, and its effects were performed."""

    def link_changed(self, agent: "Agent", target: BrokerId) -> None:
        """``agent``'s connection to ``target``'s broker came up or went down."""

    def frame_sent(self, agent: "Agent", target: BrokerId, frame: Frame) -> None:
        """``agent`` publishes this copy of a frame on another broker."""

    def delivered(self, agent: "Agent", publication: int, topic: str) -> None:
        """``agent`` publishes what arrived in a frame on its own broker."""

    def guided(self, agent: "Agent", guide: Guide) -> None:
        """``agent`` retains ``guide`` on its broker."""
