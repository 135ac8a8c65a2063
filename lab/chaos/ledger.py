"""Every message end to end: attempted, acknowledged, delivered, lost, twice, out of order.

The words are Jepsen's. A publication is *attempted* when it is first written to a socket and
*acknowledged* when the publisher's broker answers. It is *lost* for a subscriber that should have
it when it was acknowledged and never came. A further copy counts as *twice*, unless the
subscriber's own broker sends it again to the same session and says so (DUP): that is between
those two.

**What a dead broker took with it is no loss of ours**, and is counted apart, as *spared*:

- Its broker was the origin: all numbers from the fault on that no other broker's subscriber ever
  got, up to the first that one got of those sent after the broker's return.
- Its broker was the destination: all numbers from the fault on, up to the first that came of those
  sent after the subscriber had its subscription again.

Further copies, and a changed order, are spared when the origin's or destination's broker ended in
between, and when the publisher itself sent the publication twice because its connection broke.
When the destination's broker hung and went on, its agent may have lost patience and sent again what
the broker had taken after all, and an agent that was killed while it handed over begins again
behind its last marker: of ``IN_FLIGHT_MAX`` messages at most, as MQTT allows. When the
origin's broker was killed, it comes back with the sessions that it saved last, and may give its
agent twice what is published before the agent is back and sets that right.

Of publications of mixed QoS 1 and 2, Mosquitto itself changes the order now and then for a
subscriber of QoS 2 (docs/guarantees.md). What came so is counted apart, as *swapped*, and is no
violation; ``--alone`` tells how often a broker does it without us.

Nothing here reads a clock: times are seconds on any one clock.

Source: the vocabulary of Jepsen's analyses (attempted, acknowledged, lost, duplicated, unexpected).
"""

import bisect
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from federator.protocol.types import BrokerId
from lab.chaos.layout import Layout, Subscriber

UNPROMISED_AT_QOS_0: Final = frozenset({"lost", "order"})
"""Counted, and no violation: what is not sent again is lost, and overtaken by another way."""

EXAMPLES_MAX: Final = 100
"""Violations remembered one by one; all are counted."""

BUFFERED_S: Final = 1.0
"""What a dead broker had already written to a socket may be read this much later."""

AFTERMATH_S: Final = 60.0
"""So long after a broker's return, copies may still be its doing."""

IN_FLIGHT_MAX: Final = 20
"""Mosquitto's Receive Maximum."""

INTERRUPTION_AFTERMATH_S: Final = 10.0
"""So long after a hand-over goes on, copies may be of what was in flight when it broke off."""

RESTORED_S: Final = 6.0
"""So long after a killed broker's return, its agent may still be away: it dials every 5 s."""

CALM: Final = "none"
"""The phase without a fault."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise."""

    kind: str  # ``lost``, ``twice``, ``order``, ``unexpected``, or what an agent did
    phase: str  # the fault class it is counted under
    at_s: float
    where: str
    topic: str = ""
    number: int = -1
    detail: str = ""


@dataclass(slots=True)
class Death:
    """One end of a broker."""

    broker: BrokerId
    since_s: float  # what was sent before was complete when the fault began
    down_s: float
    keeps: bool  # it ended in order and kept sessions and queues on disk
    up_s: float = float("inf")  # when it was started again


@dataclass(slots=True)
class Interruption:
    """A time without hand-over to a broker: it hung, or its agent was dead."""

    broker: BrokerId
    from_s: float
    to_s: float = float("inf")
    # How many each of its subscribers got since.
    copies: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Stream:
    """What was published on one topic; the index is the number."""

    topic: str
    origin: BrokerId
    first: int = 0  # numbers below were published before the mesh stood, and do not count
    sent_s: "array[float]" = field(default_factory=lambda: array("d"))
    acknowledged: bytearray = field(default_factory=bytearray)
    # Numbers that a subscriber at another broker got.
    carried: bytearray = field(default_factory=bytearray)
    resent: set[int] = field(default_factory=set)

    def after(self, at_s: float) -> int:
        return bisect.bisect_right(self.sent_s, at_s)


@dataclass(slots=True)
class Receipt:
    """What one subscriber got of one topic."""

    subscriber: Subscriber
    stream: Stream
    # When each number came first; 0 for never.
    came_s: "array[float]" = field(default_factory=lambda: array("f"))
    low: int = 0  # every number below came, was spared or is given up
    latest: int = -1  # the highest number that came
    # When its subscription stood, after each of its connections.
    subscribed_s: list[float] = field(default_factory=list)

    def came(self, number: int) -> bool:
        return number < len(self.came_s) and self.came_s[number] > 0


@dataclass(slots=True)
class Counts:
    """Counts of one fault class; ``owed`` and what follows count (message, subscriber) pairs."""

    attempted: int = 0
    acknowledged: int = 0
    owed: int = 0
    delivered: int = 0
    delivered_mixed: int = 0  # of these: mixed QoS to subscribers of QoS 2
    lost: int = 0
    twice: int = 0
    order: int = 0
    swapped: int = 0  # out of order, of ``delivered_mixed``
    unexpected: int = 0
    spared_lost: int = 0
    spared_twice: int = 0
    redelivered: int = 0
    slowest_s: float = 0.0  # the longest from sending to delivery

    def broken(self, qos: int) -> int:
        kinds = ("lost", "twice", "order", "unexpected")
        return sum(getattr(self, k) for k in kinds if qos or k not in UNPROMISED_AT_QOS_0)


class Ledger:
    """All streams and receipts of a run.

    ``mixed``: publications on one topic are of QoS 1 and 2.
    """

    def __init__(self, layout: Layout, *, mixed: bool = False) -> None:
        self._mixed = mixed
        self.streams = {topic: Stream(topic, origin) for topic, origin in layout.topics.items()}
        self.receipts = {(s.name, t): Receipt(s, self.streams[t]) for s, t in layout.pairs()}
        self.deaths: list[Death] = []
        self.interruptions: list[Interruption] = []
        self.violations: list[Violation] = []
        self._phases: list[tuple[float, str]] = [(0.0, CALM)]
        self._arrival_counts: dict[str, Counter[str]] = {}
        self._counting = False

    # What happens

    def enter(self, phase: str, now_s: float) -> None:
        self._phases.append((now_s, phase))

    def begin(self) -> None:
        for stream in self.streams.values():
            stream.first = len(stream.sent_s)
        for receipt in self.receipts.values():
            receipt.low = receipt.stream.first
        self._counting = True

    def attempted(self, topic: str, now_s: float) -> int:
        stream = self.streams[topic]
        number = len(stream.sent_s)
        stream.sent_s.append(now_s)
        stream.acknowledged.append(0)
        stream.carried.append(0)
        return number

    def acknowledged(self, topic: str, number: int) -> None:
        self.streams[topic].acknowledged[number] = 1

    def resent(self, topic: str, number: int) -> None:
        """Note that a publication was sent again: for a broker these are two."""
        self.streams[topic].resent.add(number)

    def died(self, broker: BrokerId, now_s: float, *, keeps: bool) -> None:
        self.deaths.append(Death(broker, self._phases[-1][0], now_s, keeps))

    def returns(self, broker: BrokerId, now_s: float) -> None:
        for death in self.deaths:
            if death.broker == broker and death.up_s == float("inf"):
                death.up_s = now_s

    def interrupted(self, broker: BrokerId, now_s: float) -> None:
        self.interruptions.append(Interruption(broker, now_s))

    def goes_on(self, broker: BrokerId, now_s: float) -> None:
        for each in self.interruptions:
            if each.broker == broker and each.to_s == float("inf"):
                each.to_s = now_s

    def subscribed(self, subscriber: str, now_s: float) -> None:
        for (name, _), receipt in self.receipts.items():
            if name == subscriber:
                receipt.subscribed_s.append(now_s)

    def arrived(
        self, subscriber: str, topic: str, number: int, *, redelivery: bool, now_s: float
    ) -> None:
        """A message came. ``number`` is -1 when its payload is none of ours."""
        receipt = self.receipts.get((subscriber, topic))
        if receipt is None or not 0 <= number < len(receipt.stream.sent_s):
            self._violated("unexpected", subscriber, topic, number, now_s)
            return
        stream = receipt.stream
        if receipt.came(number):
            self._again(receipt, number, redelivery, now_s)
            return
        if number >= len(receipt.came_s):
            receipt.came_s.extend([0.0] * (len(stream.sent_s) - len(receipt.came_s)))
        receipt.came_s[number] = now_s
        if receipt.subscriber.broker != stream.origin:
            stream.carried[number] = 1
        if number < receipt.latest:
            if not self._excused(receipt, number, now_s, since_s=stream.sent_s[number]):
                self._came_late(receipt, number, now_s)
        else:
            receipt.latest = number

    def _is_mixed(self, receipt: Receipt) -> bool:
        return self._mixed and receipt.subscriber.qos == 2

    def _came_late(self, receipt: Receipt, number: int, now_s: float) -> None:
        if self._is_mixed(receipt):
            if self._counting and number >= receipt.stream.first:
                self._count("swapped", now_s)
            return
        where, topic = receipt.subscriber.name, receipt.stream.topic
        self._violated("order", where, topic, number, now_s, f"after {receipt.latest}")

    def _again(self, receipt: Receipt, number: int, redelivery: bool, now_s: float) -> None:
        first_s = receipt.came_s[number]
        if number < receipt.stream.first:
            return
        if redelivery:
            self._count("redelivered", now_s)
        elif (
            self._excused(receipt, number, now_s, since_s=first_s)
            or self._was_in_flight(receipt.subscriber, first_s, now_s)
            or self._met_an_old_session(receipt.stream, number)
        ):
            self._count("spared_twice", now_s)
        else:
            detail = f"{now_s - first_s:.3f} s after the first"
            where, topic = receipt.subscriber.name, receipt.stream.topic
            self._violated("twice", where, topic, number, now_s, detail)

    def _excused(self, receipt: Receipt, number: int, now_s: float, *, since_s: float) -> bool:
        """Whether a copy, or a change of order, is a broker's end or its publisher's doing."""
        stream = receipt.stream
        if number in stream.resent:
            return True
        sent_s = stream.sent_s[number]
        for death in self.deaths:
            if now_s > death.up_s + AFTERMATH_S:
                continue
            if death.broker == stream.origin and sent_s - BUFFERED_S <= death.down_s:
                return True
            if death.broker == receipt.subscriber.broker and since_s - BUFFERED_S <= death.down_s:
                return True
        return False

    def _was_in_flight(self, subscriber: Subscriber, first_s: float, now_s: float) -> bool:
        """Whether a copy is of what an agent handed over again, after an interruption."""
        for each in self.interruptions:
            lately = each.to_s <= now_s <= each.to_s + INTERRUPTION_AFTERMATH_S
            if each.broker == subscriber.broker and lately and first_s >= each.from_s - BUFFERED_S:
                each.copies[subscriber.name] += 1
                return each.copies[subscriber.name] <= IN_FLIGHT_MAX
        return False

    def _met_an_old_session(self, stream: Stream, number: int) -> bool:
        """Whether it was published when its broker had sessions as it once saved them."""
        sent_s = stream.sent_s[number]
        return any(
            death.broker == stream.origin
            and not death.keeps
            and death.up_s - BUFFERED_S <= sent_s <= death.up_s + RESTORED_S
            for death in self.deaths
        )

    def _violated(
        self, kind: str, where: str, topic: str, number: int, now_s: float, detail: str = ""
    ) -> None:
        stream = self.streams.get(topic)
        if not self._counting or (stream is not None and 0 <= number < stream.first):
            return
        self._count(kind, now_s)
        self.complain(Violation(kind, self.phase_at(now_s), now_s, where, topic, number, detail))

    def complain(self, violation: Violation) -> None:
        """Remember a violation, the first ones in full."""
        if len(self.violations) < EXAMPLES_MAX:
            self.violations.append(violation)

    def _count(self, what: str, now_s: float) -> None:
        self._arrival_counts.setdefault(self.phase_at(now_s), Counter())[what] += 1

    # What is missing

    def phase_at(self, at_s: float) -> str:
        return self._phases[bisect.bisect_right(self._phases, (at_s, "\U0010ffff")) - 1][1]

    def behind(self, before_s: float) -> int:
        """Acknowledged (message, subscriber) pairs sent before ``before_s`` that are still owed."""
        return sum(self._behind(receipt, before_s) for receipt in self.receipts.values())

    def _behind(self, receipt: Receipt, before_s: float) -> int:
        stream = receipt.stream
        end = stream.after(before_s)
        while receipt.low < end and receipt.came(receipt.low):
            receipt.low += 1
        if receipt.low >= end:
            return 0
        missing = [n for n in range(receipt.low, end) if not receipt.came(n)]
        spared = self.spared(receipt, missing)
        owed = [n for n in missing if stream.acknowledged[n] and n not in spared]
        if not owed and all(stream.acknowledged[n] or n in spared for n in missing):
            receipt.low = end
        return len(owed)

    def stalled(self, since_s: float) -> list[str]:
        return [
            f"{name} {topic}"
            for (name, topic), receipt in self.receipts.items()
            if receipt.latest < receipt.stream.after(since_s)
        ]

    def give_up(self) -> None:
        """What is missing now is for the final count; ``behind`` looks at later ones only."""
        for receipt in self.receipts.values():
            receipt.low = len(receipt.stream.sent_s)

    def spared(self, receipt: Receipt, missing: Sequence[int]) -> set[int]:
        spared: set[int] = set()
        for death in self.deaths:
            if death.keeps:
                continue
            stream = receipt.stream
            since = stream.after(death.since_s)
            if death.broker == receipt.subscriber.broker:
                end = self._resumed_at_destination(receipt, death)
                spared.update(n for n in missing if since <= n < end)
            elif death.broker == stream.origin:
                end = self._resumed_at_origin(stream, death)
                spared.update(n for n in missing if since <= n < end and not stream.carried[n])
        return spared

    @staticmethod
    def _resumed_at_origin(stream: Stream, death: Death) -> int:
        found = stream.carried.find(1, stream.after(death.up_s))
        return len(stream.sent_s) if found < 0 else found

    @staticmethod
    def _resumed_at_destination(receipt: Receipt, death: Death) -> int:
        stream = receipt.stream
        back_s = min((s for s in receipt.subscribed_s if s > death.up_s), default=float("inf"))
        later = range(stream.after(back_s), len(receipt.came_s))
        return next((n for n in later if receipt.came_s[n] > 0), len(stream.sent_s))

    # The end

    def counts(self) -> dict[str, Counts]:
        """Count everything by fault class; complain about what is lost. Call once, at the end."""
        found: dict[str, Counts] = {}
        by_topic = {
            topic: [self.phase_at(sent_s) for sent_s in stream.sent_s]
            for topic, stream in self.streams.items()
        }
        for topic, stream in self.streams.items():
            for number in range(stream.first, len(stream.sent_s)):
                counts = found.setdefault(by_topic[topic][number], Counts())
                counts.attempted += 1
                counts.acknowledged += stream.acknowledged[number]
        for receipt in self.receipts.values():
            self._count_receipt(receipt, by_topic[receipt.stream.topic], found)
        for phase, counter in self._arrival_counts.items():
            counts = found.setdefault(phase, Counts())
            for what, count in counter.items():
                setattr(counts, what, getattr(counts, what) + count)
        return found

    def _count_receipt(self, receipt: Receipt, phases: list[str], found: dict[str, Counts]) -> None:
        stream = receipt.stream
        missing = []
        for number in range(stream.first, len(stream.sent_s)):
            counts = found[phases[number]]
            if receipt.came(number):
                counts.delivered += 1
                counts.delivered_mixed += self._is_mixed(receipt)
                late_s = receipt.came_s[number] - stream.sent_s[number]
                counts.slowest_s = max(counts.slowest_s, late_s)
            counts.owed += stream.acknowledged[number]
            if stream.acknowledged[number] and not receipt.came(number):
                missing.append(number)
        spared = self.spared(receipt, missing)
        for number in missing:
            counts = found[phases[number]]
            if number in spared:
                counts.spared_lost += 1
                continue
            counts.lost += 1
            where, sent_s = receipt.subscriber.name, stream.sent_s[number]
            self.complain(Violation("lost", phases[number], sent_s, where, stream.topic, number))
