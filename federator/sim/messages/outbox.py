"""What an agent publishes on its own broker: a window of twenty, and a queue behind it.

What is in flight is in the kernel's hands and arrives even when the process is killed; what waits
for room dies with the process.

Source: OASIS MQTT 5.0, section 4.9 (flow control); ``runtime.mqtt_window``.
"""

from collections import deque
from collections.abc import Callable

from federator.protocol.types import BrokerId
from federator.sim.agenda import Agenda
from federator.sim.messages.brokers import LOCAL_MS, MessageBroker
from federator.sim.messages.ledger import Ledger
from federator.sim.messages.sessions import IN_FLIGHT_MAX, Message

QUEUE_MAX = 1_000


class Outbox:
    """The outgoing side of an agent's data connection.

    Args:
        client_id: Of the connection.
        broker: The broker.
        agenda: The clock.
        ledger: Told of what may be lost or repeated.
        run: Runs a call in the agent's process: never when it is dead, later when it is paused.
    """

    def __init__(
        self,
        client_id: str,
        broker: MessageBroker,
        agenda: Agenda,
        ledger: Ledger,
        run: Callable[..., None],
    ) -> None:
        self.connected = False
        self._client_id = client_id
        self._broker = broker
        self._agenda = agenda
        self._ledger = ledger
        self._run = run
        self._life = 0  # of the broker that we are connected to
        self._queue: deque[Message] = deque()
        self._in_flight: deque[Message] = deque()
        self._unmarked: list[int] = []  # sent to the broker behind the last marker

    @property
    def room(self) -> bool:
        """There is a connection, and it can take more."""
        return self.connected and len(self._queue) < QUEUE_MAX

    @property
    def idle(self) -> bool:
        """The broker has everything."""
        return not self._queue and not self._in_flight

    def offer(self, messages: list[Message]) -> None:
        """Publish ``messages`` in order, when there is room."""
        self._queue.extend(messages)
        self._fill()

    def up(self) -> None:
        """The connection is up: go on."""
        self.connected, self._life = True, self._broker.life
        self._fill()

    def cut(self) -> None:
        """The connection is dead, though the process may not have noticed."""
        self._life = -1

    def down(self) -> None:
        """The connection is gone; what waits, waits, and what was not acknowledged goes again."""
        self.connected = False
        self._queue.extendleft(reversed(self._in_flight))
        self._in_flight.clear()

    def process_dies(self) -> None:
        """What waited is gone; what was sent behind the last marker will be sent again."""
        for number in self._unmarked:
            self._ledger.tolerate_at(self._id, number)
        self._queue.clear()
        self._in_flight.clear()

    def broker_dies(self) -> None:
        """The broker takes what it has not acknowledged with it."""
        for message in self._in_flight:
            if message.number >= 0:
                self._ledger.excuse_at(self._id, message.number, "died with its broker")
                self._ledger.tolerate_at(self._id, message.number)
        self._in_flight.clear()

    @property
    def _id(self) -> BrokerId:
        return self._broker.id

    def _fill(self) -> None:
        while self.connected and self._queue and len(self._in_flight) < IN_FLIGHT_MAX:
            message = self._queue.popleft()
            self._in_flight.append(message)
            if message.number >= 0:
                self._unmarked.append(message.number)
            else:
                self._unmarked.clear()
            when_ms = self._agenda.now_ms + LOCAL_MS
            self._agenda.at(when_ms, self._arrive, self._life, message)

    def _arrive(self, life: int, message: Message) -> None:
        if self._broker.life == life:
            self._broker.publish(self._client_id, message)
            when_ms = self._agenda.now_ms + LOCAL_MS
            self._agenda.at(when_ms, self._run, self._acknowledged, message)

    def _acknowledged(self, message: Message) -> None:
        if self._in_flight and self._in_flight[0] is message:
            self._in_flight.popleft()
            self._fill()
