"""Another agent with our id at our own broker, as Mosquitto's log shows it."""

import pytest
from mqtt5 import PublishPacket

from federator.protocol.discovery.log_lines import ERROR_TOPIC
from federator.runtime.agent.presence import NEXT_MOMENT_S, TakeoverDetector

OURS = "federator-1-ctl"
LINE = b"1795226421: Client federator-1-ctl already connected, closing old connection."


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def takeovers(clock):
    return TakeoverDetector([OURS], clock=clock)


def test_a_place_that_is_taken_and_closed_is_a_takeover(takeovers):
    takeovers.on_log(PublishPacket(ERROR_TOPIC, LINE))

    assert takeovers.threw_out(OURS)
    assert not takeovers.threw_out(OURS)  # the next loss has its own reason


def test_a_connection_closed_long_after_has_another_reason(takeovers, clock):
    takeovers.on_log(PublishPacket(ERROR_TOPIC, LINE))
    clock.now_s += NEXT_MOMENT_S

    assert not takeovers.threw_out(OURS)


@pytest.mark.parametrize("payload", [LINE.replace(b"-1-", b"-11-"), LINE + b" x", b""])
def test_other_lines_prove_nothing(takeovers, payload):
    takeovers.on_log(PublishPacket(ERROR_TOPIC, payload))

    assert not takeovers.threw_out(OURS)
