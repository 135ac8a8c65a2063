"""What waited in a log arrives with what is left of its expiry interval, or not at all."""

from dataclasses import dataclass

import mqtt5
from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PublishPacket, QoS

from federator.protocol.forwarding.expiry import age_expiry
from federator.protocol.forwarding.publications import RunChecker

MAX_S = 2**32 - 1
_TEXT = st.text("ab é", max_size=4)


@dataclass(frozen=True)
class Other:
    """Properties that stand before or behind the expiry interval, whatever the order."""

    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None
    user_properties: list[tuple[str, str]]
    payload_format_indicator: int


others = st.builds(
    Other,
    content_type=st.one_of(st.none(), _TEXT),
    response_topic=st.one_of(st.none(), st.just("back/to")),
    # Bytes that look like an expiry interval must not be taken for one.
    correlation_data=st.one_of(st.none(), st.just(b"\x02\0\0\0\1"), st.binary(max_size=200)),
    user_properties=st.lists(st.tuples(_TEXT, _TEXT), max_size=3),
    payload_format_indicator=st.integers(0, 1),
)
intervals = st.one_of(st.none(), st.integers(0, 30), st.just(MAX_S))


def packet(expiry_s, other, qos):
    return PublishPacket(
        "t",
        b"\x02\0\0\0\1",
        qos=QoS(qos),
        packet_id=7,
        message_expiry_interval=expiry_s,
        payload_format_indicator=other.payload_format_indicator,
        content_type=other.content_type,
        response_topic=other.response_topic,
        correlation_data=other.correlation_data,
        user_properties=other.user_properties,
    ).write()


@given(
    run=st.lists(st.tuples(intervals, others, st.integers(1, 2)), min_size=1, max_size=6),
    age_s=st.integers(-5, 30),
)
def test_each_publication_keeps_what_is_left_and_the_expired_ones_go(run, age_s):
    joined = b"".join(packet(*one) for one in run)
    places = RunChecker().check(joined, acknowledged=True, publications=len(run))
    aged = bytearray(joined)

    alive = age_expiry(aged, places, age_s=age_s)

    waited_s = max(0, age_s)
    wanted = b"".join(
        packet(None if expiry_s is None else expiry_s - waited_s, other, qos)
        for expiry_s, other, qos in run
        if expiry_s is None or expiry_s > waited_s or not waited_s
    )
    assert b"".join(bytes(aged[start:end]) for start, end, _, _ in alive) == wanted
    assert len(aged) == len(joined)


def test_a_packet_of_qos_0_has_no_identifier_before_its_properties():
    run = bytearray(PublishPacket("a/b", b"x", message_expiry_interval=10).write())

    alive = age_expiry(run, [(0, len(run), 7, 0)], age_s=4)

    aged, _ = mqtt5.read(memoryview(bytes(run)))
    assert isinstance(aged, PublishPacket)
    assert (aged.message_expiry_interval, alive) == (6, [(0, len(run), 7, 0)])
