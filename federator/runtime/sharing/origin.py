"""Publications for shared groups elsewhere, from our clients to the brokers that serve them.

``protocol.sharing`` decides which member gets one: this module cuts each read into parcels, sends
them, and carries out the ledger's orders.

Source: docs/protocol.md 12.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from federator.protocol.forwarding.publications import not_retained, qos_of
from federator.protocol.sharing.assignment import Assignment, Pick
from federator.protocol.sharing.ledger import Held, Ledger, Owed
from federator.protocol.sharing.membership import GroupKey
from federator.protocol.sharing.parcels import Confirmation, pack_parcel
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.mqtt.wire import Inbound
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms

SendTo = Callable[[BrokerId, Sequence[bytes | memoryview], int, int], bool]
"""Sends a frame to a broker's inbox: parts, bytes, publications. Returns whether there is a way."""

_log = structlog.get_logger()


@dataclass(slots=True)
class ShareCounters:
    """Counters of group sharing, in publications."""

    sent: int = 0  # accepted for members elsewhere, including those served again
    delivered: int = 0  # published on our broker for its members
    returned: int = 0  # among those, published again: one of our stand-ins had got it
    # Not published for members here: they get them with ordinary subscribers.
    left_to_others: int = 0
    passed_on: int = 0  # came for members that had left, and went to others
    resent: int = 0  # sent again for want of a confirmation
    reassigned: int = 0  # given to others because their broker was gone
    lost: int = 0  # given up, or refused by our own connection
    no_way: int = 0  # parcels and confirmations for which no neighbour led to the receiver
    malformed: int = 0  # parcels that do not decode


@dataclass(kw_only=True, eq=False)
class ShareOrigin:
    """Sends publications from this broker to shared groups elsewhere."""

    self_id: BrokerId
    epoch: Epoch  # ours; numbers of parcels belong to it
    assignment: Assignment
    ledger: Ledger
    counters: ShareCounters
    send_to: SendTo
    publish_here: Callable[[bytes], None]  # a run, for members here
    allows_export: Callable[[str], bool]  # whether clients' publications on a topic may leave
    want_inbox: Callable[[], None]  # called before we send a parcel that must be confirmed to us

    def __post_init__(self) -> None:
        self._timer = DeadlineTimer(self._on_time)

    def renew_epoch(self, epoch: Epoch) -> None:
        """Number parcels in another epoch of ours. Parcels in flight may come twice."""
        self.epoch = epoch

    def on_publishes(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        """Send what our clients published to groups that are served elsewhere."""
        if not self.assignment:
            return
        runs = _Runs()
        for packet, start, end in publishes:
            share = self.assignment.share(packet.topic)
            if (share.picks or share.orphans) and self.allows_export(packet.topic):
                for pick in share.picks:
                    runs.add(pick, chunk[start:end])
                if share.orphans:
                    runs.hold(share.orphans, chunk[start:end])
        self._send_runs(runs)

    def on_taken(self, taken: Iterable[tuple[str, memoryview, bool]]) -> None:
        """Send what our stand-ins got in place of members elsewhere.

        With each topic and packet: whether members here seem to be gone.
        """
        runs = _Runs()
        for topic, packet, given_up in taken:
            pick = self.assignment.taken(topic) if self.allows_export(topic) else None
            if pick is not None:
                runs.add(pick, packet)
            elif given_up:
                self._lose(1, "no members are left")
            else:  # to our own members: there are no others, or it may not leave
                self.publish_here(bytes(packet))
        self._send_runs(runs)

    def pass_on(self, topic: str, packet: bytes) -> bool:
        """Send elsewhere what came for members that have left; return whether there are any."""
        share = self.assignment.share(topic)
        if share.served_here or not share.picks:
            return False
        runs = _Runs()
        for pick in share.picks:
            runs.add(pick, memoryview(packet))
        self._send_runs(runs)
        return True

    def on_confirmation(self, by: BrokerId, confirmation: Confirmation) -> None:
        """Note that the broker ``by`` has parcels of ours."""
        if confirmation.epoch == self.epoch:
            now_ms = monotonic_ms()
            self._resend(self.ledger.confirm(by, confirmation.ranges, now_ms=now_ms))
            self._arm()

    def on_members(self, gone: Iterable[BrokerId]) -> None:
        """Serve others in place of ``gone`` brokers, and release what waited for members."""
        gone = sorted(set(gone))
        again = [owed for broker in gone for owed in self.ledger.gone(broker)]
        if again:
            count = sum(owed.count for owed in again)
            self.counters.reassigned += count
            _log.warning("share.reassigned", brokers=gone, publications=count)
        for entry in (*self.ledger.take_held(), *again):
            self._reassign(entry)
        self._arm()

    def _send_runs(self, runs: "_Runs") -> None:
        if not runs.parts and not runs.held:
            return
        now_ms = monotonic_ms()
        for orphans, parts in runs.held.items():
            self._hold(Held(orphans, b"".join(parts), len(parts), now_ms), now_ms)
        for (broker, groups, acknowledged), parts in runs.parts.items():
            held = Held(groups, b"".join(parts), len(parts), now_ms)
            self._send(broker, held, acknowledged, now_ms)
        self._arm()

    def _send(self, broker: BrokerId, held: Held, acknowledged: bool, now_ms: Millis) -> None:
        self.counters.sent += held.count
        if broker == self.self_id:
            self.publish_here(held.run)
        elif not acknowledged:
            self._send_parcel(broker, 0, held.run, held.count)
        else:
            self.want_inbox()
            sends = self.ledger.owe(broker, held, now_ms=now_ms)
            if sends is None:
                self._lose(held.count, "no room")
            else:
                self._resend(sends)

    def _resend(self, sends: Iterable[Owed]) -> None:
        for owed in sends:
            self.counters.resent += owed.count if owed.tries > 1 else 0
            self._send_parcel(owed.to, owed.number, owed.run, owed.count)

    def _send_parcel(self, broker: BrokerId, number: int, run: bytes, count: int) -> None:
        head = pack_parcel(self.epoch, number)
        if not self.send_to(broker, (head, run), len(head) + len(run), count):
            self.counters.no_way += count

    def _reassign(self, owed: Held) -> None:
        """Give the publications of a broker that is gone to others, or hold them for members."""
        now_ms = monotonic_ms()
        picks = self.assignment.again(owed.groups)
        for pick in picks:
            held = Held(pick.serves, owed.run, owed.count, owed.since_ms)
            self._send(pick.next(), held, True, now_ms)
        served = {key for pick in picks for key in pick.serves}
        rest = [k for k in owed.groups if k not in served and self.assignment.knows(k)]
        if rest:  # the others were given up
            self._hold(Held(tuple(rest), owed.run, owed.count, owed.since_ms), now_ms)

    def _hold(self, held: Held, now_ms: Millis) -> None:
        if not self.ledger.hold(held, now_ms=now_ms):
            self._lose(held.count, "no room")

    def _lose(self, count: int, reason: str) -> None:
        self.counters.lost += count
        _log.warning("share.lost", publications=count, reason=reason)

    def _arm(self) -> None:
        self._timer.set(self.ledger.next_deadline_ms())

    def _on_time(self) -> None:
        sends, lost = self.ledger.on_deadline(now_ms=monotonic_ms())
        self._resend(sends)
        for held in lost:
            self._lose(held.count, "nobody confirmed it in time")
        self._arm()


class _Runs:
    """Publications of one read, by receiver."""

    def __init__(self) -> None:
        self.parts: dict[tuple[BrokerId, tuple[GroupKey, ...], bool], list[bytes | memoryview]] = {}

        self.held: dict[tuple[GroupKey, ...], list[bytes | memoryview]] = {}

    def add(self, pick: Pick, packet: memoryview) -> None:
        """Note that ``packet`` is for the next broker of ``pick``."""
        key = (pick.next(), pick.serves, qos_of(packet) > 0)
        self.parts.setdefault(key, []).append(not_retained(packet))

    def hold(self, orphans: tuple[GroupKey, ...], packet: memoryview) -> None:
        """Note that ``packet`` waits until ``orphans`` have members; QoS 0 does not wait."""
        if qos_of(packet):
            self.held.setdefault(orphans, []).append(not_retained(packet))
