"""The JSON between agents, gateways and operators is checked when it is read."""

import msgspec
import pytest

from federator.errors import DecodeError
from federator.protocol.messages import gateways, json_codec, operators
from federator.protocol.messages import guide as g

GUIDE = g.Guide(
    version=g.GUIDE_VERSION,
    federation="fed",
    broker=2,
    controller=1,
    epoch=7,
    number=3,
    brokers=(g.GuideBroker(1, "mqtt://h:1883", "up", 5, 1.5, (2, 3)), g.GuideBroker(4)),
    takeovers=(g.Takeover(broker=4, substitute=2, epoch=7, number=3),),
)


@pytest.mark.parametrize(
    "word",
    [
        GUIDE,
        gateways.SessionReport(
            "gw-1", 3, 9, 0, 1, (gateways.ReportedSession("c", True, False, ("t",), ("a/#",)),)
        ),
        gateways.Settle("gw-1", 4, ("a/b",)),
        gateways.Settled(4, True),
        operators.Drain(3, True),
        operators.Trace("1-99", "a/b"),
        operators.Traced((1, 2), (5, 6), 7, True, False, ((3, 0),), ""),
        g.Health(1, "fed", 3, "not_ready", "why", 7, "0.1.0", {"2": "up", "4": "down"}, 5, 10),
    ],
)
def test_each_word_comes_back_as_it_was_sent(word):
    assert json_codec.decode(type(word), json_codec.encode(word)) == word


def test_a_reader_ignores_what_a_newer_release_adds():
    newer = msgspec.json.encode({"broker": 3, "drain": True, "until": "noon"})

    assert json_codec.decode(operators.Drain, newer) == operators.Drain(3, True)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (operators.Drain, b""),
        (operators.Drain, b"{"),
        (operators.Drain, b'{"broker": -1, "drain": true}'),
        (operators.Drain, b'{"broker": 4294967296, "drain": true}'),
        (operators.Drain, b'{"broker": 1}'),
        (gateways.Settle, b'{"gateway": "a/b", "token": 1, "filters": []}'),
        (gateways.Settle, b'{"gateway": "", "token": 1, "filters": []}'),
        (gateways.SessionReport, b'{"gateway": "g", "epoch": 1, "seq": 1, "page": 0, "pages": 0}'),
        (g.Guide, json_codec.encode(GUIDE).replace(b'"version":1', b'"version":2')),
        (g.Guide, b"[" * 100_000),
        (g.Guide, b" " * (json_codec.MESSAGE_BYTES_MAX + 1)),
        (g.Guide, b'\xff{"version": 1}'),
    ],
)
def test_what_is_malformed_or_out_of_range_is_a_decode_error(kind, payload):
    with pytest.raises(DecodeError):
        json_codec.decode(kind, payload)
