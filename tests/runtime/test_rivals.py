"""Another agent with our id at our own broker, as Mosquitto's log shows it."""

import pytest

from federator.runtime.rivals import LOG_TOPIC, NEXT_MOMENT_S, Rivals

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
def rivals(clock):
    return Rivals([OURS], clock=clock)


def test_a_place_that_is_taken_and_closed_is_a_rivals(rivals):
    rivals.on_log(LOG_TOPIC, LINE)

    assert rivals.threw_out(OURS)
    assert not rivals.threw_out(OURS)  # the next loss has its own reason


def test_a_connection_closed_long_after_has_another_reason(rivals, clock):
    rivals.on_log(LOG_TOPIC, LINE)
    clock.now_s += NEXT_MOMENT_S

    assert not rivals.threw_out(OURS)


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        (LOG_TOPIC, LINE.replace(b"-1-", b"-11-")),
        (LOG_TOPIC, LINE + b" x"),
        ("$SYS/broker/log/N", LINE),
        (LOG_TOPIC, b""),
    ],
)
def test_other_lines_prove_nothing(rivals, topic, payload):
    rivals.on_log(topic, payload)

    assert not rivals.threw_out(OURS)
