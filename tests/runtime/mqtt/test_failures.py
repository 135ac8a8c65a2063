"""What an operator reads when a broker cannot be reached."""

import errno
import socket
import ssl

import mqtt5
import pytest

from federator.errors import LinkError
from federator.runtime.mqtt.failures import (
    NoAnswerError,
    TakenOverError,
    dismissal,
    explain,
    other_way,
    refusal,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, "the broker closed the connection"),
        (ConnectionRefusedError(), "connection refused: is the broker running?"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111]"),
            "connection refused: is the broker running?",
        ),
        (ConnectionResetError(), "connection reset"),
        (socket.gaierror(-2, "Name or service not known"), "cannot resolve 'b': Name or service"),
        (UnicodeError("label too long"), "cannot resolve 'b': not a host name"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "No route to host"),
        (ssl.SSLError(1, "wrong version number"), "TLS: "),
        (LinkError("no answer within 5 s"), "no answer within 5 s"),
    ],
)
def test_every_failure_has_one_short_line(error, text):
    line = explain(error, host="b")

    assert line.startswith(text)
    assert "\n" not in line
    assert len(line) < 100


def test_refusals_and_dismissals_name_their_reason():
    password = mqtt5.ConnAckPacket(
        reason_code=mqtt5.ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD, reason_str="go away"
    )
    busy = mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.SERVER_BUSY)
    taken = mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER)

    assert refusal(password) == "refused: wrong user name or password (go away)"
    assert refusal(busy) == "refused: server busy"
    restart = mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN)
    assert isinstance(dismissal(taken), TakenOverError)
    assert str(dismissal(taken)).startswith("session taken over (0x8e)")
    assert str(dismissal(restart)) == "the broker disconnected us: server shutting down (0x8b)"


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (None, True),
        (ConnectionResetError(), True),
        (ssl.SSLError(1, "wrong version number"), True),
        (NoAnswerError("no answer within 5 s"), True),
        (ssl.SSLCertVerificationError(1, "self-signed"), False),
        (ConnectionRefusedError(), False),
        (LinkError("no answer within 5 s"), False),
    ],
)
def test_who_breaks_off_before_connack_may_speak_the_other_way(error, helps):
    secret = other_way(error, tls=True, port=8883)
    plain = other_way(error, tls=False, port=1883)

    assert secret == (": does port 8883 speak TLS? without it the URL begins with mqtt://" * helps)
    assert plain == (": is it an MQTT 5 broker, or does port 1883 want TLS (mqtts://)?" * helps)
