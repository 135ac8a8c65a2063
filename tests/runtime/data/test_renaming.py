import mqtt5
from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PublishPacket, QoS

from federator.protocol.filters.renames import Renames
from federator.runtime.data.renaming import Renaming

DATA = "$fed/fed/data"


def renaming():
    return Renaming(Renames([("plant7/", "eu/plant7/")]), DATA)


def read(*wires):
    """One socket read."""
    chunk = memoryview(b"".join(wires))
    publishes, at = [], 0
    while at < len(chunk):
        packet, size = mqtt5.read(chunk[at:])
        publishes.append((packet, at, at + size))
        at += size
    return chunk, publishes


def topics(publishes):
    return [packet.topic for packet, _, _ in publishes]


def in_place(chunk, publishes):
    """Whether each packet is what stands at its place."""
    return all(mqtt5.read(chunk[start:end])[0].topic == p.topic for p, start, end in publishes)


def packet(topic, **properties):
    return PublishPacket(topic, b"x", **properties).write()


def test_publications_leave_under_the_federations_names_or_not_at_all():
    works = renaming()

    chunk, publishes = works.outgoing(
        *read(packet("plant7/a"), packet("other"), packet("eu/plant7/b"), packet(DATA))
    )

    assert topics(publishes) == ["eu/plant7/a", "other", DATA]
    assert in_place(chunk, publishes)
    assert works.kept == 1


def test_what_is_written_anew_bears_no_subscription_identifier():
    wire = packet("plant7/a")
    marked = PublishPacket("plant7/a", b"x", subscription_ids=[7])

    # While the cover changes, a packet says more than what stands in its place.
    chunk, publishes = renaming().outgoing(memoryview(wire), [(marked, 0, len(wire))])

    assert topics(publishes) == ["eu/plant7/a"]
    assert bytes(chunk) == packet("eu/plant7/a")


def test_what_no_rename_concerns_stays_the_same_bytes():
    works = renaming()
    chunk, publishes = read(packet("other/a"), packet("b"))

    assert works.outgoing(chunk, publishes) == (chunk, publishes)
    run = bytes(chunk)
    assert works.inward(run) is run


def test_what_arrives_gets_our_names_and_what_has_none_is_hidden():
    works = renaming()

    run = works.inward(packet("eu/plant7/a") + packet("plant7/b") + packet("c"))

    assert topics(read(run)[1]) == ["plant7/a", "c"]
    assert works.hidden == 1


def test_a_response_topic_is_renamed_with_the_request():
    works = renaming()
    request = packet("all/ask", response_topic="plant7/answer", correlation_data=b"7")

    _, ((sent, _, _),) = works.outgoing(*read(request))

    assert sent.response_topic == "eu/plant7/answer"
    assert sent.correlation_data == b"7"


@given(
    st.sampled_from([0, 1, 2]),
    st.booleans(),
    st.lists(st.tuples(st.text("ab", min_size=1), st.text("ab")), max_size=3),
    st.none() | st.integers(0, 2**32 - 1),
    st.none() | st.just("text/plain"),
    st.binary(max_size=50),
)
def test_there_and_back_no_property_is_lost(qos, retain, user_properties, expiry, kind, payload):
    works = renaming()
    original = PublishPacket(
        "plant7/a",
        payload,
        qos=QoS(qos),
        packet_id=9 if qos else None,
        retain=retain,
        message_expiry_interval=expiry,
        content_type=kind,
        response_topic="plant7/r",
        correlation_data=b"c",
        payload_format_indicator=0,
        user_properties=user_properties,
    ).write()

    chunk, _ = works.outgoing(*read(original))

    assert bytes(chunk) != original
    assert works.inward(bytes(chunk)) == original
