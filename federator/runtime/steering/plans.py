"""The agent's end of steering: plans retained on our broker, and reports of torn trees.

``protocol.steering`` decides.

Source: docs/protocol.md 18.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mqtt5 import PublishPacket, QoS, TopicFilter

from federator.errors import DecodeError
from federator.protocol.messages import topics
from federator.protocol.messages.control import TreeTorn
from federator.protocol.messages.json_codec import decode
from federator.protocol.messages.steering import Plan
from federator.protocol.rate_limiter import TokenBucket
from federator.protocol.steering.edge_follower import EdgeFollower
from federator.protocol.steering.follower import PlanFollower
from federator.protocol.steering.plan_book import PlanBook
from federator.protocol.timers import earliest
from federator.protocol.trust.words import Wanted, at
from federator.protocol.types import BrokerId, Millis
from federator.runtime.data.data_path import DataPath
from federator.runtime.mqtt.parts import Part
from federator.runtime.process.clocks import DeadlineTimer, both_clocks, monotonic_ms
from federator.runtime.process.notices import log_notice
from federator.runtime.trust.words import SignedWords

PLAN_GAP_MS: Final = Millis(200)
"""Between two times at which plans are applied: a steerer could otherwise keep us busy with nothing
else. Of the authentic plans in between, the last of each steerer waits."""

WAITING_MAX: Final = 8
"""Steerers with a waiting plan; plans of further ones are dropped."""

TORN_PER_S: Final = 1_000


@dataclass(kw_only=True, eq=False, repr=False)
class Plans:
    """Applies the plans for one broker."""

    federation: str
    broker: BrokerId
    data_path: DataPath
    words: SignedWords
    tell: Callable[[BrokerId, TreeTorn], None]  # sends a message to a neighbour
    edge: EdgeFollower

    def __post_init__(self) -> None:
        self.topic = topics.plan_topic(self.federation)
        self.follower = PlanFollower(
            PlanBook(self.federation, self.broker),
            self.data_path.plane,
            self.broker,
            self._report_torn,
            log_notice,
            self.edge.follow,
        )
        self.data_path.report_torn(self.follower)
        self._timer = DeadlineTimer(self._on_time)
        self._waiting: dict[str, Plan | None] = {}  # by steerer; None under "": the end of a plan
        self._next_ms = Millis(0)  # when the waiting plans may be applied
        self._torn = TokenBucket(TORN_PER_S)

    def part(self, *, follows: bool) -> Part:
        subscription = TopicFilter(self.topic, max_qos=QoS.AT_LEAST_ONCE, no_local=True)
        return Part(
            subscriptions=[subscription] if follows else [],
            topics={self.topic: self.on_publish} if follows else {},
            messages={TreeTorn: self.on_torn},
        )

    def holding(self) -> Plan | None:
        return self.follower.plan(monotonic_ms())

    def priority(self) -> int | None:
        """Our priority as a core in the current plan."""
        plan = self.holding()
        return None if plan is None else plan.priority

    def snapshot(self) -> dict[str, object]:
        """The current steerer, and what we apply of its plan."""
        plan = self.holding()
        return {
            "steerer": None if plan is None else plan.steerer,
            "number": None if plan is None else plan.number,
            "trees": len(self.data_path.forwarder.trees),
            "torn": self.data_path.forwarder.trees.torn,
            "refused": self.follower.refused,
            "keeps": self.edge.policy,
            "collects": sorted(self.edge.collects),
            "placed": self.edge.allowed,
            "why_not": self.edge.why_not(),
        }

    def allow(self, placed: bool) -> None:
        """Allow a steerer to place topics, or no longer."""
        self.edge.allow(placed, both_clocks())

    def doubt(self, in_doubt: bool) -> None:
        """Note whether our clients' interest is uncertain."""
        self.edge.doubt(in_doubt, both_clocks())

    def on_publish(self, packet: PublishPacket) -> None:
        """Handle a plan or, in a federation without keys, the end of one.

        It is verified before it waits: otherwise any client's junk could take a plan's place.
        """
        if not packet.payload:
            if not self.words.judges:  # else it expires: any client can delete it on the broker
                self._waiting = {"": None}
        else:
            plan = self._verified_plan(bytes(packet.payload))
            is_full = len(self._waiting) >= WAITING_MAX
            if plan is None or (plan.steerer not in self._waiting and is_full):
                return
            self._waiting.pop(plan.steerer, None)
            self._waiting[plan.steerer] = plan
        self._on_time()

    def on_torn(self, report: TreeTorn) -> None:
        """Handle a neighbour's report that a tree does not hold there."""
        if self._torn.take(monotonic_ms()):
            self.follower.on_message(report, both_clocks())
            self._arm()

    def _verified_plan(self, payload: bytes) -> Plan | None:
        now = both_clocks()
        try:
            plan = decode(Plan, payload)
        except DecodeError as error:
            self.follower.refuse(str(error)[:200], now)
            return None
        wanted = Wanted("steerer", plan.steerer, to=at(self.broker), stays=True)
        if not self.words.believes(self.topic, payload, wanted):
            self.follower.refused += 1
            return None
        return plan

    def _report_torn(self, neighbour: BrokerId, report: TreeTorn) -> None:
        self.tell(neighbour, report)
        self._arm()

    def _on_time(self) -> None:
        now = both_clocks()
        if self._waiting and now.ms >= self._next_ms:
            waiting, self._waiting = self._waiting, {}
            self._next_ms = Millis(now.ms + PLAN_GAP_MS)
            for plan in waiting.values():
                self.follower.on_plan(plan, now)
        self.follower.on_time(now)
        self._arm()

    def _arm(self) -> None:
        following_ms = self._next_ms if self._waiting else None
        self._timer.set(earliest(self.follower.due_ms, following_ms))
