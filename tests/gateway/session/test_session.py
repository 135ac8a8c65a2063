"""A session between a client and brokers that die at any moment."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.gateway import wire
from federator.gateway.session.orders import Dismiss, FindBroker, LeaveBroker, State
from federator.gateway.session.session import ClientSession
from federator.gateway.wire import V5, V311, Kind, Reason
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


def test_a_client_hears_of_a_qos_2_publication_once_though_two_brokers_say_it():
    world = World(V5)
    world.client.publish("t", 2)
    world.from_client()
    world.broker.read()
    world.from_broker()
    world.client.read()  # PUBREC; its PUBREL is on its way

    world.kill()
    for _ in range(3):
        world.broker.read()
        world.from_broker()
        world.client.read()  # the model refuses a second PUBREC
    assert not world.client.acknowledged
    world.settle()

    assert world.client.acknowledged == {b"0"}
    assert world.broker.handed == [b"0"]


def test_a_client_that_waits_for_a_pubrel_of_a_dead_broker_gets_it():
    world = World(V311, subscribes=("d",))
    world.broker.deliver("d", b"d1", 2)
    world.from_broker()
    world.client.read()
    world.client.answer()
    world.from_client()
    assert world.client.unfinished == 1

    world.kill()
    world.client.read()
    world.client.answer()

    assert not world.client.unfinished


def test_subscriptions_are_made_again_with_their_options_and_without_retained_values():
    world = World(V5)
    request = wire.Subscribe(7, (("a/+", 0x09), ("$share/g/b", 2)), ((0x0B, 5),))
    world.client.outward.bytes += wire.write_request(request, V5)
    world.settle()

    world.kill()
    world.settle()

    assert world.broker.filters == {"a/+": 0x29, "$share/g/b": 0x22}


def test_what_the_client_unsubscribed_is_not_subscribed_again():
    world = World(V5, subscribes=("a", "b"))
    session = world.session
    packet = wire.write_request(wire.Unsubscribe(9, ("a",)), V5)
    session.from_client(packet, [wire.only(packet)], 0)
    answer = wire.write_answer(Kind.UNSUBACK, wire.Answer(9, b"\0"), V5)
    session.to_broker.clear()
    session.from_broker(answer, [wire.only(answer)], 0)

    world.kill()
    world.settle()

    assert set(world.broker.filters) == {"b"}


def test_a_subscription_the_dead_broker_did_not_answer_is_answered_by_the_next():
    world = World(V311)
    request = wire.Subscribe(3, (("x", 1),))
    world.client.outward.bytes += wire.write_request(request, V311)
    world.from_client()

    world.kill()
    world.settle()

    assert set(world.session.subscriptions.granted) == {"x"}
    assert world.broker.filters == {"x": 1}


def test_retained_values_that_our_own_request_brings_are_kept_from_a_client_of_3_1_1():
    world = World(V311, subscribes=("d",))
    world.kill()
    world.broker.read()

    world.broker.deliver("d", b"old", 1, retain=True)
    world.broker.deliver("d", b"older", 2, retain=True)
    world.broker.deliver("d", b"new", 1)
    world.settle()

    assert world.client.order == [b"new"]


@pytest.mark.parametrize("version", [V311, V5])
def test_a_roll_call_shows_the_broker_all_subscriptions_and_the_client_nothing(version):
    world = World(version, subscribes=("d", "e/+"))
    world.broker.filters.clear()

    assert world.session.subscribe_again() == 2
    assert world.session.subscribe_again() == 0, "the answer is on its way"
    world.flush()
    world.broker.read()
    if version is V311:  # the others say that they want none
        world.broker.deliver("d", b"old", 1, retain=True)
    world.broker.deliver("d", b"new", 1)
    world.settle()

    options = 0x22 if version is V5 else 2
    assert world.broker.filters == {"d": options, "e/+": options}
    assert world.client.order == [b"new"]


def test_a_broker_that_refuses_at_a_roll_call_what_it_once_granted_changes_nothing():
    world = World(V5, subscribes=("d",))
    session = world.session
    session.subscribe_again()
    request = session.to_broker.pop()
    packet_id = wire.read_request(request, wire.only(request), V5).packet_id

    refusal = wire.write_answer(Kind.SUBACK, wire.Answer(packet_id, b"\x87"), V5)
    session.from_broker(refusal, [wire.only(refusal)], 0)

    assert session.state is State.LIVE
    assert not session.to_client
    assert set(session.subscriptions.granted) == {"d"}


def test_a_client_of_3_1_1_gets_the_retained_values_it_asks_for_after_a_move():
    world = World(V311, subscribes=("d",))
    world.kill()
    world.settle()
    request = wire.Subscribe(4, (("e", 1),))
    world.client.outward.bytes += wire.write_request(request, V311)
    world.from_client()

    world.broker.deliver("e", b"value", 1, retain=True)
    world.settle()

    assert world.client.order == [b"value"]


def test_what_was_missed_comes_before_what_the_new_broker_gives():
    world = World(V5, subscribes=("d",))
    missed = wire.write_publish("d", b"d1", version=V5, qos=1, packet_id=1)
    world.missed = lambda: [missed]
    world.kill()
    world.broker.read()
    world.broker.deliver("d", b"d2", 1)

    world.settle()

    assert world.client.order == [b"d1", b"d2"]


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


def test_a_broker_that_grants_less_than_the_last_ends_the_session_with_a_word():
    world = World(V5, subscribes=("d",))
    world.kill()
    world.broker.read()
    world.from_broker()
    world.broker.read()
    world.broker.outward.bytes = world.broker.outward.bytes[:-1] + b"\x87"

    world.from_broker()
    world.client.read()

    assert world.client.dismissed
    assert world.session.state is State.GONE
    assert Dismiss in map(type, world.orders)


@pytest.mark.parametrize(
    ("reason", "elsewhere"),
    [(Reason.SERVER_SHUTTING_DOWN, True), (Reason.SESSION_TAKEN_OVER, False)],
)
def test_a_broker_that_stops_is_left_and_one_that_throws_the_client_out_is_believed(
    reason, elsewhere
):
    world = World(V5)
    world.broker.outward.bytes += wire.write_disconnect(reason, V5)

    world.from_broker()
    world.client.read()

    assert (FindBroker(refused=False) in world.orders) == elsewhere
    assert world.client.dismissed != elsewhere


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


def test_a_topic_alias_is_refused_for_none_was_offered():
    world = World(V5)
    packet = wire.write_publish("t", b"", version=V5, properties=((0x23, 1),))

    with pytest.raises(wire.MalformedError) as refused:
        world.session.from_client(packet, [wire.only(packet)], 0)

    assert refused.value.reason == Reason.TOPIC_ALIAS_INVALID


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
