"""Wanted filters against a broker's table kept by a receiver that only follows the packets."""

from pathlib import Path

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
from tests.transcripts import play, scenes

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


class Stage:
    """Subscriptions and a broker's table; prints packets, refusals, and changes of the table.

    ``subscribe a b --id=7`` leaves the table alone until ``answer`` or ``settle``; ``a:7`` is a
    filter with this identifier in the table. ``go_back``: it is as when ``save`` was said.
    """

    def __init__(self):
        self.subscriptions, self.table = started()

    def do(self, command, *words):
        before, sent = self._held(), self.table.packets
        out: Out = []
        refused = getattr(self, f"_{command}")(out, *words) or {}
        self.table.take(out)
        if count := self.table.packets - sent:
            yield f"{count} sent"
        yield from (f"refused {pattern}: {reason:#04x}" for pattern, reason in refused.items())
        after = self._held()
        yield from (f"-{gone}" for gone in sorted(before - after))
        yield from (f"+{new}" for new in sorted(after - before))

    def _held(self):
        numbers = self.table.identifiers
        names = {pattern: numbers[pattern] for pattern in self.table.filters}
        return {f"{pattern}:{n}" if n else pattern for pattern, n in names.items()}

    def _subscribe(self, out, *words):
        options = {word.partition("=")[0]: word.partition("=")[2] for word in words if "--" in word}
        number = int(options["--id"]) if "--id" in options else None
        wanted = [
            mqtt5.TopicFilter(pattern, no_local="--no-local" in options)
            for pattern in words
            if pattern not in options and "--" not in pattern
        ]
        self.subscriptions.subscribe(wanted, out, identifier=number)

    def _unsubscribe(self, out, *patterns):
        self.subscriptions.unsubscribe(patterns, out)

    def _answer(self, out):
        return self.table.answer_one(self.subscriptions)

    def _settle(self, out):
        self.table.settle(self.subscriptions)

    def _cut(self, out):
        self.subscriptions.suspend()
        self.table.incoming.clear()

    def _connect(self, out, *options):
        """The broker still has our session."""
        identifiers = "--no-id" not in options
        self.subscriptions.resume(session_present=True, out=out, identifiers=identifiers)

    def _save(self, out):
        self.saved = dict(self.table.filters)

    def _go_back(self, out):
        self.table.filters = self.saved

    def _refused(self, out):
        return self.subscriptions.refused

    def _answered(self, out, *patterns):
        assert self.subscriptions.answered(patterns)

    def _unanswered(self, out, *patterns):
        assert not self.subscriptions.answered(patterns)


@scenes(Path(__file__).parent / "subscriptions.txt")
def test_transcript(path, number):
    play(path, number, Stage())
