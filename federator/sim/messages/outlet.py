"""The process around custody: connections out, writes that a crash may come between.

A process can be **doomed**: killed between two of its writes, not between two events. From there on
nothing that it does leaves it.
"""

from collections.abc import Callable

from federator.protocol.custody import Custodian
from federator.protocol.effects import Notice
from federator.protocol.forwarding import Sends
from federator.protocol.frames import Frame
from federator.protocol.messages import RepairRequest
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.sim.agenda import Agenda
from federator.sim.agents import Agent
from federator.sim.data import publications_of
from federator.sim.messages.brokers import MessageBroker
from federator.sim.messages.ledger import Ledger
from federator.sim.messages.outbox import Outbox
from federator.sim.messages.sessions import Message, Session, data_client_id
from federator.sim.messages.surroundings import Surroundings

FED = "$fed/fed/"
DATA_TOPIC = FED + "data"


class CustodyOutlet:
    """What ``Custodian`` needs, for one running agent.

    Args:
        agent: The process.
        broker: Its own broker.
        agenda: The clock.
        ledger: Told what may be lost or repeated.
        world: What is around.

    Attributes:
        custodian: Whose outlet it is; set by who makes both.
        crash_after: Steps after which the process is doomed; ``None``: it is not to be.
        doomed: It was killed; the world has not noticed yet.
        noted: The journal has what is delivered next.
    """

    custodian: Custodian

    def __init__(
        self,
        agent: Agent,
        broker: MessageBroker,
        agenda: Agenda,
        ledger: Ledger,
        world: Surroundings,
    ) -> None:
        self.crash_after: int | None = None
        self.doomed = False
        self.noted = True
        self.marker_topic = f"{FED}delivered/{agent.id}"
        self.outbox = Outbox(data_client_id(agent.id), broker, agenda, ledger, self._run)
        self._agent = agent
        self._broker = broker
        self._agenda = agenda
        self._ledger = ledger
        self._world = world
        self._data: tuple[Session, int] | None = None
        self._wake_at_ms: Millis | None = None

    def up(self, session: Session, connection: int) -> None:
        """The data connection is up."""
        self._data = session, connection
        self.outbox.up()

    def down(self) -> None:
        """It is gone."""
        self._data = None
        self.outbox.down()

    def process_ends(self) -> None:
        """The process is gone, orderly or not."""
        self.down()
        self.outbox.process_dies()

    def step(self) -> None:
        """One more thing is done that a crash may come after."""
        if self.crash_after is None or self.doomed:
            return
        self.crash_after -= 1
        if self.crash_after <= 0:
            self.doomed = True
            self.outbox.process_dies()
            self._world.doom(self._agent)

    # To our broker

    @property
    def room(self) -> bool:
        """Our broker can take something."""
        return self.outbox.room

    def acknowledge(self, taken: list[tuple[int, int]]) -> None:
        """Tell our broker that it need not keep publications: (packet id, number)."""
        if self._data is None or self.doomed:
            return
        session, connection = self._data
        for packet_id, number in taken:
            self._world.acknowledging(self._agent, number)
            self._broker.acknowledge(session, connection, packet_id)

    @property
    def settled(self) -> bool:
        """Our broker has acknowledged all that we published."""
        return self.outbox.connected and self.outbox.idle

    def deliver(self, frame: Frame) -> None:
        """Publish a frame on our broker."""
        if self.doomed:
            return
        messages = [Message(topic, qos, number) for number, topic, qos in publications_of(frame)]
        for message in messages:
            self._world.delivering(self._agent, message.number, message.topic)
            if not self.noted:
                self._ledger.tolerate_at(self._agent.id, message.number)
        self.outbox.offer(messages)

    def mark(self, marker: bytes) -> None:
        """Have our broker keep ``marker`` behind all that we published."""
        if not self.doomed:
            self.outbox.offer([Message(self.marker_topic, 1, payload=marker, retain=True)])
            self.step()

    # To the neighbours

    def send_copies(self, frame: Frame, sends: Sends, body: bytes) -> int:
        """Send copies of a frame of ours to next hops."""
        if not self.doomed:
            self._world.send_own(self._agent, frame, sends)
        return len(sends)

    def send_repair(self, neighbour: BrokerId, frame: Frame) -> bool:
        """Send a repair to a neighbour; whether it was taken."""
        return not self.doomed and self._world.send_repair(self._agent, neighbour, frame)

    def ask(self, neighbour: BrokerId, request: RepairRequest) -> None:
        """Send a request to a neighbour."""
        if not self.doomed:
            self._world.send_request(self._agent, neighbour, request)

    def number(self) -> tuple[Epoch, int]:
        """Epoch and number for a frame that is not under custody."""
        return self._agent.data.number()

    # Within

    def too_old(self, numbers: list[int]) -> None:
        """The log had no room any more for these publications."""
        self._world.too_old(numbers)

    def tell(self, notice: Notice) -> None:
        """Tell the operator."""
        self._world.noticed(notice.name)

    def wake(self, at_ms: Millis) -> None:
        """Call ``on_time`` at this instant of our monotonic clock; earlier wishes are void."""
        self._wake_at_ms = at_ms
        self._agenda.at(at_ms - self._agent.clock_offset_ms, self._run, self._on_time, at_ms)

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call it then, if we live."""
        self._agenda.at(self._agenda.now_ms + delay_ms, self._run, call)

    def _on_time(self, at_ms: Millis) -> None:
        if self._wake_at_ms == at_ms:
            self._wake_at_ms = None
            self.custodian.on_time()

    def _run(self, call: Callable[..., None], *args: object) -> None:
        if not self.doomed:
            self._world.run(self._agent, call, *args)
