"""The JSON between agents, gateways and operators is checked when it is read."""

import msgspec
import pytest

from federator.errors import DecodeError
from federator.protocol import guide as g

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
        g.SessionReport("gw-1", 3, 9, 0, 1, (g.Session("c", True, False, ("t",), ("a/#",)),)),
        g.Settle("gw-1", 4, ("a/b",)),
        g.Settled(4, True),
        g.Drain(3, True),
        g.Trace("1-99", "a/b"),
        g.Traced((1, 2), (5, 6), 7, True, False, ((3, 0),), ""),
        g.Health(1, "fed", 3, "not_ready", "why", 7, "0.1.0", {"2": "up", "4": "down"}, 5, 10),
    ],
)
def test_each_word_comes_back_as_it_was_sent(word):
    assert g.decode(type(word), g.encode(word)) == word


def test_a_reader_ignores_what_a_newer_release_adds():
    newer = msgspec.json.encode({"broker": 3, "drain": True, "until": "noon"})

    assert g.decode(g.Drain, newer) == g.Drain(3, True)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (g.Drain, b""),
        (g.Drain, b"{"),
        (g.Drain, b'{"broker": -1, "drain": true}'),
        (g.Drain, b'{"broker": 4294967296, "drain": true}'),
        (g.Drain, b'{"broker": 1}'),
        (g.Settle, b'{"gateway": "a/b", "token": 1, "filters": []}'),
        (g.Settle, b'{"gateway": "", "token": 1, "filters": []}'),
        (g.SessionReport, b'{"gateway": "g", "epoch": 1, "seq": 1, "page": 0, "pages": 0}'),
        (g.Guide, g.encode(GUIDE).replace(b'"version":1', b'"version":2')),
        (g.Guide, b"[" * 100_000),
        (g.Guide, b" " * (g.GUIDE_BYTES_MAX + 1)),
        (g.Guide, b'\xff{"version": 1}'),
    ],
)
def test_what_is_malformed_or_out_of_range_is_a_decode_error(kind, payload):
    with pytest.raises(DecodeError):
        g.decode(kind, payload)
