"""What is not believed is told once a minute, however many ways its sender finds to say it."""

from structlog.testing import capture_logs

from federator.errors import DecodeError
from federator.runtime.trust.words import SignedWords


def test_nobody_fills_our_log_by_being_refused_in_a_thousand_ways():
    words = SignedWords(None)

    with capture_logs() as told:
        for number in range(1_000):
            words.refuse("data", DecodeError(f"seal: {number} bytes, at least 33 wanted"))
            words.refuse("hello", DecodeError(f"a greeting for topic 'x{number}' on topic 'hello'"))
            words.refuse("ctl", DecodeError(f"signed by key {number:012x}, which is not trusted"))

    assert [line["kind"] for line in told] == ["data", "hello", "ctl"]
    assert words.refused == {"data": 1_000, "hello": 1_000, "ctl": 1_000}


def test_each_reason_is_told():
    words = SignedWords(None)

    with capture_logs() as told:
        words.refuse("data", DecodeError("the seal of 7 is broken"))
        words.refuse("data", DecodeError("number 12 of 7 came before"))

    assert len(told) == 2
