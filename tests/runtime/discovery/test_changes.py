"""What many lines of the log change is told at once, and before anybody counts on it."""

from types import SimpleNamespace

import pytest
from mqtt5 import PublishPacket

from federator.config.sections import DiscoverySettings
from federator.protocol.discovery.log_lines import (
    ClientConnected,
    ClientEnded,
    Subscribed,
    Unsubscribed,
)
from federator.runtime.agent.own_connections import ControlConnection
from federator.runtime.discovery.service import REMOVED_AT_ONCE, Discovery
from federator.runtime.mqtt.parts import Dispatch, Part
from tests.protocol.discovery.harness import OWN_ID
from tests.protocol.discovery.model_broker import printed
from tests.real.polling import until

ECHO = "$fed/fed/echo/1"


@pytest.fixture
async def heard(tmp_path):
    """What is told, in order, by a control connection that hears ``heard.read(*packets)``."""
    told = []
    discovery = Discovery(
        DiscoverySettings(widen=False),
        federation="fed",
        own_id=OWN_ID,
        state_dir=tmp_path,
        interest_changed=lambda added, removed: told.append((set(added), set(removed))),
    )
    lines = dict.fromkeys(("$SYS/broker/log/#",), discovery.on_publish)
    echo = Part(topics={ECHO: lambda packet: told.append("echo")})
    connection = ControlConnection(
        dispatch=Dispatch([Part(topics=lines), echo]),
        traffic=SimpleNamespace(carries=lambda topic: False),
        discovery=discovery,
        loops=None,
        presence=None,
    )

    def read(*packets):
        connection.on_publishes(None, memoryview(b""), [(packet, 0, 0) for packet in packets])

    read(line(ClientConnected("nomad", True, 4)))
    told.clear()
    return SimpleNamespace(told=told, read=read)


def line(event):
    topic, text = printed(event, version="2.0.11")
    return PublishPacket(topic, text)


def wants(filter):
    return line(Subscribed("nomad", 1, filter))


async def test_lines_of_one_read_make_one_change(heard):
    heard.read(wants("a"), wants("b"), wants("gone"), line(Unsubscribed("nomad", "gone")))

    assert heard.told == [({"a", "b"}, set())]


async def test_what_went_and_came_again_did_not_change(heard):
    heard.read(wants("a"))
    heard.told.clear()

    heard.read(line(Unsubscribed("nomad", "a")), wants("a"), wants("b"))

    assert heard.told == [({"b"}, set())]


async def test_who_hears_that_all_lines_before_are_through_can_count_on_it(heard):
    heard.read(wants("a"), PublishPacket(ECHO, b""), wants("b"))

    assert heard.told == [({"a"}, set()), "echo", ({"b"}, set())]


async def test_what_a_client_had_that_is_gone_is_given_up_piece_by_piece(heard):
    filters = {f"many/{number}" for number in range(1_000)}
    heard.read(*map(wants, filters))
    heard.told.clear()

    heard.read(line(ClientEnded("nomad")), *[PublishPacket("$fed/fed/other", b"")] * 3)
    assert len(heard.told) == 1
    heard.read(line(ClientConnected("nomad", True, 4)), wants("many/7"), wants("b"))

    def left():
        wanted = set(filters)
        for added, removed in heard.told:
            wanted = (wanted | added) - removed
        return wanted

    await until(lambda: left() == {"many/7", "b"}, "all is given up")
    assert max(len(removed) for _, removed in heard.told) == REMOVED_AT_ONCE
