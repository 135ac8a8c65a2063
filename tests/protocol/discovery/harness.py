"""A discovery driven by hand: what it is told, and what it wants as a result."""

from federator.protocol.discovery import (
    CallRoll,
    Discovery,
    DiscoveryEffect,
    DiscoveryParameters,
    DiscoveryRecord,
    InterestChanged,
    ProbeCounts,
    decode_record,
    encode_record,
)
from federator.protocol.discovery.log_lines import LOG_TOPICS, SUBSCRIBE_TOPIC, ClientEvent
from federator.protocol.effects import Notice
from federator.protocol.types import Millis
from tests.protocol.discovery.model_broker import printed

OWN_ID = "federator-1-ctl"
PLAIN = "$SYS/broker/subscriptions/count"
SHARED = "$SYS/broker/shared_subscriptions/count"
CONNECTED = "$SYS/broker/clients/connected"
UPTIME = "$SYS/broker/uptime"
VERSION = "$SYS/broker/version"


class Driven:
    """Feeds one discovery and applies its effects.

    Attributes:
        wanted: The filters wanted, put together from the changes it reported.
        own: Subscriptions that our own connection holds, as the broker counts them.
    """

    def __init__(self, *, version: str = "2.0.11", **parameters) -> None:
        self.now_ms = Millis(1_000)
        self.version = version
        self.wanted: set[str] = set()
        self.notices: list[Notice] = []
        self.probes: list[bool] = []
        self.rolls = 0  # how often the roll was called
        self.own = 0
        self.discovery = Discovery(own_id=OWN_ID, parameters=DiscoveryParameters(**parameters))

    def apply(self, effects: list[DiscoveryEffect]) -> None:
        for effect in effects:
            match effect:
                case InterestChanged(added, removed):
                    assert not added & self.wanted, "added twice"
                    assert removed <= self.wanted, "removed what was not there"
                    self.wanted = (self.wanted | added) - removed
                case ProbeCounts(subscribe):
                    self.probes.append(subscribe)
                case CallRoll():
                    self.rolls += 1
                case Notice():
                    self.notices.append(effect)
        assert self.wanted == self.discovery.wanted

    def names(self) -> list[str]:
        return [notice.name for notice in self.notices]

    def later(self, ms: int) -> None:
        """Time passes; deadlines are met at their time."""
        end = Millis(self.now_ms + ms)
        while (at := self.discovery.next_deadline_ms()) is not None and at <= end:
            self.now_ms = max(self.now_ms, at)
            self.apply(self.discovery.on_deadline(now_ms=self.now_ms))
        self.now_ms = end

    def up(self, *, session_present: bool = False) -> None:
        """Our connection is up, and our four log subscriptions are granted."""
        effects = self.discovery.on_broker_up(session_present=session_present, now_ms=self.now_ms)
        self.apply(effects)
        self.sys(VERSION, f"mosquitto version {self.version}", retained=True)
        for topic in LOG_TOPICS:
            line = f"1700000000: {OWN_ID} 1 {topic}".encode()
            self.apply(self.discovery.on_log(SUBSCRIBE_TOPIC, line, now_ms=self.now_ms))
        self.own = len(LOG_TOPICS)

    def down(self) -> None:
        self.apply(self.discovery.on_broker_down(now_ms=self.now_ms))

    def log(self, *events: ClientEvent) -> None:
        for event in events:
            topic, line = printed(event, version=self.version)
            self.apply(self.discovery.on_log(topic, line, now_ms=self.now_ms))

    def packets(self, *ids: int, duplicate: bool = False) -> None:
        for id in ids:
            self.apply(self.discovery.on_packet(id, duplicate=duplicate, now_ms=self.now_ms))

    def mark(self) -> None:
        self.apply(self.discovery.on_mark_sent(now_ms=self.now_ms))

    def line(self, topic: str, text: str) -> None:
        self.apply(self.discovery.on_log(topic, text.encode(), now_ms=self.now_ms))

    def sys(self, topic: str, value: object, *, retained: bool = False) -> None:
        self.apply(
            self.discovery.on_sys(topic, str(value).encode(), now_ms=self.now_ms, retained=retained)
        )

    def counts(self, plain: int, shared: int = 0) -> None:
        """The broker counts: its clients' subscriptions, and ours besides."""
        self.sys(PLAIN, plain + self.own)
        self.sys(SHARED, shared)
        self.later(600)

    def count_plain(self, plain: int = 0) -> None:
        """Only the plain count has changed."""
        self.sys(PLAIN, plain + self.own)
        self.later(600)

    def settle(self, plain: int = 0, shared: int = 0) -> None:
        self.up()
        self.counts(plain, shared)
        assert self.discovery.snapshot().trusted


def restarted(agent: Driven, *, away_ms: int | None, outdated: bool = False) -> Driven:
    stored = encode_record(agent.discovery.record(now_ms=agent.now_ms))
    successor = Driven()
    record: DiscoveryRecord = decode_record(stored)
    load = successor.discovery.load
    effects = load(record, away_ms=away_ms, now_ms=successor.now_ms, outdated=outdated)
    successor.apply(effects)
    return successor
