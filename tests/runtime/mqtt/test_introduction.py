"""What a client says of itself at the start of each connection."""

import mqtt5
import pytest

from federator.runtime.mqtt.connection import Introduction
from federator.runtime.mqtt.wire import read_packets


def introduction(**changed):
    usual = {
        "client_id": "me",
        "clean_start": True,
        "session_expiry_s": 0,
        "keep_alive_s": 10,
        "will": None,
        "packet_bytes_max": 1_000,
    }
    return Introduction(**{**usual, **changed})


def read(packet):
    read_packets(memoryview(packet), [], packets := [])
    (connect,) = packets
    return connect


@pytest.mark.parametrize(
    ("clean_start", "session_expiry_s", "starts_clean", "wipes"),
    [(True, 0, True, False), (True, 60, False, True), (False, 60, False, False)],
)
def test_a_session_that_is_new_and_stays_is_wiped_and_not_begun_with_a_clean_start(
    clean_start, session_expiry_s, starts_clean, wipes
):
    us = introduction(clean_start=clean_start, session_expiry_s=session_expiry_s)

    connect = read(us.connect())

    assert (connect.clean_start, us.must_wipe) == (starts_clean, wipes)
    assert connect.session_expiry_interval == session_expiry_s


def test_who_comes_to_wipe_leaves_no_session_and_no_will():
    will = mqtt5.Will(topic="gone", payload=b"")
    us = introduction(session_expiry_s=60, will=will, username="u", password=b"p")

    connect = read(us.connect(to_wipe=True))

    assert connect.clean_start
    assert (connect.session_expiry_interval, connect.will) == (0, None)
    assert (connect.client_id, connect.username, connect.password) == ("me", "u", b"p")


def test_a_will_that_changes_is_asked_for_at_each_connection():
    wills = iter(
        [mqtt5.Will(topic="gone", payload=b"1"), mqtt5.Will(topic="gone", payload=b"2"), None]
    )
    us = introduction(will=lambda: next(wills))

    said = [read(us.connect()).will for _ in range(3)]

    assert [will and will.payload for will in said] == [b"1", b"2", None]


def test_a_password_is_not_shown():
    assert "secret" not in repr(introduction(username="u", password=b"secret"))
