"""Retained publications on their way through the data path. docs/protocol.md, section 13."""

import asyncio
import time

import pytest
from mqtt5 import PublishPacket

from federator.config.sections import RetainedSettings
from federator.protocol.filters import FilterTrie
from federator.protocol.forwarding.keeping import Keeping
from federator.protocol.messages.codec import decode, encode
from federator.protocol.messages.control import (
    PATH_MAX,
    RetainedAsk,
    RetainedLetter,
    RetainedRequest,
    RetainedWant,
)
from federator.protocol.policy.broker_policy import BrokerPolicy
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.retained.long_values import LongValue
from federator.protocol.retained.packets import TAKEN_BYTES, payload_digest
from federator.protocol.retained.versions import CLOCK_LEAP_MAX_US, Version
from federator.protocol.types import BROKER_ID_MAX
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.retained.answers import VALUE_BYTES_MAX
from federator.runtime.retained.broker import LARGE_VALUES
from federator.runtime.retained.retained import Retained
from federator.runtime.retained.scanner import NOTHING, Found, Scan

ME, OTHER = 1, 2


def connection(handler):
    return MqttLink(Endpoint("127.0.0.1", 1), handler, client_id="federator-1-retained")


@pytest.fixture
async def retained(tmp_path):
    return Retained(
        settings=RetainedSettings(),
        self_id=ME,
        epoch=lambda: 1,
        federation="fed",
        folder=tmp_path,
        make_link=connection,
        data_link=connection(None),
        outgoing=None,
        hears_log=True,
        policy=BrokerPolicy(),
        to_local_names=lambda run: run,
        link_policies=LinkPolicies(),
        covered=lambda filter: True,
        send=lambda link, message: None,
        keeping=Keeping(),
        keeps=lambda topic: False,
        share_of_turn=len,
        wanted=FilterTrie(),
    )


def packet(payload, *, topic="a", retain=True):
    return PublishPacket(topic, payload, retain=retain).write()


def now_us():
    return time.time_ns() // 1_000


async def test_what_leaves_gets_growing_times_and_the_places_in_its_frame(retained):
    first_us = retained.leave(packet(b"1") + packet(b"2", topic="b") + packet(b"3"))
    second_us = retained.leave(packet(b"4", topic="b"))

    assert second_us > first_us
    assert retained.store.get("a").version == Version(first_us, 2, ME)
    assert retained.store.get("b").version == Version(second_us, 0, ME)


async def test_who_heard_of_a_value_from_the_future_still_overwrites_it(retained):
    future_us = now_us() + 3_600_000_000
    retained.arrive(packet(b"1"), time_us=future_us, origin=OTHER)

    assert retained.leave(packet(b"2")) > future_us


async def test_newer_values_pass_as_they_are_and_older_ones_without_their_flag(retained):
    live = packet(b"live", topic="b", retain=False)
    run = live + packet(b"new")
    time_us = now_us()

    assert retained.arrive(run, time_us=time_us, origin=OTHER) is run
    assert retained.arrive(live + packet(b"old"), time_us=time_us - 1, origin=OTHER) == (
        live + packet(b"old", retain=False)
    )
    assert retained.counters.outdated == 1


async def test_a_value_that_a_comparison_brought_already_does_not_come_again(retained):
    live = packet(b"live", topic="b", retain=False)
    time_us = now_us()
    retained.arrive(packet(b"1"), time_us=time_us, origin=OTHER)

    assert retained.arrive(packet(b"1") + live, time_us=time_us, origin=OTHER) == live
    retained.missed(packet(b"1"))
    assert retained.arrive(packet(b"1") + live, time_us=time_us, origin=OTHER) == (
        packet(b"1") + live
    )


@pytest.fixture
def compared(retained, monkeypatch):
    """The filters that comparisons were ordered of, in order; a doubt lasts for a moment only."""
    monkeypatch.setattr("federator.runtime.retained.retained.DOUBT_S", 0.0)
    ordered = []
    monkeypatch.setattr(
        retained._rounds, "compare", lambda filters=(), *, rally=False: ordered.extend(filters)
    )
    return ordered


def ask(retained, added=(), removed=(), *, doubted=()):
    for filter_ in added:
        retained.wanted.add(filter_)
    for filter_ in removed:
        retained.wanted.discard(filter_)
    retained.on_interest(added, removed, doubted=frozenset(doubted))


async def test_what_is_asked_for_out_of_doubt_is_fetched_when_the_doubt_lasts(retained, compared):
    ask(retained, ["#", "a"], doubted=["#"])
    assert compared == ["a"]

    await asyncio.sleep(0.01)  # the doubt is older than a moment
    assert compared == ["a", "#"]
    assert retained._is_wanted("whatever")

    ask(retained, ["b"], doubted=["#"])
    await asyncio.sleep(0.01)
    assert compared == ["a", "#", "b"], "and not again with every change"


async def test_what_is_asked_for_out_of_doubt_is_not_fetched_when_the_doubt_ends(
    retained, compared
):
    ask(retained, ["#"], doubted=["#"])
    ask(retained, removed=["#"])
    await asyncio.sleep(0.01)
    assert compared == []


async def test_what_a_client_wants_for_sure_is_fetched_at_once_though_it_was_in_doubt(
    retained, compared
):
    ask(retained, ["#"], doubted=["#"])
    assert not retained._is_wanted("whatever")

    ask(retained, ["a"])

    assert sorted(compared) == ["#", "a"]


async def test_a_broker_that_restarts_is_counted_anew_before_everything_is_fetched(
    retained, compared
):
    ask(retained, ["#"], doubted=["#"])
    await asyncio.sleep(0.01)
    del compared[:]

    retained._broker_up(False)
    assert retained._fetched() == []
    await asyncio.sleep(0.01)
    assert "#" in compared


async def test_a_clock_that_is_days_ahead_is_told_and_its_values_are_not_retained(retained, capsys):
    time_us = now_us() + 2 * CLOCK_LEAP_MAX_US

    passed = retained.arrive(packet(b"1"), time_us=time_us, origin=OTHER)

    assert passed == packet(b"1", retain=False)
    assert retained.store.get("a") is None
    assert retained.counters.clock_refused == 1
    assert "retained.clock_ahead" in capsys.readouterr().out


async def test_a_value_that_is_longer_than_a_letter_is_given_in_parts(retained):
    payload = bytes(range(256)) * 16_000
    value = packet(payload)
    retained.leave(value)
    scan = Scan({"a": Found(payload_digest(payload), value)}, True)
    whole = LongValue()

    came = b""
    while not came:
        ask = RetainedAsk("a", ("a",), whole.next_at(ME, "a"))
        reply = retained._answers._values(ask, scan)
        assert len(encode(RetainedLetter(ME, (ME, OTHER), 0, reply))) < TAKEN_BYTES
        came = whole.put(reply.entries[0], reply.packets[0], at=reply.at, size=reply.size)

    assert came == value
    assert retained.counters.too_long == 0


@pytest.mark.parametrize(("over", "too_long"), [(-50, 0), (0, 1)])
async def test_an_agent_that_takes_no_parts_gets_a_value_only_when_it_fits_a_letter(
    retained, over, too_long, capsys
):
    value = packet(bytes(VALUE_BYTES_MAX + over))
    retained.leave(value)
    found = Found(payload_digest(bytes(VALUE_BYTES_MAX + over)), value)

    reply = retained._answers._values(RetainedAsk("a", ("a",)), Scan({"a": found}, True))

    longest_way = tuple(range(BROKER_ID_MAX - PATH_MAX, BROKER_ID_MAX))
    letter = RetainedLetter(ME, longest_way, 0, reply)
    assert decode("retained", encode(letter)) == letter
    assert retained.counters.too_long == too_long
    assert len(reply.entries) == 1 - too_long
    assert capsys.readouterr().out.count("retained.too_long") == too_long


def knows_many(retained):
    for number in range(LARGE_VALUES):
        topic = f"many/{number}"
        retained.store.put(topic, Version(1, 0, OTHER), 1, deleted=False, now_us=1)


@pytest.mark.parametrize(
    ("filter", "large"),
    [("many/#", True), ("#", True), ("few/#", False), ("many/1", False), ("+/1", False)],
)
async def test_a_filter_is_large_before_its_first_scan_if_the_store_has_many_of_it(
    retained, filter, large
):
    knows_many(retained)
    retained.store.put("few/1", Version(1, 0, OTHER), 1, deleted=False, now_us=1)

    assert retained.broker.is_large(filter) is large


async def test_a_request_for_few_values_does_not_wait_for_one_for_many_in_the_same_message(
    retained,
):
    knows_many(retained)
    scanned = []

    async def scan(filters, keep=None):
        scanned.append(sorted(filters))
        if "many/#" in filters:
            await asyncio.Event().wait()
        return NOTHING

    retained.scanner.scan = scan
    wants = tuple(RetainedWant(filter, 0) for filter in ("many/#", "few/1", "few/2"))
    task = asyncio.create_task(retained._answers.run())
    request = RetainedRequest(OTHER, 1, 1, (OTHER,), False, wants)
    retained._answers.ask((ME, OTHER), request)
    await asyncio.sleep(0.1)
    task.cancel()

    assert sorted(scanned) == [["few/1", "few/2"], ["many/#"]]
