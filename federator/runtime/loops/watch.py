"""Watches for loops while a bridge is connected to our broker.

Mosquitto reports a bridge in its log and on ``$SYS/broker/connection/<id>/state``, at both ends.
Without a bridge publications are checked now and then, and tested only on topics on which they take
turns (``protocol.loops.turns``). ``protocol.loops.detection`` decides; this module tracks the
bridges, holds publications, and releases them.

Source: docs/rules.md; mosquitto.conf(5), ``notifications``.
"""

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

import structlog
from mqtt5 import PublishPacket, QoS, TopicFilter

from federator.config.topics import LoopSettings
from federator.protocol.bounded_cache import BoundedCache
from federator.protocol.client_names import OWN_PREFIX
from federator.protocol.filters import matches
from federator.protocol.forwarding.publications import joined, packets_in
from federator.protocol.loops.accounts import Digest
from federator.protocol.loops.detection import (
    Fate,
    LoopDetector,
    LoopEffect,
    LoopFound,
    LoopParameters,
    LoopsOver,
    Release,
    without_repetition,
)
from federator.protocol.loops.turns import Turns, glances
from federator.protocol.types import Millis
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.wire import Inbound
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms

BRIDGES_MAX = 64
HELD_BYTES_MAX = 16 * 1024 * 1024
TOPICS_MAX = 16_384
"""Topics with a remembered short form."""

DOUBT_MS = 10_000
"""After turns without a known bridge, topics with turns are watched for so long."""

STATE_FILTER = "$SYS/broker/connection/+/state"
NOTICE_TOPIC = "$SYS/broker/log/N"

_STATE = re.compile(r"\$SYS/broker/connection/(.+)/state", re.DOTALL)
_CONNECTED = re.compile(r"New bridge connected from (\S+):\d+ as (.+) \(p\d+, c[01]", re.DOTALL)
_ENDINGS = (" disconnected", " closed its connection", " has exceeded timeout", " [")

_log = structlog.get_logger()


@dataclass(eq=False, repr=False)
class LoopWatch:
    """Watches for loops at the broker of one agent."""

    settings: LoopSettings
    data_topic: str  # topic of frames, which no client published
    pass_on: Callable[[memoryview, Sequence[Inbound]], None]  # takes released publications

    def __post_init__(self) -> None:
        settings = self.settings
        self.bridges: dict[str, str] = {}  # client id -> address, if that is known
        self.held_bytes = 0
        self.detector = LoopDetector(
            LoopParameters(
                turnaround_ms_max=settings.turnaround_ms_max,
                repeats_min=settings.repeats_min,
                window_ms=settings.window_ms,
            ),
            chance=random.Random().random,
            trusted=self._is_trusted,
            # The broker reports when a known bridge leaves.
            retests=lambda: settings.watch == "always" or not self.bridges,
        )
        self._turns = Turns(gap_ms_max=settings.turnaround_ms_max, turns_min=settings.repeats_min)
        self._doubts_until_ms = Millis(0)
        self._held: list[tuple[PublishPacket, bytes]] = []
        self._key = BoundedCache(without_repetition, answers_max=TOPICS_MAX)
        self._timer = DeadlineTimer(self._on_time)
        self.watching = settings.watch == "always"  # always, or beside a bridge: all the time

    def subscriptions(self) -> list[TopicFilter]:
        """The subscriptions of the control connection."""
        if self.settings.watch == "never":
            return []
        return [TopicFilter(STATE_FILTER, max_qos=QoS.AT_LEAST_ONCE)]

    def part(self) -> Part:
        return Part(
            subscriptions=self.subscriptions(),
            topics=dict.fromkeys((STATE_FILTER, NOTICE_TOPIC), self.on_publish),
            leave=self.stop,
        )

    def on_publish(self, packet: PublishPacket) -> None:
        """Handle our broker's reports about its bridges."""
        if self.settings.watch == "never":
            return
        if (state := _STATE.fullmatch(packet.topic)) is not None:
            if state.group(1).startswith(OWN_PREFIX):
                pass  # an agent, which uses the same topic
            elif packet.payload == b"1":
                self._bridge_came(state.group(1), "")
            else:
                self._bridge_went(state.group(1))
        elif packet.topic == NOTICE_TOPIC:
            self._on_notice(packet.payload.decode(errors="replace"))

    def looks(self) -> bool:
        """Whether publications must go through ``sift``."""
        return self.watching or self._glances(monotonic_ms())

    def sift(
        self, chunk: memoryview, publishes: Sequence[Inbound]
    ) -> tuple[memoryview, Sequence[Inbound]]:
        """The publications of one read, without those that are held or have come back."""
        now_ms, detector, data_topic = monotonic_ms(), self.detector, self.data_topic
        marks = [None if p.topic == data_topic else self._mark_of(p) for p, _, _ in publishes]
        if not self.watching:
            for mark in filter(None, marks):
                self._turn(*mark, delivered=False, now_ms=now_ms)
            if not self._doubts(now_ms):
                return chunk, publishes
        fates = [
            Fate.PASS if mark is None else detector.on_intake(*mark, now_ms=now_ms)
            for mark in marks
        ]
        self._timer.set(self.detector.next_deadline_ms())
        if all(fate is Fate.PASS for fate in fates):
            return chunk, publishes
        passed: list[tuple[PublishPacket, memoryview]] = []
        for (packet, start, end), fate in zip(publishes, fates, strict=True):
            if fate is Fate.PASS:
                passed.append((packet, chunk[start:end]))
            elif fate is Fate.HOLD:
                self._held.append((packet, bytes(chunk[start:end])))
                self.held_bytes += end - start
        if self.held_bytes > HELD_BYTES_MAX:
            self._perform(self.detector.on_room_spent(now_ms=now_ms))
        return joined(passed)

    def note(self, run: bytes) -> None:
        """Note that we publish ``run``, which has well-formed packets, on our broker."""
        now_ms = monotonic_ms()
        glances = not self.watching and self._glances(now_ms)
        if not glances and not self.detector.loop_count:
            return
        for packet in packets_in(run):
            mark = self._mark_of(packet)
            if glances:
                self._turn(*mark, delivered=True, now_ms=now_ms)
            self.detector.on_delivered(*mark, now_ms=now_ms)

    def on_new_session(self) -> None:
        """Forget all bridges: in a new session we missed reports; the broker repeats them."""
        for id in list(self.bridges):
            self._bridge_went(id)

    def stop(self) -> None:
        """Release everything held: the agent leaves."""
        self._timer.set(None)
        self._release(all_of_it=True)

    # Within

    def _is_trusted(self, topic: str) -> bool:
        if not self.watching and topic not in self._turns:
            return True
        return any(matches(pattern, topic) for pattern in self.settings.trust)

    def _glances(self, now_ms: Millis) -> bool:
        """Whether to check for turns without a known bridge."""
        return self.settings.watch == "auto" and (glances(now_ms) or self._doubts(now_ms))

    def _doubts(self, now_ms: Millis) -> bool:
        """Whether some publications took turns lately, or are in a loop."""
        detector = self.detector
        return now_ms < self._doubts_until_ms or detector.loop_count + detector.suspects > 0

    def _mark_of(self, packet: PublishPacket) -> tuple[str, Digest]:
        """The key of equal publications: the topic's short form, and a hash."""
        key = self._key(packet.topic)
        return key, hash((key, packet.payload))

    def _turn(self, topic: str, digest: Digest, *, delivered: bool, now_ms: Millis) -> None:
        if self._turns.see(topic, digest, delivered=delivered, now_ms=now_ms):
            self._doubts_until_ms = Millis(now_ms + DOUBT_MS)

    def _on_notice(self, line: str) -> None:
        if (match_ := _CONNECTED.search(line)) is not None:
            self._bridge_came(match_.group(2), match_.group(1))
            return
        for id in self.bridges:
            _, client, rest = line.partition(f"Client {id}")
            if client and rest.startswith(_ENDINGS):
                self._bridge_went(id)
                return

    def _bridge_came(self, id: str, address: str) -> None:
        address_before = self.bridges.get(id)
        if address_before is None and len(self.bridges) >= BRIDGES_MAX:
            return
        self.bridges[id] = address or address_before or ""
        self.watching = True
        if address_before is None:
            _log.warning("bridge.found", bridge=id[:80])

    def _bridge_went(self, id: str) -> None:
        if self.bridges.pop(id, None) is None:
            return
        _log.info("bridge.gone", bridge=id[:80])
        self._perform(self.detector.forget_all())
        self._turns.forget()
        self._doubts_until_ms = Millis(0)
        self.watching = self.settings.watch == "always" or bool(self.bridges)

    def _on_time(self) -> None:
        self._perform(self.detector.on_deadline(now_ms=monotonic_ms()))

    def _perform(self, effects: Iterable[LoopEffect]) -> None:
        for effect in effects:
            match effect:
                case Release():
                    self._release()
                case LoopFound(topic, within_ms):
                    _log.warning(
                        "bridge.loop",
                        topic=topic[:80],
                        within_ms=within_ms,
                        bridges=self.named_bridges(),
                    )
                case LoopsOver(dropped):
                    _log.info("bridge.loop_over", dropped=dropped)
                case _:
                    assert_never(effect)
        self._timer.set(self.detector.next_deadline_ms())

    def named_bridges(self) -> list[str]:
        """The bridges at our broker, for people."""
        return [
            f"{id[:80]} from {address}" if address else id[:80]
            for id, address in sorted(self.bridges.items())
        ]

    def _release(self, *, all_of_it: bool = False) -> None:
        held, self._held, self.held_bytes = self._held, [], 0
        now_ms = monotonic_ms()
        passed: list[tuple[PublishPacket, bytes]] = []
        for packet, wire in held:
            key = self._key(packet.topic)
            digest = hash((key, packet.payload))
            fate = self.detector.on_released(key, digest, now_ms=now_ms)
            if fate is Fate.PASS or (fate is Fate.HOLD and all_of_it):
                passed.append((packet, wire))
            elif fate is Fate.HOLD:
                self._held.append((packet, wire))
                self.held_bytes += len(wire)
        if passed:
            self.pass_on(*joined(passed))
