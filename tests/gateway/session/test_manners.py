"""What a client hears through the gateway is what its broker alone would say, word for word."""

import pytest

from federator.gateway import wire
from federator.gateway.session import held_subacks
from federator.gateway.session.orders import Dismiss, LeaveBroker, State
from federator.gateway.session.session import ClientSession
from federator.gateway.session.topic_aliases import ALIASES_MAX
from federator.gateway.wire import V5, V31, V311, Kind, Property, Reason

VERSIONS = [V31, V311, V5]
BARE = wire.Connack(session_present=False, reason=0)


class Ends:
    """A session whose client and broker are bytes."""

    def __init__(self, connect=None, connack=BARE, *, version=V5, **options):
        self.session = ClientSession(connect or wire.Connect(version, "c", True, 60), **options)
        self.version = self.session.version
        self.session.join()
        self.hello = wire.read_connect(*whole(self.session.to_broker.pop()))
        self.welcome = self.broker_says(wire.write_connack(connack, self.version))

    def client_says(self, *packets):
        """What the broker hears of it."""
        self.session.from_client(*several(packets), 1)
        return taken(self.session.to_broker)

    def broker_says(self, *packets):
        """What the client hears of it."""
        self.session.from_broker(*several(packets), 1)
        self.session.catch_up(at_once=1_000)
        return taken(self.session.to_client)

    def subscribe(self, filter, packet_id=1):
        """Subscribe at QoS 1; the broker's SUBACK, which is not sent yet."""
        request = wire.Subscribe(packet_id, ((filter, 1),))
        self.client_says(wire.write_request(request, self.version))
        return wire.write_answer(Kind.SUBACK, wire.Answer(packet_id, b"\1"), self.version)

    def settled(self, token):
        """What the client hears when the agent has answered."""
        self.session.on_settled(token)
        return taken(self.session.to_client)

    def publication(self, topic, payload=b"", *, qos=1, packet_id=1, **more):
        """A PUBLISH."""
        packet_id = packet_id if qos else 0
        return wire.write_publish(
            topic, payload, version=self.version, qos=qos, packet_id=packet_id, **more
        )


def whole(packet):
    return packet, wire.only(packet)


def several(packets):
    """``packets`` in one read."""
    splitter = wire.Splitter(limit=2**30, firsts=bytes([1] * 256))
    return splitter.feed(b"".join(packets))


def taken(out):
    said = b"".join(out)
    out.clear()
    return said


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_comes_on_a_filter_comes_behind_its_suback_and_everything_else_passes(version, qos):
    ends = Ends(version=version)
    first, second = ends.subscribe("a/#", 1), ends.subscribe("#", 2)
    retained = ends.publication("a/b", b"kept", qos=qos, packet_id=1, retain=True)
    live = ends.publication("a/b", b"new", qos=qos, packet_id=2)
    other, another, last = (ends.publication("x", qos=qos, packet_id=id) for id in (3, 4, 5))

    assert ends.broker_says(first, retained, other, live) == other
    assert ends.broker_says(second, another) == b""
    assert ends.settled(2) == second + another
    assert ends.settled(1) == first + retained + live
    assert ends.broker_says(last) == last
    assert ends.session.down.plain


def test_what_waits_behind_a_suback_is_not_lost_with_its_broker():
    ends = Ends()
    suback = ends.subscribe("a")
    waits = ends.publication("a", b"only here")

    ends.broker_says(suback, waits)
    ends.session.on_broker_lost()

    assert waits[-len(b"only here") :] in taken(ends.session.to_client)
    assert ends.settled(1) == suback


def test_no_more_waits_behind_subacks_than_the_bounds_allow():
    ends = Ends()
    for packet_id in range(1, held_subacks.SUBACKS_MAX + 2):
        ends.broker_says(ends.subscribe(f"a/{packet_id}", packet_id))
    long = ends.publication("a/1", bytes(held_subacks.BYTES_MAX), qos=0)
    short = ends.publication("a/1", qos=0)
    beyond = ends.publication(f"a/{held_subacks.SUBACKS_MAX + 1}", qos=0)

    assert ends.broker_says(beyond) == beyond
    assert ends.broker_says(short) == b""
    assert ends.broker_says(long) == short + long
    assert ends.broker_says(short) == short


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("qos", "said"),
    [
        (1, [Kind.PUBREC]),
        (1, [Kind.PUBCOMP]),
        (2, [Kind.PUBACK]),
        (2, [Kind.PUBCOMP]),
        (2, [Kind.PUBREC, Kind.PUBACK]),
    ],
)
def test_a_wrong_answer_to_a_delivery_ends_the_client_and_not_its_brokers(version, qos, said):
    ends = Ends(version=version)
    ends.broker_says(ends.publication("t", qos=qos, packet_id=7))

    *good, bad = (wire.write_ack(kind, 7, version) for kind in said)
    assert ends.client_says(*good) == b"".join(good)
    with pytest.raises(wire.MalformedError) as caught:
        ends.client_says(bad)
    ends.session.refuse(caught.value)

    assert taken(ends.session.to_broker) == taken(ends.session.to_client) == b""
    assert ends.session.orders[-1] == LeaveBroker(with_will=True)


@pytest.mark.parametrize(
    ("packet", "told"),
    [
        (b"\x30\x04\0\1#\0", True),
        (b"\x82\x02\0\1", True),
        (b"\xa2\x02\0\1", True),
        (b"\x32\x00", True),
        (b"\x10\x0d\0\4MQTT\5\2\0\0\0\0\0", False),
        (b"\x40\x02\0\0", False),
        (b"\xe0\x01\x8e", False),
        (b"\xc0\x01\0", False),
    ],
)
def test_requests_that_are_wrong_have_an_answer_and_whatever_else_is_wrong_has_none(packet, told):
    ends = Ends()

    with pytest.raises(wire.MalformedError) as caught:
        ends.client_says(packet)
    ends.session.refuse(caught.value)

    said = taken(ends.session.to_client)
    assert said == (wire.write_disconnect(caught.value.reason, V5) if told else b"")
    assert ends.session.state is State.GONE


def test_a_packet_of_servers_closes_the_connection_without_a_word():
    splitter = wire.Splitter(limit=100, firsts=wire.FROM_CLIENT)
    splitter.feed(b"\x20\2\0\0")

    assert splitter.fault is not None
    assert not splitter.fault.told


def test_topic_aliases_are_resolved_for_brokers_which_never_hear_of_them():
    offers = wire.Connack(False, 0, ((Property.TOPIC_ALIAS_MAXIMUM, 2),))
    ends = Ends(connack=offers, packet_bytes_max=2**30)
    more = (Property.CONTENT_TYPE, "x")
    named, unnamed, unknown, beyond = (
        ends.publication(topic, b"p", qos=qos, properties=((Property.TOPIC_ALIAS, alias), more))
        for topic, qos, alias in (("t", 0, 2), ("", 1, 2), ("", 0, 1), ("t", 0, 3))
    )
    plain = ends.publication("t", b"p", qos=1, packet_id=9)

    heard = ends.client_says(plain, named, unnamed, plain)

    clear = [ends.publication("t", b"p", qos=qos, properties=(more,)) for qos in (0, 1)]
    assert heard == plain + b"".join(clear) + plain
    assert wire.read_connack(*whole(ends.welcome), V5) == offers
    for packet, reason in (
        (unknown, Reason.PROTOCOL_ERROR),
        (beyond, Reason.TOPIC_ALIAS_INVALID),
    ):
        with pytest.raises(wire.MalformedError) as caught:
            ends.client_says(packet)
        assert caught.value.reason == reason

    ends.session.on_broker_lost()
    ends.session.join()
    taken(ends.session.to_broker)
    ends.broker_says(wire.write_connack(BARE, V5))
    answers = b"".join(wire.write_ack(Kind.PUBACK, id, V5) for id in (1, 9))
    ends.broker_says(answers)
    taken(ends.session.to_broker)
    assert ends.client_says(unnamed) == clear[1]


def test_a_connack_is_the_brokers_but_for_what_is_narrower_here():
    usual = wire.Connack(
        False, 0, ((Property.TOPIC_ALIAS_MAXIMUM, 10), (Property.RECEIVE_MAXIMUM, 20))
    )
    same = Ends(connack=usual, packet_bytes_max=2**30)
    wide = ((Property.TOPIC_ALIAS_MAXIMUM, 99), (Property.MAXIMUM_PACKET_SIZE, 9_999))
    narrower = Ends(connack=wire.Connack(False, 0, wide), packet_bytes_max=2_000)

    assert same.welcome == wire.write_connack(usual, V5)
    assert wire.read_connack(*whole(narrower.welcome), V5).properties == (
        (Property.TOPIC_ALIAS_MAXIMUM, ALIASES_MAX),
        (Property.MAXIMUM_PACKET_SIZE, 2_000),
    )


@pytest.mark.parametrize("version", [V311, V5])
def test_a_client_without_an_id_is_named_by_its_first_broker(version):
    nameless = wire.Connect(version, "ours", True, 60, assigned=True)
    name = ((Property.ASSIGNED_CLIENT_ID, "auto-1"),) if version == V5 else ()

    ends = Ends(nameless, wire.Connack(False, 0, name))
    ends.session.on_broker_lost()
    ends.session.join()

    assert ends.hello.client_id == ""
    again = wire.read_connect(*whole(ends.session.to_broker[-1]))
    assert again.client_id == ("auto-1" if version == V5 else "ours")


def test_a_session_cannot_be_made_to_last_by_a_disconnect():
    ends = Ends()
    properties = ((Property.SESSION_EXPIRY, 1),)

    assert ends.client_says(wire.write_disconnect(0, V5, properties)) == b""

    assert taken(ends.session.to_client) == wire.write_disconnect(Reason.PROTOCOL_ERROR, V5)
    assert isinstance(ends.session.orders[0], Dismiss)
    lasting = wire.Connect(V5, "c", True, 60, properties=properties)
    bye = wire.write_disconnect(0, V5, ((Property.SESSION_EXPIRY, 9),))
    assert Ends(lasting).client_says(bye) == bye


def test_a_client_is_sent_nothing_longer_than_it_takes():
    connect = wire.Connect(V5, "c", True, 60, properties=((Property.MAXIMUM_PACKET_SIZE, 2),))
    session = ClientSession(connect)

    session.dismiss(Reason.SERVER_BUSY, "nobody has it")

    assert session.to_client == []
    assert session.state is State.GONE
