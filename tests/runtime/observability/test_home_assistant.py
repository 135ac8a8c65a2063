"""What Home Assistant is told: names that it takes, and text that stays text."""

from hypothesis import given
from hypothesis import strategies as st

from federator.runtime.observability.home_assistant import (
    OwnNames,
    broker_device,
    broker_state,
    link_device,
    link_state,
)
from tests.home_assistant import DevicePayload

FEDERATIONS = st.from_regex(r"\A[A-Za-z0-9_.-]{1,64}\Z")


def names(federation="fed", broker=7):
    return OwnNames("homeassistant", federation, broker, "1.0")


@given(FEDERATIONS, FEDERATIONS, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_no_two_devices_of_all_federations_share_an_identifier(one, other, broker, beside, link):
    ids = {
        names(f, b).device_id(n)
        for f in {one, other}
        for b in {broker, beside}
        for n in (None, link)
    }

    assert len(ids) == len({one, other}) * len({broker, beside}) * 2


@given(FEDERATIONS, st.text(max_size=64))
def test_whatever_brokers_are_called_home_assistant_takes_their_devices(federation, called):
    own = names(federation)

    for topic, device in (
        (own.discovery_topic(), broker_device(own, called)),
        (own.discovery_topic(4), link_device(own, called, 4, called)),
    ):
        DevicePayload.taken(topic, device)


def test_a_link_that_is_down_has_no_delay():
    assert link_state(up=True, round_trip_ms=5.04) == {"up": "ON", "round_trip_ms": 5.0}
    assert link_state(up=False, round_trip_ms=5.04) == {"up": "OFF", "round_trip_ms": None}


def test_a_broker_that_is_not_ready_says_why():
    assert broker_state(None, "well") == {"ready": "ON", "standing": "well"}
    assert broker_state("no link", None) == {"ready": "OFF", "standing": "no link"}
