"""Only what we did ourselves proves that a log topic is switched on."""

import mqtt5
import pytest

from federator.protocol.discovery.log_lines import (
    NOTICE_TOPIC,
    SUBSCRIBE_TOPIC,
    UNSUBSCRIBE_TOPIC,
)
from federator.runtime.doctor.doctor import Received
from federator.runtime.doctor.log_kinds import LOG_KINDS

CONTROL, DATA = "$fed/fed/doctor/ab", "federator-doctor/ab"


@pytest.fixture
def received() -> Received:
    return Received(
        client_id="federator-1-doctor", guest_id="federator-1-guest", topics=(CONTROL, DATA)
    )


def line(topic: str, text: bytes) -> mqtt5.PublishPacket:
    return mqtt5.PublishPacket(topic, payload=text)


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (SUBSCRIBE_TOPIC, b"1700000000: somebody 0 a/b"),
        (SUBSCRIBE_TOPIC, f"1700000000: somebody 0 {CONTROL}".encode()),
        (SUBSCRIBE_TOPIC, b"1700000000: federator-1-doctor 0 a/b"),
        (UNSUBSCRIBE_TOPIC, b"somebody a/b"),
        (NOTICE_TOPIC, b"New client connected from 127.0.0.1:1 as somebody (p2, c1, k60)."),
        (NOTICE_TOPIC, b"\xff\xfe"),
    ],
)
def test_what_others_did_proves_nothing(topic, text, received):
    received.note(line(topic, text))

    assert received.logs == set()


def test_what_we_did_is_recognised_in_every_dialect(received):
    received.note(line(SUBSCRIBE_TOPIC, f"federator-1-doctor 0 {CONTROL}".encode()))
    received.note(
        line(UNSUBSCRIBE_TOPIC, f"2026-01-01T00:00:00: federator-1-doctor {CONTROL}".encode())
    )
    assert received.logs == {"subscribe", "unsubscribe"}
    received.note(
        line(NOTICE_TOPIC, b"New client connected from [::1]:1 as federator-1-guest (p5).")
    )

    assert received.logs == set(LOG_KINDS)
