"""Measuring a way, remembering brokers, and where links may lead."""

import pytest
from structlog.testing import capture_logs

from federator.config.settings import Settings
from federator.config.validation import validated
from federator.protocol.messages.places import Place
from federator.runtime.topology.arranging import (
    BROKERS_FILE,
    Arranger,
    ConfiguredAddressVerifier,
    known_brokers,
    round_trip,
)
from tests.tcp_server import serving


async def test_a_way_is_measured_without_a_word():
    said = []

    async def answer(reader, _writer):
        said.append(await reader.read())

    async with serving(answer) as port:
        assert await round_trip(f"mqtt://127.0.0.1:{port}") >= 1

    assert not any(said)


@pytest.mark.parametrize("url", ["mqtt://127.0.0.1:1", "nonsense", "mqtt://no.such.host.invalid"])
async def test_who_does_not_answer_is_not_measured(url):
    assert await round_trip(url) is None


def test_whom_we_know_outlives_us(tmp_path):
    arranger = Arranger(tmp_path, measured=None)

    arranger.remember(((3, "mqtt://b3"), (7, "mqtts://b7")))

    assert known_brokers(tmp_path) == ((3, "mqtt://b3"), (7, "mqtts://b7"))


@pytest.mark.parametrize("content", [b"", b"{", b'[["x", 1]]', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_memory_is_none(tmp_path, content):
    (tmp_path / BROKERS_FILE).write_bytes(content)

    with capture_logs() as logged:
        assert known_brokers(tmp_path) == ()
    assert [line["event"] for line in logged] == ["storage.damaged"]


def test_no_memory_is_none_without_a_word(tmp_path):
    with capture_logs() as logged:
        assert known_brokers(tmp_path) == ()
    assert logged == []


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("mqtts://gateway-7", True),
        ("mqtts://GATEWAY-7:8884", True),
        ("mqtts://a.site.example", True),
        ("mqtts://site.example", False),
        ("mqtts://asite.example", False),
        ("mqtts://10.1.2.3", True),
        ("mqtts://10.2.2.3", False),
        ("mqtts://evil", False),
        ("mqtt://gateway-7", False),
        ("mqtt://user:secret@gateway-7", False),
        ("http://gateway-7", False),
        ("", False),
        ("mqtt://127.0.0.1", False),  # our own: whoever says so forgot broker.advertise
    ],
)
def test_links_lead_only_where_the_operator_allows(address, allowed):
    hosts = ["gateway-7", "*.site.example", "10.1.0.0/16", "127.0.0.1"]
    values = {
        "security": "open",
        "broker": {"id": 1, "url": "mqtt://127.0.0.1"},
        "links": {"allow_plaintext": False, "username": "u"},
        "topology": {"mode": "auto", "hosts": hosts},
    }
    settings = validated(Settings, values)
    verifier = ConfiguredAddressVerifier(settings, None)

    assert (verifier.objection(2, Place(address, 1)) == "") == allowed
