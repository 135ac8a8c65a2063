"""Names of brokers: told to all, held to what harms nobody, and decided by nowhere."""

import msgspec
import pytest

from federator.protocol.messages.broker_names import NAME_BYTES_MAX, named, objection_to
from federator.protocol.messages.codec import decode, encode
from federator.protocol.messages.control import CoreAnn
from federator.protocol.messages.session_records import BrokerRecord, encode_record, parse_record
from federator.protocol.node import Identity, Node
from tests.protocol.controller.brokers import GONE_MS, Brokers
from tests.protocol.network import PARAMETERS

LINE = [(1, 2), (2, 3)]
NO_NAMES = {
    "a terminal's escape": "hall\x1b[2Jx",
    "a line end": "hall\n7",
    "what turns the text around": "hall\u202e3",
    "what is not seen": "hall\u200b",
    "one byte too many": "h" * (NAME_BYTES_MAX + 1),
    "too many bytes in few characters": "\u20ac" * 22,
    "a space before": " hall",
}


@pytest.fixture
def line():
    """Three brokers in a row, of which the first two bear one name."""
    brokers = Brokers(LINE)
    rename(brokers, 1, "hall")
    rename(brokers, 2, "hall")
    brokers.run(5_000)
    return brokers


def rename(brokers, id, name):
    """Its agent starts anew with this name."""
    epoch = brokers.nodes[id].links.epoch + 1
    brokers.nodes[id] = Node(Identity(id, epoch, f"b{id}", name=name), PARAMETERS)
    brokers.say(id)
    brokers.revive(id)


def names(brokers, at):
    return brokers.nodes[at].failover.names()


def test_names_are_told_to_all_and_two_brokers_may_share_one(line):
    assert [names(line, id) for id in (1, 2, 3)] == [{1: "hall", 2: "hall"}] * 3
    assert named(2, "hall") == "hall (2)"
    assert named(3, "") == "3"


def test_a_broker_that_is_gone_keeps_its_name(line):
    line.kill(1)
    line.run(GONE_MS)

    assert line.state(3, 1) == "gone"
    assert names(line, 3) == {1: "hall", 2: "hall"}


def test_nothing_is_decided_by_a_name(line):
    plain = Brokers(LINE)
    plain.run(5_000)

    assert line.controllers() == plain.controllers() == {1}
    for id in (1, 2, 3):
        assert [b.substitutes for b in line.guides[id].brokers] == [
            b.substitutes for b in plain.guides[id].brokers
        ]


@pytest.mark.parametrize("name", NO_NAMES.values(), ids=NO_NAMES)
def test_what_is_no_name_is_dropped_and_counted_and_the_rest_of_the_record_is_taken(line, name):
    assert objection_to(name)
    line.states[1] = BrokerRecord(address="elsewhere")

    rename(line, 1, name)
    line.run(3_000)

    told = line.nodes[3].failover
    assert told.presence.known[1].record.address == "elsewhere"
    assert told.presence.names_refused >= 1
    assert told.names() == {2: "hall"}


def test_agents_of_before_read_a_record_with_a_name_and_we_read_theirs():
    class Former(msgspec.Struct, frozen=True, array_like=True):
        draining: bool
        clients: int
        load: int
        address: str
        links: tuple[int, ...]
        orphans: tuple[int, ...]
        missed: tuple[int, ...]
        other_term: int

    text = encode_record(BrokerRecord(address="b1", links=(2,), name="hall-3"))
    former = msgspec.json.decode(text.split("/", 3)[3], type=Former)
    assert former.address == "b1"

    before = text[: text.index("[")] + msgspec.json.encode(former).decode()
    assert parse_record(before) == BrokerRecord(address="b1", links=(2,))
    ann = CoreAnn(1, 1, 0, 1, 1, 0, False, (text, before), (), 0, 2)
    assert decode("core_ann", encode(ann)) == ann
