"""The simulated broker behaves as Mosquitto was measured to; the ledger sees what goes wrong."""

import pytest

from federator.protocol.types import BrokerId
from lab.sim.agenda import Agenda
from lab.sim.messages.brokers import MessageBroker
from lab.sim.messages.ledger import Ledger
from lab.sim.messages.sessions import IN_FLIGHT_MAX, Message
from lab.sim.parts import InvariantError
from lab.sim.plan import BrokerPlan

HERE, THERE = BrokerId(1), BrokerId(2)
TOPIC = "a/b"


class Book(Ledger):
    """A ledger that counts what was dropped."""

    drops = 0

    def dropped(self, client_id, message) -> None:
        self.drops += 1
        super().dropped(client_id, message)


class Edge:
    """A broker with one client, ``c``, that does not acknowledge by itself."""

    def __init__(self, *, qos: int = 1, **plan) -> None:
        self.agenda = Agenda()
        self.ledger = Book({"c": HERE}, life_of=lambda _: 1, published=[])
        self.broker = MessageBroker(HERE, BrokerPlan(**plan), self.agenda, self.ledger)
        self.got: list[tuple[int, Message]] = []
        self.connect()
        self.broker.subscribe(self.session, {TOPIC: qos})

    def connect(self) -> bool:
        self.session, present = self.broker.connect("c", self.take, clean=False, persistent=True)
        return present

    def take(self, session, connection, packet_id, message) -> None:
        self.got.append((packet_id, message))
        self.ledger.received("c", message)

    def publish(self, qos: int = 1) -> int:
        now_ms = self.agenda.now_ms
        number = self.ledger.publish("p", THERE, TOPIC, qos, now_ms=now_ms).number
        self.broker.publish("p", Message(TOPIC, qos, number))
        return number

    def later(self) -> list[int]:
        self.agenda.run_until(self.agenda.now_ms + 100)
        return [message.number for _, message in self.got]


def test_twenty_are_in_flight_a_bounded_number_waits_and_the_rest_is_dropped():
    edge = Edge(queued_max=5)

    numbers = [edge.publish() for _ in range(IN_FLIGHT_MAX + 8)]

    assert edge.later() == numbers[:IN_FLIGHT_MAX]
    assert edge.ledger.drops == 3
    for packet_id, _ in list(edge.got):
        edge.broker.acknowledge(edge.session, edge.session.connection, packet_id)
    assert edge.later() == numbers[: IN_FLIGHT_MAX + 5]


def test_what_was_not_acknowledged_comes_again_and_qos_0_waits_for_nobody():
    edge = Edge()
    first = edge.publish()
    edge.later()
    edge.broker.disconnect(edge.session, edge.session.connection, orderly=False)
    edge.publish(qos=0)
    second = edge.publish()

    assert edge.connect()
    assert edge.later() == [first, first, second]


@pytest.mark.parametrize(("persistent", "kept"), [(True, True), (False, False)])
def test_a_kill_loses_what_was_not_saved(persistent: bool, kept: bool):
    edge = Edge(persistent=persistent, autosave_ms=50)
    edge.publish()
    edge.later()
    edge.broker.stop()
    edge.broker.start()

    assert edge.connect() is kept


def test_a_second_copy_is_seen_unless_it_is_tolerated():
    edge = Edge()
    number = edge.publish()
    with pytest.raises(InvariantError, match="once_per_subscriber"):
        edge.broker.publish("p", Message(TOPIC, 1, number))

    edge.ledger.tolerate(number)
    edge.broker.publish("p", Message(TOPIC, 1, number))


def test_what_overtakes_is_seen():
    edge = Edge()
    early, late = (edge.ledger.publish("p", THERE, TOPIC, 1, now_ms=0) for _ in range(2))
    edge.broker.publish("p", Message(TOPIC, 1, late.number))
    edge.broker.publish("p", Message(TOPIC, 1, early.number))

    with pytest.raises(InvariantError, match="in_order"):
        edge.later()


def test_what_was_promised_is_owed_until_it_is_received_excused_or_given_up():
    edge = Edge()
    edge.ledger.promise("c", {TOPIC: 1})
    numbers = [edge.ledger.publish("p", THERE, TOPIC, 1, now_ms=0).number for _ in range(3)]
    owed = lambda: len(edge.ledger.outstanding(lambda one, other: True))  # noqa: E731
    assert owed() == 3
    assert edge.ledger.owed_elsewhere(numbers[0])

    edge.ledger.received("c", Message(TOPIC, 1, numbers[0]))
    assert owed() == 2
    edge.ledger.excuse(numbers[1], "overflow")
    assert owed() == 1
    edge.ledger.withdraw("c")
    assert owed() == 0


def test_nothing_comes_under_another_topic_or_at_a_higher_qos():
    edge = Edge(qos=1)
    number = edge.ledger.publish("p", THERE, TOPIC, 0, now_ms=0).number

    with pytest.raises(InvariantError, match="as_published"):
        edge.broker.publish("p", Message(TOPIC, 1, number))
