"""An agent's data connection to its own broker: what it publishes there, and what it acknowledges.

A window of twenty, and a queue behind it. What is in flight is in the kernel's hands and arrives
even when the process is killed; what waits for room dies with the process.

A process can be **doomed**: killed between two of its writes, not between two events. From there on
nothing that it does leaves it.

Source: OASIS MQTT 5.0, section 4.9 (flow control); ``runtime.mqtt.window``.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mqtt5 import PublishPacket

from federator.protocol.effects import Notice
from federator.protocol.forwarding.publications import Place, packets_in
from federator.protocol.types import BrokerId
from lab.sim.data import DataWorld, number_of, publish_each
from lab.sim.disks import Writer
from lab.sim.messages.brokers import LOCAL_MS, MessageBroker
from lab.sim.messages.ledger import Ledger
from lab.sim.messages.sessions import IN_FLIGHT_MAX, Message, Session, data_client_id
from lab.sim.network import Agent

QUEUE_MAX = 1_000
NOTED_MS = 2_500  # by then what was sent is acknowledged, and its marker noted, once a second


class HostContext(Protocol):
    """What an agent's process has around it; ``agent`` is always the one that speaks."""

    def interest_changed(
        self, agent: Agent, added: frozenset[str], removed: frozenset[str]
    ) -> None:
        """What the clients of its broker want, as discovery knows it."""

    def acknowledging(self, agent: Agent, number: int) -> None:
        """The agent tells its broker that it has a publication."""

    def may_miss_brought(self, id: BrokerId, number: int) -> list[str]:
        """The clients that miss a publication which agent ``id`` was just giving its broker."""

    def tend(self, agent: Agent) -> None:
        """A second has passed: its custody is bounded."""

    def doom(self, agent: Agent) -> None:
        """The agent is killed here, between two writes."""


@dataclass(eq=False, repr=False)
class DataConnection(Writer):
    """A process's connection to its own broker, as the data plane and custody's disk see it."""

    urgent_bytes = 0

    _agent: Agent
    _broker: MessageBroker
    _ledger: Ledger
    _world: DataWorld
    _around: HostContext
    session: tuple[Session, int] | None = None  # at the broker, and which connection of it
    session_number: int = 0  # grows with each connection
    _life: int = 0  # of the broker that we are connected to
    _queue: deque[Message] = field(default_factory=deque)
    _in_flight: deque[Message] = field(default_factory=deque)
    _unmarked: list[int] = field(default_factory=list)  # sent to the broker behind the last marker
    _lately: deque[tuple[int, int]] = field(default_factory=deque)  # when sent, and what

    def __post_init__(self) -> None:
        self._agenda = self._world.agenda
        self._client_id = data_client_id(self._agent.id)

    # --- as a connection ---

    @property
    def room(self) -> bool:
        return self.session is not None and len(self._queue) < QUEUE_MAX

    @property
    def unacknowledged(self) -> int:
        """What the broker has not got yet; without a connection, that cannot be known."""
        return len(self._queue) + len(self._in_flight) + (self.session is None)

    @property
    def waiting(self) -> int:
        """What is not on its way to the broker."""
        return len(self._queue) + (self.session is None)

    @property
    def queued_bytes(self) -> int:
        """Counted in messages here."""
        return len(self._queue)

    @property
    def idle(self) -> bool:
        return not self._queue

    def write_packets(
        self, parts: Sequence[bytes | memoryview], count: int, *, urgent: bool = False
    ) -> bool:
        if self.session is None or self._agent.doomed:
            return False
        for packet in packets_in(b"".join(parts)):
            if packet.topic == self._agent.data.delivery.marker_topic:
                self._hand_over(Message(packet.topic, 0, payload=packet.payload, retain=True))
                self.step()
                continue
            message = Message(packet.topic, 0, self._delivered(packet), properties=_said(packet))
            self._broker.publish(self._client_id, message)
        return True

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        if self._agent.doomed:
            return False
        [parsed] = packets_in(bytes(packet))
        if parsed.topic == self._agent.data.delivery.marker_topic:
            self._offer(Message(parsed.topic, 1, payload=parsed.payload, retain=True))
            self.step()
            return True
        number = self._delivered(parsed)
        if not self.noted:
            self._ledger.tolerate_at(self._agent.id, number)
        self._offer(Message(parsed.topic, qos, number, properties=_said(parsed)))
        return True

    def publish_run(self, run: bytes, places: Sequence[Place]) -> int:
        return publish_each(self, run, places)

    def _delivered(self, packet: PublishPacket) -> int:
        number = number_of(packet)
        if not self._ledger.may_repeat(number):
            self._world.was_delivered(self._agent, number, packet.topic)
        return number

    def acknowledge(self, packet_ids: Iterable[tuple[int, int]], *, session_number: int) -> None:
        self.step()
        if self.session is None or session_number != self.session_number or self._agent.doomed:
            return
        session, connection = self.session
        for packet_id, _ in packet_ids:
            message = session.in_flight.get(packet_id)
            if message is not None:
                self._around.acknowledging(self._agent, message.number)
            self._broker.acknowledge(session, connection, packet_id)

    # --- as what writes to the disk ---

    def step(self) -> None:
        """One more thing is done that a crash may come after."""
        agent = self._agent
        if agent.crash_after is None or agent.doomed:
            return
        agent.crash_after -= 1
        if agent.crash_after <= 0:
            agent.doomed = True
            self.process_dies()
            self._around.doom(agent)

    def too_old(self, numbers: list[int]) -> None:
        for number in numbers:
            self._ledger.excuse(number, "log full")

    def disk_full(self, event: str) -> None:
        self._world.noticed(Notice(event, "error"))

    # --- what befalls it ---

    def up(self, session: Session) -> None:
        self.session = session, session.connection
        self.session_number += 1
        self._life = self._broker.life
        self._fill()

    def cut(self) -> None:
        self._life = -1

    def down(self) -> None:
        """The connection is gone; what waits, waits, and what was not acknowledged goes again."""
        self.session = None
        self._queue.extendleft(reversed(self._in_flight))
        self._in_flight.clear()

    def process_dies(self) -> None:
        """What waited is gone; what was sent behind the last marker will be sent again."""
        for number in self._unmarked:
            self._ledger.tolerate_at(self._agent.id, number)
        if not self._broker.running:  # and with it the marker that tells what it lacks
            self._die_with_broker(self._queue)
        self._queue.clear()
        self._in_flight.clear()

    @property
    def unnoted(self) -> list[int]:
        """What was sent so lately that its marker may not be noted."""
        return [number for _, number in self._lately]

    def broker_dies(self) -> None:
        """The broker takes what it has not acknowledged with it."""
        self._die_with_broker(self._in_flight)
        self._in_flight.clear()

    def _die_with_broker(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if message.number >= 0:
                for client in self._around.may_miss_brought(self._agent.id, message.number):
                    self._ledger.excuse(message.number, "died with its broker", client)
                self._ledger.tolerate_at(self._agent.id, message.number)

    def _offer(self, message: Message) -> None:
        self._queue.append(message)
        self._fill()

    def _fill(self) -> None:
        while self.session is not None and self._queue and len(self._in_flight) < IN_FLIGHT_MAX:
            message = self._queue.popleft()
            self._in_flight.append(message)
            self._hand_over(message)

    def _hand_over(self, message: Message) -> None:
        """Give ``message`` to the kernel."""
        if message.number >= 0:
            self._unmarked.append(message.number)
            self._lately.append((self._agenda.now_ms, message.number))
            while self._lately[0][0] < self._agenda.now_ms - NOTED_MS:
                self._lately.popleft()
        else:
            self._unmarked.clear()
        when_ms = self._agenda.now_ms + LOCAL_MS
        self._agenda.at(when_ms, self._arrive, self._life, message)

    def _arrive(self, life: int, message: Message) -> None:
        if self._broker.life == life:
            self._broker.publish(self._client_id, message)
            when_ms = self._agenda.now_ms + LOCAL_MS
            self._agenda.at(when_ms, self._world.run, self._agent, self._acknowledged, message)

    def _acknowledged(self, message: Message) -> None:
        if self._in_flight and self._in_flight[0] is message:
            self._in_flight.popleft()
            self._fill()


def _said(packet: PublishPacket) -> tuple[tuple[str, str], ...]:
    return tuple(packet.user_properties)
