"""Feeds discovery from the control connection, stores its table, and reports its changes.

The file is written at most once in ``SAVE_GAP_S``, and marked ``closed`` only by an orderly stop: a
process that was killed may have acknowledged log lines without writing their effect, so its
successor must not consider the table complete. A file that can no longer be written is renamed: its
content is outdated by an unknown time.

Source: docs/ARCHITECTURE.md, "Discovery".
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, assert_never

import msgspec
import structlog
from mqtt5 import PublishPacket, QoS, TopicFilter

from federator.config.sections import DiscoverySettings, ShareSettings
from federator.protocol import discovery as pure
from federator.protocol.effects import Notice
from federator.protocol.messages.topics import probe_topic, registrations_topic
from federator.protocol.types import Millis
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.process.clocks import (
    DeadlineTimer,
    DutyCycle,
    monotonic_ms,
    until_beat_s,
    wall_clock_ms,
)
from federator.runtime.process.notices import log_notice
from federator.runtime.storage import damage

FILE_NAME = "subscriptions.msgpack"
SAVE_GAP_S = 1.0
VERSION_CHARS_MAX = 80

_NOTHING = frozenset[str]()

_log = structlog.get_logger()


class SavedDiscovery(msgspec.Struct, array_like=True, frozen=True):
    """The content of the file: whether it was written at an orderly stop, when, and the record."""

    closed: bool
    saved_at_ms: int
    record: bytes


REMOVED_AT_ONCE = 256
"""Unwanted filters removed in one turn of the loop: some milliseconds."""


@dataclass(eq=False, repr=False)
class Discovery:
    """Learns what the clients of our own broker subscribe to.

    Args:
        members_changed: Called when groups gained or lost members, when groups span brokers;
            without it, shared filters are wanted as others are.
        control_filters: All subscriptions of the control connection.
        recall: Called before that connects, with what an earlier process subscribed over it.
        call_roll: Asks gateways and our other programs at our broker to subscribe again.
        own_links: Our other connections to this broker. Both are called whenever the control
            connection comes up: we may have missed log lines about them.
        inherit: The knowledge of another agent at this broker, if we have none yet.
    """

    settings: DiscoverySettings
    federation: str
    own_id: str  # client id of the control connection
    state_dir: Path
    interest_changed: Callable[[frozenset[str], frozenset[str]], None]  # added, removed
    share: ShareSettings = field(default_factory=ShareSettings)
    members_changed: Callable[[pure.MembersChanged], None] | None = None
    call_roll: Callable[[], None] = lambda: None
    control_filters: Callable[[], Iterable[str]] = tuple
    recall: Callable[[Iterable[str]], None] = lambda filters: None
    own_links: Callable[[], Iterable[MqttLink]] = tuple
    inherit: Callable[[], pure.DiscoveryRecord | None] | None = None

    def __post_init__(self) -> None:
        settings, share = self.settings, self.share
        self.registrations_topic = registrations_topic(self.federation)
        probe = probe_topic(self.federation)
        self._probes = (probe, f"$share/federator/{probe}")
        self._path = self.state_dir / FILE_NAME
        self._outdated_path = self.state_dir / f"{FILE_NAME}.outdated"
        self._unanswered: list[MqttLink] = []  # our links without an answer when we came up
        self.known = pure.Discovery(  # as far as the broker's log shows
            own_id=self.own_id,
            parameters=pure.DiscoveryParameters(
                log_topics=settings.log_topics,
                filters=settings.filters,
                match_all=settings.match_all,
                groups_span_brokers=self.members_changed is not None,
                groups_max=share.groups_max,
                client_groups_max=share.client_groups_max,
                widen=settings.widen,
                widen_to=settings.widen_to,
                registration_ttl_ms=Millis(settings.registration_ttl_ms),
                unlogged_subscriptions=settings.unlogged_subscriptions,
            ),
        )
        self.broker_version: str | None = None
        self._probing = False
        self._link: MqttLink | None = None
        # Not reported yet, like those in _members.
        self._added, self._removed = set[str](), set[str]()
        self._members: pure.MembersChanged | None = None
        self._next_turn: asyncio.Handle | None = None
        self._timer = DeadlineTimer(self._on_time)
        self._saved_revision = -1
        self._complained = False
        self._encoding = DutyCycle()

    @property
    def told(self) -> frozenset[str]:
        """All filters reported as wanted to ``interest_changed``."""
        return (self.known.wanted - self._added) | self._removed

    def subscriptions(self) -> list[TopicFilter]:
        """The subscriptions of the control connection: the log first, so that it reports the rest.

        All at one QoS: log lines and counts must stay in order.
        """
        topics = (*pure.LOG_TOPICS, *pure.SYS_TOPICS) if self.settings.log_topics else ()
        filters = [
            TopicFilter(topic, max_qos=QoS.AT_LEAST_ONCE, retain_as_published=False)
            for topic in topics
        ]
        if self.settings.new_regular_topic:
            filters.append(live_filter(self.registrations_topic))
        return filters

    def snapshot(self) -> dict[str, Any]:
        """The state for operators, as JSON."""
        snapshot = asdict(self.known.snapshot())
        since_ms = snapshot.pop("unheard_before_ms")
        before = None if since_ms is None else wall_clock_ms() - monotonic_ms() + since_ms
        snapshot["asks_for"] = list(self.settings.widen_to) if snapshot["widened"] else []
        snapshot["unheard_before"] = "" if before is None else _utc(before)
        return snapshot

    def record(self) -> pure.DiscoveryRecord:
        """A record with which another agent at this broker may begin."""
        return self.known.record(now_ms=monotonic_ms())

    def part(self) -> Part:
        topics = (*pure.LOG_TOPICS, *pure.SYS_TOPICS, self.registrations_topic)
        return Part(
            subscriptions=self.subscriptions(),
            topics=dict.fromkeys(topics, self.on_publish),
            tasks={"discovery": self.run},
            last=True,  # other parts get a log line before it changes what our clients want
        )

    # Events

    def on_up(self, link: MqttLink, *, session_present: bool) -> None:
        """The control connection is up: begin to receive the broker's log."""
        self._link = link
        now_ms = monotonic_ms()
        self._perform(self.known.on_broker_up(session_present=session_present, now_ms=now_ms))
        self._hold_own()

    def on_down(self) -> None:
        """The control connection is lost: log lines may be missed."""
        self._perform(self.known.on_broker_down(now_ms=monotonic_ms()))

    def on_publish(self, packet: PublishPacket) -> None:
        """Handle a log line, a count of the broker, or a filter that a client registers.

        The next ``tell_changes`` reports the changes, those of many lines at once.
        """
        if self._unanswered:
            self._hold_answered()
        topic, payload, now_ms = packet.topic, packet.payload, monotonic_ms()
        if topic in pure.LOG_TOPICS:
            effects = self.known.on_log(topic, payload, now_ms=now_ms)
        elif topic in pure.SYS_TOPICS:
            if topic == pure.VERSION_TOPIC:
                self.broker_version = payload.decode(errors="replace")[:VERSION_CHARS_MAX]
            effects = self.known.on_sys(topic, payload, now_ms=now_ms, retained=packet.retain)
        else:
            effects = self.known.on_regular_topic(payload, now_ms=now_ms)
        self._note(effects)

    def on_packet(self, packet_id: int, *, duplicate: bool) -> None:
        """Track the identifiers of all packets at QoS 1, before they are handled."""
        self._note(self.known.on_packet(packet_id, duplicate=duplicate, now_ms=monotonic_ms()))

    def tell_changes(self) -> None:
        """Report the changes of our clients' interest since the last call.

        At most ``REMOVED_AT_ONCE`` removals in a turn of the loop: a leaving client may have had
        any number, and removals are not urgent.
        """
        added = removed = _NOTHING  # mostly, and twice a second
        if self._added:
            added, self._added = frozenset(self._added), set()
        if self._removed and self._next_turn is None:
            at_once = min(REMOVED_AT_ONCE, len(self._removed))
            removed = frozenset(self._removed.pop() for _ in range(at_once))
            self._next_turn = asyncio.get_running_loop().call_soon(self._report_more)
        if added or removed:
            self.interest_changed(added, removed)
        members, self._members = self._members, None
        if members is not None:
            assert self.members_changed is not None, "groups span brokers"
            self.members_changed(members)
        self._timer.set(self.known.next_deadline_ms())

    def on_mark_sent(self) -> None:
        """Note that a mark among the lines was sent."""
        self._perform(self.known.on_mark_sent(now_ms=monotonic_ms()))

    def _report_more(self) -> None:
        self._next_turn = None
        self.tell_changes()

    async def run(self) -> None:
        """Load the file, keep it up to date until cancelled, then close it.

        Start it before the control connection can be up.
        """
        assert self._link is None, "the table is loaded before the connection is up"
        self._load()
        try:
            while True:
                await asyncio.sleep(max(until_beat_s(SAVE_GAP_S), self._encoding.rest_s))
                if self.known.revision != self._saved_revision:
                    await self._save()
        finally:
            self._timer.set(None)
            if self._next_turn is not None:
                self._next_turn.cancel()
            self._write(self._content(closed=True))

    # Within

    def _hold_own(self) -> None:
        """Count the subscriptions of our own connections: log lines about them may be missing."""
        probes = self._probes if self._probing else ()
        self._hold(self.own_id, [*self.control_filters(), *probes])
        links = list(self.own_links())
        self._unanswered = [link for link in links if not link.subscribed]
        for link in links:
            # A link without an answer counts as nothing: its broker may have forgotten it, and
            # clients without log lines would make up for it in the count.
            self._hold(link.client_id, _granted(link) if link.subscribed else ())

    def _hold(self, client_id: str, filters: Iterable[str]) -> None:
        own = frozenset(filters)
        now_ms = monotonic_ms()
        self._perform(self.known.on_own_subscriptions(client_id, own, now_ms=now_ms))

    def _hold_answered(self) -> None:
        """Count our subscriptions that the broker answered since we came up.

        It may have logged them before. Not earlier: what it does not count yet would hide a
        client's.
        """
        for link in [link for link in self._unanswered if link.subscribed]:
            self._unanswered.remove(link)
            self._hold(link.client_id, _granted(link))

    def _load(self) -> None:
        current = self._read(self._path)
        saved = current or self._read(self._outdated_path)
        if saved is None and self.inherit is not None and (record := self.inherit()):
            saved = current = record, 0
        if saved is None:
            self._on_time()
            return
        record, away_ms = saved
        outdated, now_ms = current is None, monotonic_ms()
        if outdated:
            away_ms = None
        self._perform(self.known.load(record, away_ms=away_ms, now_ms=now_ms, outdated=outdated))
        # A part that is now off may have had subscriptions, which the broker would go on counting.
        self.recall(self.known.filters_of(self.own_id))
        # From now on, until an orderly stop, the file may be incomplete.
        self._write(self._content(closed=False))

    async def _save(self) -> None:
        """Write the file in a thread, and always wait for that thread."""
        with self._encoding.working():
            content = self._content(closed=False)
        writing = asyncio.ensure_future(asyncio.to_thread(self._write, content))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing
            raise

    def _perform(self, effects: list[pure.DiscoveryEffect]) -> None:
        self._note(effects)
        self.tell_changes()

    def _note(self, effects: list[pure.DiscoveryEffect]) -> None:
        for effect in effects:
            match effect:
                case pure.InterestChanged(added, removed):
                    _move(removed, self._added, self._removed)
                    _move(added, self._removed, self._added)
                case pure.MembersChanged(members, watched):
                    before = {} if self._members is None else self._members.members
                    self._members = pure.MembersChanged(before | members, watched)
                case pure.ProbeCounts(subscribe):
                    self._probe(subscribe)
                case pure.CountOwn():
                    self._hold_own()
                case pure.CallRoll():
                    self.call_roll()
                case Notice():
                    log_notice(effect)
                case _:
                    assert_never(effect)

    def _probe(self, subscribe: bool) -> None:
        if self._link is None:
            return
        probing_before, self._probing = self._probing, subscribe
        # An earlier process may have left them in our session. Only subscribed filters are dropped,
        # see ``Reconciliation.drop_probe``.
        if subscribe or not probing_before:
            self._link.subscribe(live_filter(probe, QoS.AT_MOST_ONCE) for probe in self._probes)
        if not subscribe:
            self._link.unsubscribe(self._probes)

    def _on_time(self) -> None:
        self._perform(self.known.on_deadline(now_ms=monotonic_ms()))

    def _content(self, *, closed: bool) -> bytes:
        self._saved_revision = self.known.revision
        record = pure.encode_record(self.record())
        return msgspec.msgpack.encode(SavedDiscovery(closed, wall_clock_ms(), record))

    def _write(self, content: bytes) -> None:
        try:
            damage.write(self._path, content)
        except OSError as error:
            if not self._complained:  # it is retried every second
                self._complained = True
                _log.warning("discovery.not_saved", path=str(self._path), why=error.strerror)
            self._saved_revision = -1
            with contextlib.suppress(OSError):
                self._path.replace(self._outdated_path)
        else:
            self._complained = False
            self._outdated_path.unlink(missing_ok=True)

    def _read(self, path: Path) -> tuple[pure.DiscoveryRecord, int | None] | None:
        """The record in a file, and how long ago it was closed (``None``: it never was)."""
        return damage.read(path, _decode)


def _decode(content: bytes) -> tuple[pure.DiscoveryRecord, int | None]:
    saved = msgspec.msgpack.decode(content, type=SavedDiscovery)
    away_ms = wall_clock_ms() - saved.saved_at_ms
    record = pure.decode_record(saved.record)
    return record, away_ms if saved.closed and away_ms >= 0 else None


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _move(filters: Iterable[str], source: set[str], to: set[str]) -> None:
    """Remove ``filters`` from ``source``; add those that were not there to ``to``."""
    for filter in filters:
        if filter in source:
            source.discard(filter)
        else:
            to.add(filter)


def _granted(link: MqttLink) -> list[str]:
    refused = link.refused_filters
    return [filter for filter in link.wanted_filters if filter not in refused]
