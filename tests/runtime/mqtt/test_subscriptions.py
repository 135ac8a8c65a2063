"""Wanted filters against a broker's table kept by a receiver that only follows the packets."""

import mqtt5
from hypothesis import given
from hypothesis import strategies as st

from federator.runtime.mqtt.subscriptions import (
    SUBSCRIBE_BYTES_MAX,
    SUBSCRIBE_FILTERS_MAX,
    UNANSWERED_MAX,
    Subscriptions,
)
from federator.runtime.mqtt.window import PacketIds
from federator.runtime.mqtt.wire import Out

GRANTED = mqtt5.SubAckReasonCode.GRANTED_QOS_EXACTLY_ONCE
REFUSED = mqtt5.SubAckReasonCode.NOT_AUTHORIZED


class Table:
    """What a broker holds for us; refuses every filter that begins with "no"."""

    def __init__(self) -> None:
        self.filters: dict[str, mqtt5.TopicFilter] = {}
        self.identifiers: dict[str, int | None] = {}
        self.incoming: list[bytes] = []
        self.packets = 0

    def take(self, out: Out) -> None:
        for packet in out:
            assert len(packet) <= SUBSCRIBE_BYTES_MAX
        self.incoming.extend(bytes(packet) for packet in out)
        self.packets += len(out)
        assert len(self.incoming) <= UNANSWERED_MAX

    def answer_one(self, subscriptions: Subscriptions) -> dict[str, int]:
        if not self.incoming:
            return {}
        packet, _ = mqtt5.read(memoryview(self.incoming.pop(0)))
        out: Out = []
        newly_refused: dict[str, int] = {}
        if isinstance(packet, mqtt5.SubscribePacket):
            assert 1 <= len(packet.topic_filters) <= SUBSCRIBE_FILTERS_MAX
            codes = []
            for wanted in packet.topic_filters:
                refused = wanted.pattern.startswith("no")
                codes.append(REFUSED if refused else GRANTED)
                if not refused:
                    self.filters[wanted.pattern] = wanted
                    self.identifiers[wanted.pattern] = packet.subscription_id
            newly_refused = subscriptions.on_suback(
                mqtt5.SubAckPacket(packet.packet_id, codes), out
            )
        else:
            assert isinstance(packet, mqtt5.UnsubscribePacket)
            for pattern in packet.patterns:
                self.filters.pop(pattern, None)
            answers = [mqtt5.UnsubAckReasonCode.SUCCESS] * len(packet.patterns)
            subscriptions.on_unsuback(mqtt5.UnsubAckPacket(packet.packet_id, answers), out)
        self.take(out)
        return newly_refused

    def settle(self, subscriptions: Subscriptions) -> None:
        while self.incoming:
            self.answer_one(subscriptions)


def started() -> tuple[Subscriptions, Table]:
    subscriptions, table = Subscriptions(PacketIds()), Table()
    out: Out = []
    subscriptions.resume(session_present=False, out=out)
    table.take(out)
    return subscriptions, table


patterns = st.sampled_from(["a", "b/+", "c/#", "d", "no/1", "no/2"])
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["subscribe", "subscribe", "unsubscribe", "answer", "cut", "cut, new", "cut, earlier"]
        ),
        st.lists(patterns, max_size=4),
        st.booleans(),
    ),
    max_size=40,
)


@given(steps)
def test_the_broker_ends_with_exactly_the_wanted_filters_it_grants(steps):
    subscriptions, table = started()
    wanted: dict[str, mqtt5.TopicFilter] = {}
    earlier: list[dict[str, mqtt5.TopicFilter]] = []  # what this session has been

    for step, some, no_local in steps:
        out: Out = []
        earlier.append(dict(table.filters))
        if step == "subscribe":
            filters = [mqtt5.TopicFilter(pattern, no_local=no_local) for pattern in some]
            wanted.update({each.pattern: each for each in filters})
            subscriptions.subscribe(filters, out)
        elif step == "unsubscribe":
            for pattern in some:
                wanted.pop(pattern, None)
            subscriptions.unsubscribe(some, out)
        elif step == "answer":
            table.answer_one(subscriptions)
        else:
            subscriptions.suspend()
            table.incoming.clear()
            if step == "cut, new":
                table.filters.clear()
                earlier.clear()
            elif step == "cut, earlier":  # the broker was killed, and had saved its sessions then
                table.filters = earlier[len(some) * len(earlier) // 5]
            subscriptions.resume(session_present=step != "cut, new", out=out)
        table.take(out)
    table.settle(subscriptions)

    assert subscriptions.settled
    granted = {p: f for p, f in wanted.items() if not p.startswith("no")}
    assert table.filters == granted
    assert set(subscriptions.refused) == set(wanted) - set(granted)


def test_many_and_long_filters_leave_in_bounded_packets():
    subscriptions, table = started()
    many = [mqtt5.TopicFilter(f"sensor/{n}") for n in range(30_000)]
    long = [mqtt5.TopicFilter("x" * 60_000 + str(n)) for n in range(5)]
    out: Out = []

    subscriptions.subscribe([*many, *long], out)
    table.take(out)
    table.settle(subscriptions)

    assert len(table.filters) == 30_005
    assert table.packets == 30_000 // SUBSCRIBE_FILTERS_MAX + 5


def test_what_is_already_wanted_is_not_asked_again():
    subscriptions, table = started()
    out: Out = []
    subscriptions.subscribe([mqtt5.TopicFilter("a")], out)
    table.take(out)
    table.settle(subscriptions)

    again: Out = []
    subscriptions.subscribe([mqtt5.TopicFilter("a")], again)
    assert again == []

    subscriptions.subscribe([mqtt5.TopicFilter("a", no_local=True)], again)
    assert len(again) == 1


def test_a_refused_filter_is_reported_once_and_asked_for_again_after_a_reconnect():
    subscriptions, table = started()
    out: Out = []
    subscriptions.subscribe([mqtt5.TopicFilter("no/1")], out)
    table.take(out)

    first = table.answer_one(subscriptions)
    subscriptions.suspend()
    again: Out = []
    subscriptions.resume(session_present=True, out=again)
    table.take(again)
    second = table.answer_one(subscriptions)

    assert first == {"no/1": 0x87}
    assert second == {}
    assert subscriptions.refused == {"no/1": 0x87}


def test_with_the_session_kept_what_is_wanted_is_asked_again_and_what_is_not_is_dropped():
    subscriptions, table = started()
    out: Out = []
    subscriptions.subscribe([mqtt5.TopicFilter("a"), mqtt5.TopicFilter("b")], out)
    table.take(out)
    table.settle(subscriptions)
    subscriptions.suspend()
    subscriptions.unsubscribe(["a"], [])
    subscriptions.subscribe([mqtt5.TopicFilter("c")], [])

    again: Out = []
    subscriptions.resume(session_present=True, out=again)
    table.take(again)
    table.settle(subscriptions)

    assert len(again) == 2
    assert set(table.filters) == {"b", "c"}


def test_a_session_that_went_back_in_time_gets_what_is_wanted_now():
    subscriptions, table = started()
    out: Out = []
    subscriptions.subscribe([mqtt5.TopicFilter("a/#"), mqtt5.TopicFilter("b")], out)
    table.take(out)
    table.settle(subscriptions)
    saved = dict(table.filters)
    change: Out = []
    subscriptions.subscribe([mqtt5.TopicFilter("#")], change)
    subscriptions.unsubscribe(["a/#", "b"], change)
    table.take(change)
    table.settle(subscriptions)

    subscriptions.suspend()
    table.filters = saved
    again: Out = []
    subscriptions.resume(session_present=True, out=again)
    table.take(again)
    table.settle(subscriptions)

    assert set(table.filters) == {"#"}


def test_an_identifier_is_asked_for_replaced_and_gone_after_a_reconnect():
    subscriptions, table = started()
    fill: Out = []
    for n in range(UNANSWERED_MAX):  # so that what follows leaves together
        subscriptions.subscribe([mqtt5.TopicFilter(f"fill/{n}")], fill)
    table.take(fill)
    out: Out = []
    subscriptions.subscribe([mqtt5.TopicFilter("a"), mqtt5.TopicFilter("b")], out, identifier=7)
    subscriptions.subscribe([mqtt5.TopicFilter("c")], out, identifier=8)
    subscriptions.subscribe([mqtt5.TopicFilter("d")], out)
    assert out == []
    assert not subscriptions.answered(["d"])
    assert subscriptions.answered(["e"])

    table.settle(subscriptions)
    assert subscriptions.answered(["a", "b", "c", "d"])
    identified = {p: n for p, n in table.identifiers.items() if not p.startswith("fill")}
    assert identified == {"a": 7, "b": 7, "c": 8, "d": None}

    subscriptions.subscribe([mqtt5.TopicFilter("a")], out)
    table.take(out)
    table.settle(subscriptions)
    assert table.identifiers["a"] is None

    subscriptions.suspend()
    again: Out = []
    subscriptions.resume(session_present=True, out=again)
    table.take(again)
    table.settle(subscriptions)
    assert set(table.identifiers.values()) == {None}
