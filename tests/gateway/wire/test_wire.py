"""The gateway's packets against an independent codec, and what each mistake is called."""

import mqtt5
import pytest

from federator.gateway import wire
from federator.gateway.wire import V5, V31, V311, Kind, Property, Reason
from federator.gateway.wire.fields import write_packet

LIMIT = 10_000


def split(data, firsts=wire.FROM_CLIENT, *, version=None):
    splitter = wire.Splitter(limit=LIMIT, firsts=firsts)
    if version is not None:
        splitter.speak(version)
    block, packets = splitter.feed(data)
    if splitter.fault is not None:
        raise splitter.fault
    return block, packets


def parts(packet):
    """A whole packet as the readers take it."""
    return packet, wire.only(packet)


FULL_CONNECT = wire.Connect(
    V5,
    "grüße",
    clean=True,
    keep_alive=30,
    will=wire.Will(
        "a/b",
        b"\0\xff",
        2,
        True,
        ((Property.WILL_DELAY, 7), (Property.USER_PROPERTY, ("k", "v"))),
    ),
    username="u",
    password=b"p\0",
    properties=(
        (Property.SESSION_EXPIRY, 90),
        (Property.RECEIVE_MAXIMUM, 5),
        (Property.USER_PROPERTY, ("a", "b")),
        (Property.USER_PROPERTY, ("a", "b")),
    ),
)


def test_a_connect_of_version_5_is_what_the_independent_codec_reads_and_comes_back():
    packet = wire.write_connect(FULL_CONNECT)

    theirs, size = mqtt5.read(packet)

    assert size == len(packet)
    assert isinstance(theirs, mqtt5.ConnectPacket)
    assert (theirs.client_id, theirs.username, theirs.password) == ("grüße", "u", b"p\0")
    assert (theirs.clean_start, theirs.keep_alive, theirs.receive_max) == (True, 30, 5)
    assert theirs.session_expiry_interval == 90
    assert theirs.user_properties == [("a", "b"), ("a", "b")]
    assert theirs.will is not None
    assert (theirs.will.topic, theirs.will.payload, theirs.will.qos) == ("a/b", b"\0\xff", 2)
    assert theirs.will.retain
    assert theirs.will.will_delay_interval == 7
    assert wire.read_connect(*parts(packet)) == FULL_CONNECT
    assert wire.read_connect(*parts(theirs.write())).will == FULL_CONNECT.will


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("step", [1, 2, 3, 7, 1_000])
@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_packets_are_found_however_the_stream_is_cut(version, step, at_once):
    packets = [
        wire.write_connect(wire.Connect(version, "c", clean=True, keep_alive=0)),
        wire.write_publish("t", bytes(300), version=version, qos=1, packet_id=9),
        wire.PINGREQ,
        wire.write_request(wire.Subscribe(3, (("a/#", 1), ("b", 0))), version),
        wire.write_publish("t", b"", version=version),
    ]
    stream = b"".join(packets)
    splitter = wire.Splitter(limit=LIMIT, firsts=wire.FROM_CLIENT, at_once=at_once)

    found = []
    for at in range(0, len(stream), step):
        data = stream[at : at + step]
        while data or splitter.more:
            block, whole = splitter.feed(data)
            assert len(whole) <= at_once
            assert not splitter.more or len(block) == whole[-1][3]
            found += [block[start:end] for _, start, _, end in whole]
            data = b""

    assert found == packets
    assert splitter.held_bytes == 0


def test_what_precedes_a_malformed_packet_is_still_handed_out():
    splitter = wire.Splitter(limit=LIMIT, firsts=wire.FROM_CLIENT)

    block, packets = splitter.feed(wire.PINGREQ + b"\x00\x00" + wire.PINGREQ)

    assert [block[start:end] for _, start, _, end in packets] == [wire.PINGREQ]
    assert splitter.fault is not None
    assert splitter.fault.reason == Reason.MALFORMED_PACKET
    with pytest.raises(wire.MalformedError):
        splitter.feed(wire.PINGREQ)


def test_a_subscribe_of_version_5_is_what_the_independent_codec_reads():
    options = 1 | wire.NO_LOCAL | wire.RETAIN_AS_PUBLISHED | 0x20
    subscribe = wire.Subscribe(7, (("a/+/#", options),), ((Property.SUBSCRIPTION_ID, 300),))

    packet = wire.write_request(subscribe, V5)

    theirs, _ = mqtt5.read(packet)
    assert isinstance(theirs, mqtt5.SubscribePacket)
    (filter,) = theirs.topic_filters
    assert (theirs.packet_id, theirs.subscription_id) == (7, 300)
    assert (filter.pattern, filter.max_qos, filter.retain_handling) == ("a/+/#", 1, 2)
    assert filter.no_local
    assert filter.retain_as_published
    assert wire.read_request(*parts(packet), V5) == subscribe


def test_a_publish_of_version_5_has_the_header_the_independent_codec_wrote():
    packet = mqtt5.PublishPacket(
        "a/b",
        b"body",
        qos=mqtt5.QoS.AT_LEAST_ONCE,
        packet_id=513,
        topic_alias=4,
        user_properties=[("k", "v")],
    ).write()

    topic, packet_id, _, alias = wire.read_publish(*parts(packet), V5)

    assert (topic, packet_id, alias) == ("a/b", 513, 4)
    theirs, _ = mqtt5.read(wire.again(packet, 77, duplicate=True))
    assert isinstance(theirs, mqtt5.PublishPacket)
    assert (theirs.packet_id, theirs.duplicate, theirs.payload) == (77, True, b"body")


@pytest.mark.parametrize(
    ("reader", "body", "reason"),
    [
        (wire.read_publish, b"\x30\x00", Reason.MALFORMED_PACKET),
        (wire.read_publish, b"\x30\x04\0\1#\0", Reason.PROTOCOL_ERROR),
        (wire.read_publish, b"\x30\x04\0\1\xff\0", Reason.MALFORMED_PACKET),
        (wire.read_publish, b"\x30\x03\0\0\0", Reason.PROTOCOL_ERROR),
        (wire.read_publish, b"\x32\x06\0\1a\0\0\0", Reason.PROTOCOL_ERROR),
        (wire.read_publish, b"\x30\x07\0\1a\3\x23\0\0", Reason.TOPIC_ALIAS_INVALID),
        (wire.read_publish, b"\x30\x06\0\1a\2\x0b\1", Reason.PROTOCOL_ERROR),
        (wire.read_publish, b"\x30\x06\0\1a\2\x7f\1", Reason.MALFORMED_PACKET),
        (wire.read_publish, b"\x30\x07\0\1a\3\x13\0\1", Reason.MALFORMED_PACKET),
        (wire.read_request, b"\x82\x09\0\1\2\x0b\0\0\1a\0", Reason.MALFORMED_PACKET),
        (wire.read_publish, b"\x30\x06\0\1a\2\x01\2", Reason.PROTOCOL_ERROR),
        (wire.read_publish, b"\x30\x08\0\1a\4\1\1\1\1", Reason.PROTOCOL_ERROR),
        (wire.read_request, b"\x82\x03\0\1\0", Reason.MALFORMED_PACKET),
        (wire.read_request, b"\x82\x07\0\1\0\0\1a\3", Reason.MALFORMED_PACKET),
        (wire.read_request, b"\x82\x08\0\1\0\0\2a#\0", Reason.MALFORMED_PACKET),
        (wire.read_request, b"\x82\x07\0\0\0\0\1a\0", Reason.MALFORMED_PACKET),
        (wire.read_request, b"\xa2\x06\0\1\0\0\2a", Reason.MALFORMED_PACKET),
        (wire.read_publish, b"\x30\x06\0\3a\0b\0", Reason.MALFORMED_PACKET),
        (wire.read_publish, b"\x30\x06\0\3a\1b\0", Reason.MALFORMED_PACKET),
        (wire.read_publish, b"\x30\x06\0\3\xed\xa0\x80\0", Reason.MALFORMED_PACKET),
        (
            wire.read_publish,
            wire.write_publish("/" * 201, b"", version=V5),
            Reason.PROTOCOL_ERROR,
        ),
        (wire.read_request, b"\x82\x07\0\1\0\0\1a\x30", Reason.MALFORMED_PACKET),
        (wire.read_request, b"\x82\x10\0\1\0\0\x0a$share/g/a\4", Reason.PROTOCOL_ERROR),
        (wire.read_request, b"\x82\x0e\0\1\0\0\x08$share/g\0", Reason.MALFORMED_PACKET),
        (wire.read_ack, b"\x40\x01\1", Reason.MALFORMED_PACKET),
        (wire.read_ack, b"\x40\x02\0\0", Reason.PROTOCOL_ERROR),
        (wire.read_ack, b"\x40\x03\0\1\x01", Reason.PROTOCOL_ERROR),
        (wire.read_disconnect, b"\xe0\x01\x8e", Reason.PROTOCOL_ERROR),
    ],
)
def test_each_mistake_has_its_reason_code(reader, body, reason):
    with pytest.raises(wire.MalformedError) as caught:
        reader(*parts(body), V5)

    assert caught.value.reason == reason


def connect(flags, rest, *, level=5, name=b"\0\4MQTT"):
    """A CONNECT by hand."""
    return write_packet(Kind.CONNECT, name, bytes((level, flags)), b"\0\0", rest)


@pytest.mark.parametrize(
    ("packet", "reason", "said"),
    [
        (connect(3, b"\0\0\1c"), Reason.MALFORMED_PACKET, b""),
        (connect(0x1E, b"\0\0\1c\0\0\1w\0\0"), Reason.MALFORMED_PACKET, b""),
        (connect(0x22, b"\0\0\1c"), Reason.MALFORMED_PACKET, b""),
        (connect(6, b"\0\0\1c\0\0\1#\0\0"), Reason.PROTOCOL_ERROR, b""),
        (connect(2, b"\3\x21\0\0\0\1c"), Reason.PROTOCOL_ERROR, b""),
        (connect(2, b"\3\x16\0\0\0\1c"), Reason.PROTOCOL_ERROR, b""),
        (connect(2, b"\0\0\1c\0"), Reason.MALFORMED_PACKET, b""),
        (connect(2, b"\0\0\1c", level=6), Reason.UNSUPPORTED_VERSION, b"\x20\3\0\x84\0"),
        (connect(2, b"\0\1c", level=3), Reason.UNSUPPORTED_VERSION, b"\x20\2\0\1"),
        (connect(0x42, b"\0\1c\0\1p", level=4), Reason.MALFORMED_PACKET, b""),
        (connect(2, b"\0\0\1c", name=b"\0\4HTTP"), Reason.MALFORMED_PACKET, b""),
        (b"\x30\4\0\1a\0", Reason.PROTOCOL_ERROR, b""),
    ],
)
def test_a_refused_connect_is_told_why_in_its_own_version_unless_it_is_malformed(
    packet, reason, said
):
    with pytest.raises(wire.MalformedError) as caught:
        wire.read_connect(*parts(packet))

    assert caught.value.reason == reason
    assert wire.refusal(caught.value) == said


def test_a_packet_over_the_limit_is_refused_at_its_header():
    with pytest.raises(wire.MalformedError) as caught:
        split(b"\x30\x8f\x4e")  # 9,999 bytes and 3 of header

    assert caught.value.reason == Reason.PACKET_TOO_LARGE


def test_version_311_has_no_auth_and_its_clients_hear_their_return_codes():
    with pytest.raises(wire.MalformedError):
        split(b"\xf0\0", version=V311)
    assert split(b"\xf0\0", version=V5)[1]

    nameless = wire.Connect(V311, "", clean=False, keep_alive=0)
    with pytest.raises(wire.MalformedError) as caught:
        wire.read_connect(*parts(wire.write_connect(nameless)))
    assert wire.refusal(caught.value) == b"\x20\x02\0\2"


def test_version_31_is_spoken_with_its_own_name_and_its_repetitions():
    old = b"\x10\x0f\0\6MQIsdp\3\2\0\0\0\1c"
    again = b"\x8a\x06\0\1\0\1a\0"  # SUBSCRIBE with DUP

    connect = wire.read_connect(*parts(old))

    assert connect == wire.Connect(V31, "c", clean=True, keep_alive=0)
    assert wire.write_connect(connect) == old
    assert split(again, version=V31)[1]
    with pytest.raises(wire.MalformedError):
        split(again, version=V311)
    with pytest.raises(wire.MalformedError) as caught:
        wire.read_connect(*parts(b"\x10\x0e\0\6MQIsdp\3\2\0\0\0\0"))
    assert wire.refusal(caught.value) == b"\x20\x02\0\2"


def test_a_broker_may_answer_with_any_reason_but_a_client_may_not():
    answer = b"\x40\3\0\1\x95"  # "packet too large", as Mosquitto says it

    assert wire.read_ack(*parts(answer), V5, from_client=False) == (1, Reason.PACKET_TOO_LARGE)
    with pytest.raises(wire.MalformedError):
        wire.read_ack(*parts(answer), V5)


def test_a_version_may_be_told_again():
    splitter = wire.Splitter(limit=LIMIT, firsts=wire.FROM_CLIENT)
    for _ in range(3):
        splitter.speak(V311)

        assert len(splitter.feed(wire.PINGREQ)[1]) == 1


def test_answers_say_in_311_what_it_has_words_for():
    answer = wire.Answer(9, bytes([1, Reason.NOT_AUTHORIZED]))

    assert wire.write_answer(Kind.SUBACK, answer, V311) == b"\x90\4\0\x09\1\x80"
    assert wire.write_answer(Kind.UNSUBACK, answer, V311) == b"\xb0\2\0\x09"
    assert wire.read_answer(*parts(wire.write_answer(Kind.SUBACK, answer, V5)), V5) == answer
    assert wire.write_ack(Kind.PUBREL, 258, V311, Reason.PACKET_ID_NOT_FOUND) == b"\x62\2\1\2"
    assert wire.write_disconnect(Reason.SERVER_BUSY, V5) == b"\xe0\1\x89"
