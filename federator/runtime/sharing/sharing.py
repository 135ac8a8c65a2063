"""Shared groups that span brokers, at work: tracks the members, and drives the parts.

``protocol.sharing`` decides. ``ShareOrigin`` sends what is published here to members elsewhere,
``ShareDestination`` publishes parcels for members here, ``StandIns`` take their share out of groups
here. Nothing of this runs while no broker has members of a group.

Source: docs/protocol.md 12.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import structlog
from mqtt5 import QoS
from msgspec import to_builtins

from federator.errors import DecodeError
from federator.protocol.effects import FilterRoute
from federator.protocol.filters import FilterTrie
from federator.protocol.forwarding.frames import Frame
from federator.protocol.messages.group_records import (
    MemberRecord,
    inbox_filter,
    inbox_of,
    parse_record,
)
from federator.protocol.sharing.assignment import Assignment
from federator.protocol.sharing.ledger import Ledger, LedgerParameters
from federator.protocol.sharing.membership import GroupKey, Membership, Orphans
from federator.protocol.sharing.parcels import Confirmation, unpack_parcel
from federator.protocol.types import BrokerId, Epoch
from federator.runtime.data.data_path import DataPath
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms
from federator.runtime.sharing.destination import Returned, ShareDestination
from federator.runtime.sharing.file import ShareFile
from federator.runtime.sharing.origin import ShareCounters, ShareOrigin

LISTED_MAX: Final = 1_000
"""Groups in one answer about our state."""

INEXACT_LOGGED_MAX: Final = 1_000
"""Inexact groups that we remember as logged."""

INEXACT_AT_ONCE_MAX: Final = 16
"""Groups checked in one turn, each of which may overlap all others."""

MakeLink = Callable[[int, LinkObserver], MqttLink]
"""Makes and runs our stand-in number ``i``."""

Taken = Callable[[memoryview, list[Inbound]], None]
"""Gets what stand-ins take out of their groups."""

_log = structlog.get_logger()


class StandIns(LinkObserver):
    """Connections of ours that stand in shared groups for members elsewhere.

    Number ``i`` stands in every group that needs more than ``i`` stand-ins. Their sessions end with
    their connections: what is dealt out while they are away goes to members.
    """

    def __init__(self, make_link: MakeLink, taken: Taken) -> None:
        self._make_link = make_link
        self._taken = taken
        self.links: list[MqttLink] = []  # of all stand-ins there ever were

    def want(self, stand_ins: Mapping[GroupKey, int]) -> None:
        """Stand in these groups, with the given number of stand-ins in each."""
        for number in range(len(self.links), max(stand_ins.values(), default=0)):
            self.links.append(self._make_link(number, self))
        for number, link in enumerate(self.links):
            filters = {
                f"$share/{group}/{filter}"
                for (group, filter), count in stand_ins.items()
                if count > number
            }
            before = set(link.wanted_filters)
            if filters != before:
                link.unsubscribe(sorted(before - filters))
                link.subscribe(
                    live_filter(filter, QoS.EXACTLY_ONCE, as_published=True)
                    for filter in sorted(filters - before)
                )

    @property
    def standing(self) -> int:
        """How many stand-ins have all their places."""
        return sum(1 for link in self.links if link.wanted_filters and link.subscribed)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Pass on publications that members elsewhere must get."""
        self._taken(chunk, publishes)


@dataclass(kw_only=True, eq=False, repr=False)
class Sharing:
    """Shared groups as one agent sees them."""

    self_id: BrokerId
    epoch: Epoch
    data_path: DataPath
    data_link: MqttLink
    make_link: MakeLink
    announce: Callable[[frozenset[str], frozenset[str]], None]  # besides clients' own: added, gone
    announces: Callable[[str], bool]  # whether the federation may know that we want a filter
    allows_export: Callable[[str], bool]  # whether clients' publications on a topic may leave
    parameters: LedgerParameters
    file: ShareFile
    wanted: FilterTrie  # what our ordinary subscribers want: updated here, read elsewhere
    stand_ins_max: int

    def __post_init__(self) -> None:
        self.membership = Membership(self.self_id)
        self.membership.reach(self.self_id)
        self.assignment = Assignment(self.self_id, stand_ins_max=self.stand_ins_max)
        self.counters = ShareCounters()
        self._members: dict[GroupKey, int] = {}  # among our clients
        self._watched = False
        self._own_filters = FilterTrie()  # of groups with members among our clients
        self._crossings: dict[str, int] = {}  # by such a filter
        self._announced: frozenset[str] = frozenset()
        self._needs_inbox = False
        self._gone: list[BrokerId] = []
        self._orphans = Orphans(keep_ms=self.parameters.keep_ms)
        self._orphans_timer = DeadlineTimer(self._on_orphans_old)
        self._changed = False
        self._logged_inexact: dict[GroupKey, str] = {}
        self._unchecked: dict[GroupKey, None] = {}
        self.stand_ins = StandIns(self.make_link, self._on_taken)
        self.origin = ShareOrigin(
            self_id=self.self_id,
            epoch=self.epoch,
            assignment=self.assignment,
            ledger=Ledger(self.parameters),
            counters=self.counters,
            send_to=self.data_path.send_to,
            publish_here=lambda run: self.destination.publish(run),
            allows_export=self.allows_export,
            want_inbox=self._want_inbox,
        )
        self.destination = ShareDestination(
            assignment=self.assignment,
            wanted=self.wanted,
            data_link=self.data_link,
            counters=self.counters,
            send_to=self.data_path.send_to,
            pass_on=self.origin.pass_on,
        )

    def resume(self) -> None:
        """Go on with the groups known before a restart."""
        for key in self.file.load():
            self._orphans.lose(key, now_ms=monotonic_ms())
        self._changed = True
        self.on_routes_set()

    # State

    def has_own_members(self, filter: str) -> bool:
        """Whether our own clients are members of a group with ``filter`` that we announce."""
        return self.announces(filter) and any(key[1] == filter for key in self._members)

    def snapshot(self) -> dict[str, int]:
        """Counters, for operators."""
        return {
            "groups_total": len(self.membership),
            "owed": len(self.origin.ledger),
            **to_builtins(self.counters),
            "records_waiting": self.membership.waiting,
            "stand_ins_standing": self.stand_ins.standing,
            "owed_bytes": self.origin.ledger.bytes,
        }

    def listed(self) -> list[dict[str, object]]:
        """The groups, for operators."""
        return [self._group_page(key) for key in islice(self.membership.groups, LISTED_MAX)]

    def explain(self, topic: str) -> list[dict[str, object]]:
        """The groups one member of which gets a publication on ``topic``."""
        return [self._group_page(key) for key in self.assignment.groups_of(topic)[:LISTED_MAX]]

    def _group_page(self, key: GroupKey) -> dict[str, object]:
        brokers = self.membership.brokers(key)
        return {
            "group": key[0],
            "filter": key[1],
            "members": {str(broker): share.count for broker, share in brokers.items()},
            "crossed": [broker for broker, share in brokers.items() if share.crossed],
            "stand_ins": self.assignment.stand_ins.get(key, 0),
            "inexact": self._logged_inexact.get(key),
        }

    # Changes

    def on_members(self, members: Mapping[GroupKey, int], *, watched: bool) -> None:
        """Note the new member counts of groups that changed among our own clients.

        ``watched``: clients here see all that is published here.
        """
        self._changed |= watched != self._watched
        self._watched = watched
        for key, count in members.items():
            filter = key[1]
            if count:
                self._members[key] = count
                if self._own_filters.add(filter):
                    self._crossings[filter] = len(self.wanted.overlapping(filter))
            elif self._members.pop(key, None) and all(k[1] != filter for k in self._members):
                self._own_filters.discard(filter)
                del self._crossings[filter]
        self.announce_members()

    def on_interest(self, added: frozenset[str], removed: frozenset[str]) -> None:
        """Note that ordinary subscribers of ours want other filters than before."""
        removed = frozenset(filter for filter in removed if self.wanted.discard(filter))
        added = frozenset(filter for filter in added if self.wanted.add(filter))
        self.destination.on_interest(added, removed)
        for filters, by in ((added, 1), (removed, -1)):
            for filter in filters:
                for shared in self._own_filters.overlapping(filter):
                    self._crossings[shared] += by
        self.announce_members()

    def on_route(self, filter: str, route: FilterRoute | None, *, lost: bool) -> None:
        """Note that a filter beginning with ``$`` has another route, or none; see ``SetRoute``."""
        record = parse_record(filter)
        if record is not None and record.broker != self.self_id:
            self._on_record(record, present=route is not None, lost=lost)
        inbox = inbox_of(filter)
        if inbox is not None and inbox != self.self_id:
            self.membership.reach(inbox, route is not None)
            if route is None:
                self._gone.append(inbox)
            self._changed = True

    def _on_record(self, record: MemberRecord, *, present: bool, lost: bool) -> None:
        key = (record.group, record.filter)
        if present:
            self.membership.add(record)
            self._orphans.find([key])
        else:
            self.membership.discard(record)
            if lost and not self.membership.has_records(key):
                self._orphans.lose(key, now_ms=monotonic_ms())
        self._changed = True

    def on_routes_set(self) -> bool:
        """Act on the changes of one event, which are all known; return whether there were any."""
        if not self._changed:
            return False
        self._changed = False
        orphans = self._orphans.groups
        self.assignment.update(self.membership, watched=self._watched, orphans=orphans)
        self.file.save(orphans.union(self.membership.groups))
        shared = self if self.assignment.wanted or self._announced else None
        self.data_path.share(self.assignment.wanted, shared)
        self.stand_ins.want(self.assignment.stand_ins)
        self._log_inexact()
        gone, self._gone = self._gone, []
        self.origin.on_members(gone)
        self._orphans_timer.set(self._orphans.next_deadline_ms())
        return True

    def _on_orphans_old(self) -> None:
        self._changed |= self._orphans.expire(now_ms=monotonic_ms())
        self.announce(frozenset(), frozenset())  # which applies the change
        self._orphans_timer.set(self._orphans.next_deadline_ms())

    # Publications

    def on_publishes(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        """Send to groups elsewhere what our clients published."""
        self.origin.on_publishes(chunk, publishes)

    def on_parcel(self, frame: Frame) -> None:
        """Handle a frame for our inbox: a parcel, or a confirmation."""
        try:
            content = unpack_parcel(frame.body)
        except DecodeError:
            self.counters.malformed += 1
            return
        if isinstance(content, Confirmation):
            self.origin.on_confirmation(frame.origin, content)
        else:
            self.destination.on_parcel(frame, content)

    def _on_taken(self, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Handle what our stand-ins got instead of a member."""
        elsewhere: list[tuple[str, memoryview, bool]] = []
        for inbound in publishes:
            packet, start, end = inbound
            returned = self.destination.take_back(inbound, chunk[start:end])
            if returned is not Returned.PUBLISHED_AGAIN:
                given_up = returned is Returned.GIVEN_UP
                elsewhere.append((packet.topic, chunk[start:end], given_up))
        self.origin.on_taken(elsewhere)

    # Announcements

    def _want_inbox(self) -> None:
        if not self._needs_inbox:
            self._needs_inbox = True
            # Not now: announcing may change the state in use.
            asyncio.get_running_loop().call_soon(self.announce_members)

    def announce_members(self) -> None:
        """Announce our members as our rules allow, and an inbox when others may send to it."""
        records: dict[str, MemberRecord] = {}
        allowed = ((key, n) for key, n in sorted(self._members.items()) if self.announces(key[1]))
        for key, count in allowed:
            record = MemberRecord(self.self_id, count, self._crossings[key[1]] > 0, *key)
            if (text := record.encode()) is not None:
                records[text] = record
        filters = frozenset(records)
        self._needs_inbox |= bool(filters)  # for good: without the inbox we count as gone
        if self._needs_inbox:
            filters |= {inbox_filter(self.self_id)}
        before, self._announced = self._announced, filters
        for text in before - filters:
            if (old := parse_record(text)) is not None:
                self.membership.discard(old)
        for record in records.values():
            self.membership.add(record)
        self._changed |= filters != before
        if self._changed:
            self.announce(filters - before, before - filters)

    def _log_inexact(self) -> None:
        """Log which groups cannot be served exactly once, and why, once for each reason; soon."""
        if not self._unchecked:
            asyncio.get_running_loop().call_soon(self._log_some_inexact)
        self._unchecked.update(dict.fromkeys((*self.membership.groups, *self._logged_inexact)))

    def _log_some_inexact(self) -> None:
        logged = self._logged_inexact
        for key in list(islice(self._unchecked, INEXACT_AT_ONCE_MAX)):
            del self._unchecked[key]
            reason = self.membership.why_inexact(key)
            if reason is None:
                logged.pop(key, None)
            elif logged.get(key) != reason and (key in logged or len(logged) < INEXACT_LOGGED_MAX):
                logged[key] = reason
                _log.warning("share.inexact", group=key[0], filter=key[1], reason=reason)
        if self._unchecked:
            asyncio.get_running_loop().call_soon(self._log_some_inexact)
