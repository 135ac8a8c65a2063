"""Keeps the data connection subscribed to the cover, through changes under traffic.

``protocol.data.cover_transition`` decides; this module subscribes, sends marks to itself, and sorts
copies while there may be any. In the steady state ``sorting`` is false, and publications bypass
this module.

Source: docs/ARCHITECTURE.md, "When the cover changes".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, assert_never

import structlog
from mqtt5 import PublishPacket, QoS, TopicFilter

from federator.protocol.data import cover_transition as transitions
from federator.protocol.filters import CoverChange, FilterTrie
from federator.protocol.forwarding.publications import joined
from federator.protocol.messages.topics import cover_topic
from federator.protocol.types import Millis
from federator.runtime.data.copies import Copies, without_identifiers
from federator.runtime.mqtt.link import Inbound, MqttLink
from federator.runtime.mqtt.own_marks import OwnMarks
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms, wall_clock_us
from federator.runtime.storage.filter_file import FilterFile

MARK_GAP_MS: Final = 1_000
"""Another mark is sent when one does not come back for so long."""

STEP_GAP_MS: Final = 5
"""Between two steps of a large change."""

KEEP_US: Final = 86_400_000_000
"""How old a state restored by the broker may be: a day, where Mosquitto saves every half hour."""

_log = structlog.get_logger()


@dataclass(eq=False, repr=False)
class SessionFilters:
    """What our session at the broker may hold, remembered beyond this process.

    A broker that was killed restores the sessions that it saved last, up to half an hour ago. A
    filter that we unsubscribed since is subscribed again, and where it overlaps another, each
    publication comes twice. So all subscriptions are listed on disk, and the next process
    unsubscribes those that are not wanted. Measured on Mosquitto 2.0.11 (``autosave_interval``,
    ``persistence``).
    """

    file: FilterFile  # each filter: 0 while it is subscribed, then when it was unsubscribed
    _complained: bool = field(default=False, init=False)

    def recalled(self) -> list[str]:
        """The subscriptions of earlier processes, without those too old to come back."""
        oldest_us = wall_clock_us() - KEEP_US
        listed = self.file.load()
        old = {filter_ for filter_, gone_us in listed.items() if 0 < gone_us < oldest_us}
        self._alter(dict.fromkeys(old))
        return [filter_ for filter_ in listed if filter_ not in old]

    def note(self, filters: Iterable[str], *, gone_us: int = 0) -> None:
        """Note that ``filters`` are about to be subscribed or, with ``gone_us``, unsubscribed."""
        self._alter(dict.fromkeys(filters, gone_us))

    def clear(self, *, but: Iterable[str]) -> None:
        """The broker has no session of ours: it can restore no older one."""
        self._alter(dict.fromkeys(self.file.load().keys() - set(but)))

    def _alter(self, changes: Mapping[str, int | None]) -> None:
        try:
            self.file.alter(changes)
        except OSError as error:
            if not self._complained:
                self._complained = True
                _log.warning("cover.list_failed", reason=error.strerror or str(error))


@dataclass(eq=False, repr=False)
class CoverSubscriber:
    """The cover's subscriptions on the data connection.

    Args:
        link: The data connection. Its owner calls ``on_up`` and ``on_down``, and passes received
            publications through ``once`` while ``sorting``: copies or identifiers may come.
        at_once: Filters that one step of a change looks at.
    """

    link: MqttLink
    federation: str
    session: SessionFilters
    at_once: int = transitions.AT_ONCE

    def __post_init__(self) -> None:
        self.sorting = False
        self.duplicates_dropped = 0
        self._topic = cover_topic(self.federation)
        self._transition = transitions.CoverTransition(self.at_once)
        self._own_marks = OwnMarks()
        self._copies = Copies()
        self._expected: tuple[FilterTrie, FilterTrie, int] | None = (FilterTrie(), FilterTrie(), 0)
        self._timer = DeadlineTimer(self._on_silence)
        self._next_step = DeadlineTimer(self.go_on)

    def start(self) -> None:
        """Subscribe to our own marks. Before the connection runs."""
        self.link.recall(self.session.recalled())
        # At QoS 1: behind publications of QoS 1 and 2.
        self.link.subscribe([live_filter(self._topic)])

    def change(self, change: CoverChange) -> None:
        """Subscribe to the changed cover."""
        self._perform(self._transition.change(change))

    @property
    def unfinished(self) -> bool:
        """Whether ``go_on`` has more to do."""
        return self._transition.unfinished

    @property
    def waits(self) -> bool:
        """Whether some wanted filters may not have been subscribed yet."""
        return self._transition.waits

    def go_on(self) -> None:
        """Take the next step of a large change."""
        self._perform(self._transition.go_on())

    def on_up(self, *, session_present: bool) -> None:
        if not session_present:
            self.session.clear(but=self.link.wanted_filters)
        limits = self.link.limits
        has_identifiers = limits is not None and limits.subscription_ids_available
        self._perform(
            self._transition.on_up(identifiers=has_identifiers, session_present=session_present)
        )

    def on_down(self) -> None:
        self._transition.on_down()

    def once(
        self, chunk: memoryview, publishes: Iterable[Inbound]
    ) -> tuple[memoryview, list[Inbound]]:
        """The publications of one read, without second copies, identifiers and marks."""
        marks: list[int] = []
        kept: list[tuple[PublishPacket, bytes | memoryview]] = []
        for packet, start, end in publishes:
            if packet.topic == self._topic:
                mark = self._own_marks.read(packet)
                if mark is not None:
                    marks.append(mark)
                    self._copies.separate()
                continue
            if self._copies.is_second(packet):
                self.duplicates_dropped += 1
                continue
            wire = without_identifiers(packet) if packet.subscription_ids else chunk[start:end]
            kept.append((packet, wire))
        for mark in marks:
            self._on_mark(mark)
        return joined(kept)

    def _on_mark(self, number: int) -> None:
        transition = self._transition
        altered = transition.altered
        if transition.resuming:
            altered = chain(altered, self.link.wanted_filters)
        self._perform(transition.on_mark(number, answered=self.link.answered(altered)))

    def _on_silence(self) -> None:
        given_up = self._transition.given_up
        self._perform(self._transition.on_silence())
        if self._transition.given_up > given_up:
            _log.warning("cover.mark_lost", topic=self._topic, stages=self._transition.given_up)

    def _perform(self, orders: Iterable[transitions.Order]) -> None:
        self._prepare()
        for order in orders:
            match order:
                case transitions.Subscribe(filters, identifier):
                    self.session.note(filters)
                    self.link.subscribe(map(_cover_filter, filters), identifier=identifier)
                case transitions.Unsubscribe(filters):
                    self.session.note(filters, gone_us=wall_clock_us())
                    self.link.unsubscribe(filters)
                case transitions.Mark(number):
                    self.link.publish(self._topic, self._own_marks.write(number), qos=1)
                    self._timer.set(Millis(monotonic_ms() + MARK_GAP_MS))
                case _:
                    assert_never(order)
        if self.unfinished:
            self._next_step.set_sooner(Millis(monotonic_ms() + STEP_GAP_MS))

    def _prepare(self) -> None:
        """Expect the copies of the transition's stage; stop the timer when it is steady."""
        transition = self._transition
        self.sorting = transition.marked
        expected = None
        if not transition.resuming:
            expected = transition.retiring, transition.arriving, transition.identifier
        if self._expected != expected:
            self._expected = expected
            if expected is None:
                self._copies.expect_any()
            else:
                self._copies.expect(*expected)
        if transition.stage is transitions.Stage.STEADY and not transition.resuming:
            self._timer.set(None)


def _cover_filter(pattern: str) -> TopicFilter:
    return live_filter(pattern, QoS.EXACTLY_ONCE, no_local=True, as_published=True)
