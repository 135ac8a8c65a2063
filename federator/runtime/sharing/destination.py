"""Parcels for our members: published on our broker, and confirmed when it has them.

Source: docs/protocol.md 12.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from typing import Final

from federator.errors import DecodeError
from federator.protocol.filters import FilterTrie
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import RunChecker, not_retained, packets_in, qos_of
from federator.protocol.sharing.assignment import Assignment
from federator.protocol.sharing.parcels import Arrivals, Parcel, pack_confirmation
from federator.protocol.sharing.returns import TRIES_MAX, Returns, publication_name
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.wire import Inbound, packet_id_at, publish_topic, split_run
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms
from federator.runtime.sharing.origin import SendTo, ShareCounters

POLL_S: Final = 0.005
"""Between two checks of what our broker acknowledged, while parcels are due."""

WAITING_MAX: Final = 4_096
"""Parcels that wait for room in our connection; the origin resends what does not fit."""

SETTLE_MS: Final = Millis(5_000)
"""After this long, all agents know that ordinary subscribers here want a filter."""


class Returned(Enum):
    """The fate of a publication that a stand-in got."""

    NOT_OURS = "not ours"
    PUBLISHED_AGAIN = "published again"
    GIVEN_UP = "given up"


@dataclass(slots=True)
class _Arrived:
    """Packets to publish, and the parcel to confirm then, if any."""

    packets: deque[bytes]
    tries: int
    parcel: tuple[BrokerId, Epoch, int] | None = None


@dataclass(kw_only=True, eq=False)
class ShareDestination:
    """Publishes parcels for shared groups at this broker, and confirms them."""

    assignment: Assignment
    wanted: FilterTrie  # what our ordinary subscribers want
    data_link: MqttLink
    counters: ShareCounters
    send_to: SendTo
    pass_on: Callable[[str, bytes], bool]  # sends to members elsewhere; false: there are none
    settle_ms: Millis = SETTLE_MS

    def __post_init__(self) -> None:
        self._arrivals = Arrivals()
        self._returns = Returns()
        self._checker = RunChecker()
        self._waiting: deque[_Arrived] = deque()
        self._settling: dict[str, Millis] = {}  # when each settles, the earliest first
        self._settle_timer = DeadlineTimer(self._on_settled)
        self._poll: asyncio.Handle | None = None

    def on_interest(self, added: frozenset[str], removed: frozenset[str]) -> None:
        """Our ordinary subscribers want other filters: publications for them also serve members.

        ``wanted`` has the new state already.
        """
        for filter in removed:
            self._settling.pop(filter, None)
        self._settling |= dict.fromkeys(added, Millis(monotonic_ms() + self.settle_ms))
        self._settle_timer.set(next(iter(self._settling.values()), None))

    def on_parcel(self, frame: Frame, parcel: Parcel) -> None:
        """Handle a parcel for our members; a duplicate is not published again."""
        run = bytes(parcel.run)
        numbered = parcel.number > 0
        count = frame.publications if run else 0
        try:
            self._checker.check(run, acknowledged=numbered, publications=count)
        except DecodeError:
            self.counters.malformed += 1
            return
        if len(self._waiting) >= WAITING_MAX:
            return
        name = (frame.origin, parcel.epoch, parcel.number)
        if numbered and not self._arrivals.admit(*name, sender=frame.sender):
            self._watch()
            return
        self._waiting.append(_Arrived(deque(split_run(run)), 1, name if numbered else None))
        self._work()

    def publish(self, run: bytes, *, tries: int = 1) -> None:
        """Publish packets on our broker, for members here."""
        self._waiting.append(_Arrived(deque(split_run(run)), tries))
        self._work()

    def take_back(self, packet: Inbound, raw: memoryview) -> Returned:
        """Publish again, up to a bound, what a stand-in got of our publications for members."""
        publication = packet[0]
        name = publication_name(publication.topic, publication.payload or b"")
        tries = self._returns.take(name, now_ms=monotonic_ms())
        if not tries:
            return Returned.NOT_OURS
        if tries >= TRIES_MAX or len(self._waiting) >= WAITING_MAX:
            return Returned.GIVEN_UP
        self.counters.returned += 1
        self.publish(bytes(not_retained(raw)), tries=tries + 1)
        return Returned.PUBLISHED_AGAIN

    def _work(self) -> None:
        """Publish waiting packets on our broker, as far as there is room."""
        while self._waiting:
            arrived = self._waiting[0]
            while arrived.packets:
                if not self._publish(arrived.packets[0], arrived.tries):
                    self._watch()
                    return
                arrived.packets.popleft()
            self._waiting.popleft()
            if arrived.parcel is not None:
                self._arrivals.published(*arrived.parcel, self.data_link.offered)
        self._watch()

    def _publish(self, packet: bytes, tries: int) -> bool:
        """Publish ``packet`` for members here, if necessary; return whether it is done with."""
        topic = publish_topic(packet)
        if not self._settling.keys() >= set(self.wanted.match(topic)):
            # It also comes as an ordinary publication: not twice.
            self.counters.left_to_others += 1
            return True
        share = self.assignment.share(topic)
        if not share.served_here and self.pass_on(topic, packet):
            self.counters.passed_on += 1
            return True
        qos = qos_of(packet)
        if qos:
            id_at = packet_id_at(packet)
            if not self.data_link.publish_packet(bytearray(packet), id_at, qos):
                return False
        elif not self.data_link.write_packets((packet,), 1):
            self.counters.lost += 1
            return True
        self.counters.delivered += tries == 1
        if share.stood_in:
            (publication,) = packets_in(packet)
            name = publication_name(topic, publication.payload or b"")
            self._returns.note(name, tries, now_ms=monotonic_ms())
        return True

    def _watch(self) -> None:
        """Check soon what our broker acknowledged."""
        if self._poll is None and (self._waiting or self._arrivals.busy):
            self._poll = asyncio.get_running_loop().call_later(POLL_S, self._on_poll)

    def _on_poll(self) -> None:
        self._poll = None
        self._arrivals.settle(self.data_link.settled_through)
        for origin, confirmation in self._arrivals.confirmations():
            body = pack_confirmation(confirmation)
            if not self.send_to(origin, (body,), len(body), 1):
                self.counters.no_way += 1
        if self._waiting:
            self._work()
        self._watch()

    def _on_settled(self) -> None:
        now_ms, settling = monotonic_ms(), self._settling
        for filter in [*takewhile(lambda key: settling[key] <= now_ms, settling)]:
            del settling[filter]
        if not settling:
            self._settling = {}  # a fresh dictionary: a drained one keeps its memory
        self._settle_timer.set(next(iter(self._settling.values()), None))
