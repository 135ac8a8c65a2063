"""A session between a client and brokers that die at any moment."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.gateway import wire
from federator.gateway.session.orders import LeaveBroker, State
from federator.gateway.session.session import ClientSession
from federator.gateway.wire import V5, V311
from tests.gateway.world import World

versions = st.sampled_from([V311, V5])

sizes = st.sampled_from([None, None, None, 3, 17])
"""Most reads bring everything; some end inside a packet."""

steps = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from([0, 1, 1, 2, 2])),
    st.tuples(st.just("from_client"), sizes),
    st.tuples(st.just("broker_reads"), sizes),
    st.tuples(st.just("from_broker"), sizes),
    st.tuples(st.just("client_reads"), sizes),
    st.tuples(st.just("client_answers"), st.just(0)),
    st.tuples(st.just("deliver"), st.sampled_from([0, 1, 2, 2])),
    st.tuples(st.just("up"), st.just(0)),
    st.tuples(st.just("down"), st.just(0)),
    st.tuples(st.just("mark"), st.just(0)),
    st.tuples(st.just("custody"), st.just(0)),
    st.tuples(st.just("ping"), st.just(0)),
    st.tuples(st.just("roll_call"), st.just(0)),
    st.tuples(st.just("kill"), st.just(0)),
)
stories = st.lists(steps, min_size=8, max_size=50)


def play(world, story):
    """Do what the steps say; return what the client published by QoS, and its pings."""
    published, pings, delivered = {0: [], 1: [], 2: []}, 0, 0
    for what, number in story:
        match what:
            case "publish":
                if (payload := world.client.publish("t", number)) is not None:
                    published[number].append(payload)
            case "from_client":
                world.from_client(number)
            case "broker_reads":
                world.broker.read(number)
            case "from_broker":
                world.from_broker(number)
            case "client_reads":
                world.client.read(number)
            case "client_answers":
                world.client.answer()
            case "deliver":
                delivered += 1
                world.broker.deliver("d", b"d%d" % delivered, number)
            case "up":
                world.from_client()
                world.broker.read()
            case "down":
                world.from_broker()
                world.client.read()
            case "mark":
                world.send_mark()
            case "custody":
                world.take_custody()
            case "ping":
                world.client.outward.bytes += wire.PINGREQ
                pings += 1
            case "roll_call":
                world.session.subscribe_again()
                world.flush()
            case "kill":
                world.kill()
    return published, pings


@settings(max_examples=400, deadline=None)
@given(versions, stories)
def test_nothing_acknowledged_is_lost_whenever_brokers_die(version, story):
    world = World(version, subscribes=("d",))

    published, pings = play(world, story)
    world.settle()

    assert world.live
    assert world.client.acknowledged == {*published[1], *published[2]}
    assert world.client.acknowledged <= set(world.safe)
    assert world.client.pongs == pings
    assert not world.client.dismissed


@settings(max_examples=400, deadline=None)
@given(versions, stories)
def test_a_publication_is_handed_over_twice_only_if_a_broker_died_that_may_have_lost_it(
    version, story
):
    world = World(version)

    published, _ = play(world, story)
    world.settle()

    for payload in (*published[1], *published[2]):
        holders = [broker for broker in world.brokers if payload in broker.handed]
        for broker in holders:
            assert broker.handed.count(payload) == 1
        assert all(broker is not world.broker for broker in holders[:-1])
    if all(what != "kill" for what, _ in story):
        assert all(count == 1 for count in world.safe.values())


@settings(max_examples=300, deadline=None)
@given(versions, stories)
def test_what_an_agent_has_is_not_published_again(version, story):
    world = World(version)
    play(world, story)
    world.settle()
    world.send_mark()
    world.take_custody()
    first = world.broker

    world.kill()
    world.settle()

    assert not set(first.handed) & set(world.broker.handed)


@settings(max_examples=400, deadline=None)
@given(versions, stories)
def test_a_client_gets_every_delivery_that_reached_the_gateway_once(version, story):
    world = World(version, subscribes=("d",))
    # The models assert that ids in use are not used again and answers belong to questions.

    play(world, story)
    world.settle()

    assert all(count == 1 for count in world.client.came.values())
    assert not world.client.unfinished
    numbers = [int(payload[1:]) for payload in world.client.order]
    assert numbers == sorted(numbers)


def test_a_client_is_never_given_more_at_once_than_it_takes():
    connect = wire.Connect(V5, "c", True, 60, properties=((0x21, 2),))
    session = ClientSession(connect)
    session.join()
    welcome = wire.write_connack(wire.Connack(session_present=False, reason=0), V5)
    session.from_broker(welcome, [wire.only(welcome)], 0)
    session.to_client.clear()

    session.give([wire.write_publish("d", b"x", version=V5, qos=1, packet_id=1)] * 5, 0)

    assert len(session.to_client) == 2
    _, id_at = wire.publish_id(session.to_client[0], wire.only(session.to_client[0]))
    answer = b"\x40\x02" + session.to_client[0][id_at : id_at + 2]
    session.from_client(answer, [wire.only(answer)], 0)
    assert len(session.to_client) == 3


def test_the_will_of_a_client_that_vanishes_without_a_broker_is_published_by_the_next():
    will = wire.Will("w", b"gone", 1, False)
    session = ClientSession(wire.Connect(V311, "c", True, 60, will))
    welcome = wire.write_connack(wire.Connack(session_present=False, reason=0), V311)
    session.join()
    session.from_broker(welcome, [wire.only(welcome)], 0)
    session.on_broker_lost()
    session.orders.clear()

    session.on_client_lost()
    assert session.will_only
    session.join()
    assert wire.read_connect(session.to_broker[-1], wire.only(session.to_broker[-1])).will == will
    session.from_broker(welcome, [wire.only(welcome)], 0)

    assert session.orders == [LeaveBroker(with_will=True)]
    assert session.state is State.GONE


def test_a_client_that_said_goodbye_while_it_had_no_broker_leaves_no_will():
    session = ClientSession(wire.Connect(V311, "c", True, 60, wire.Will("w", b"gone", 1, False)))
    welcome = wire.write_connack(wire.Connack(session_present=False, reason=0), V311)
    session.join()
    session.from_broker(welcome, [wire.only(welcome)], 0)
    session.on_broker_lost()
    session.orders.clear()

    session.from_client(b"\xe0\0", [wire.only(b"\xe0\0")], 0)

    assert session.orders == [LeaveBroker(with_will=False)]


@pytest.mark.parametrize("leaves", [False, True])
def test_what_waited_for_a_broker_passes_a_part_at_a_time_and_in_order(leaves):
    session = ClientSession(wire.Connect(V311, "c", True, 60))
    said = [wire.write_publish("t", b"%d" % number, version=V311) for number in range(250)]
    more = wire.write_disconnect(0, V311) if leaves else said.pop()
    for packet in said:
        session.from_client(packet, [wire.only(packet)], 0)
    welcome = wire.write_connack(wire.Connack(session_present=False, reason=0), V311)
    session.join()
    session.to_broker.clear()

    session.from_broker(welcome, [wire.only(welcome)], 0)
    session.from_client(more, [wire.only(more)], 0)

    assert session.to_broker == []
    parts = []
    while session.catching_up:
        session.catch_up(at_once=100)
        parts.append(len(session.to_broker))
    assert parts == [100, 200, len(said) + 1]
    assert session.to_broker == [*said, more]
    assert (session.state is State.GONE) == leaves
