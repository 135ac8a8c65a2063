"""What agents say to each other, here in the clear; ``attack.signed`` puts seals on it."""

import random

from federator.protocol.messages import codec
from federator.protocol.messages.control import Bye, Message
from federator.protocol.trust.guard import Seals
from lab.sim.data import DataWorld
from lab.sim.network import Agent, Connection


class Speech:
    """How the agents of a world write and read control messages."""

    def __init__(self, world: DataWorld) -> None:
        self._world = world
        self._encoded: tuple[object, bytes] = (None, b"")

    def begin(self, agent: Agent, rng: random.Random) -> Seals | None:
        """An agent starts; who seals its frames, if anything does."""
        return None

    def write(self, agent: Agent, connection: Connection, message: Message) -> bytes | None:
        """A message for a connection, or ``None``. It goes to many, and is encoded once."""
        if self._encoded[0] is not message:
            self._encoded = (message, codec.encode(message))
        return self._encoded[1]

    def read(self, agent: Agent, kind: str, payload: bytes) -> Message:
        """What an agent makes of a control message. Raises ``DecodeError``: it believes none."""
        return codec.decode(kind, payload)

    def will_of(self, agent: Agent, bye: Bye) -> bytes:
        return codec.encode(bye)
