"""The parcels that we owe to other brokers' groups, until they can no longer be lost.

A parcel is sent, and resent with growing gaps, until its receiver confirms that it is at its
broker. A broker that is killed then still loses what it had not yet delivered to its members. So a
confirmed parcel is kept for a while. When the receiver is declared gone, we serve other members
with everything that it did not confirm, and with what it confirmed shortly before its last message.
Members may get some of that twice; none of it is lost.

Publications for groups without members in reach are held until there is one.

At most ``window`` parcels per receiver are on their way; the others wait here, in order. Everything
is bounded in bytes and age, and dropped parcels are reported.

Source: docs/protocol.md 12.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from federator.protocol.sharing.membership import GroupKey
from federator.protocol.timers import Timers, earliest
from federator.protocol.types import BrokerId, Millis


@dataclass(frozen=True, slots=True)
class LedgerParameters:
    """Bounds and times."""

    bytes_max: int = 64 * 1024 * 1024  # bytes of all runs kept
    keep_ms: Millis = Millis(300_000)  # how long an unconfirmed parcel is kept
    # What a receiver confirmed so long before its last message may not have reached its members.
    linger_ms: Millis = Millis(2_000)
    detection_ms: Millis = Millis(10_000)  # how long a dead broker may go unnoticed
    # Wait before the first resend; it then doubles,
    retry_min_ms: Millis = Millis(1_000)
    retry_max_ms: Millis = Millis(8_000)  # up to this
    window: int = 256  # parcels on their way per receiver


@dataclass(slots=True, eq=False)
class Held:
    """Publications for groups, in one run."""

    groups: tuple[GroupKey, ...]  # the groups that must be served
    run: bytes  # PUBLISH packets of QoS 1 and 2
    count: int  # number of packets
    since_ms: Millis  # when we accepted it; a change of receiver does not renew it


@dataclass(slots=True, eq=False)
class Owed(Held):
    """One parcel that we owe another broker."""

    to: BrokerId  # the broker that must serve the groups
    number: int  # the number of the parcel for that broker
    tries: int = 0
    confirmed_at_ms: Millis = Millis(0)  # when the receiver confirmed that its broker has it


@dataclass(slots=True)
class _Account:
    """All parcels for one receiver."""

    last_number: int = 0
    owed: dict[int, Owed] = field(default_factory=dict)  # by number, ascending; not confirmed
    waiting: dict[int, Owed] = field(default_factory=dict)  # those not sent yet
    confirmed: dict[int, Owed] = field(default_factory=dict)  # in the order confirmed
    heard_at_ms: Millis = Millis(0)


class Ledger:
    """All parcels that are not finished."""

    def __init__(self, parameters: LedgerParameters) -> None:
        self._parameters = parameters
        self._accounts: dict[BrokerId, _Account] = {}
        self._held: deque[Held] = deque()
        self._retries: Timers[tuple[BrokerId, int]] = Timers()
        self._sweep_at_ms: Millis | None = None
        self.bytes = 0  # bytes of the runs kept

    def __len__(self) -> int:
        """Publications owed and not confirmed, and those held."""
        owed = sum(o.count for a in self._accounts.values() for o in a.owed.values())
        return owed + sum(held.count for held in self._held)

    def hold(self, held: Held, *, now_ms: Millis) -> bool:
        """Hold publications that no broker can take now; ``False`` when there is no room."""
        if not self._make_room(len(held.run)):
            return False
        self.bytes += len(held.run)
        self._held.append(held)
        self._sweep_soon(now_ms)
        return True

    def take_held(self) -> list[Held]:
        """Return and remove the held publications, oldest first."""
        held, self._held = list(self._held), deque()
        self.bytes -= sum(len(entry.run) for entry in held)
        return held

    def owe(self, to: BrokerId, held: Held, *, now_ms: Millis) -> list[Owed] | None:
        """Accept a parcel, and return what to send now; ``None`` when there is no room."""
        if not self._make_room(len(held.run)):
            return None
        account = self._accounts.setdefault(to, _Account())
        account.last_number += 1
        number = account.last_number
        owed = Owed(held.groups, held.run, held.count, held.since_ms, to, number)
        self.bytes += len(held.run)
        account.owed[number] = account.waiting[number] = owed
        self._sweep_soon(now_ms)
        return self._fill(account, now_ms)

    def confirm(
        self, by: BrokerId, ranges: Iterable[tuple[int, int]], *, now_ms: Millis
    ) -> list[Owed]:
        """Note that the broker of ``by`` has these parcels; return what to send now."""
        account = self._accounts.get(by)
        if account is None:
            return []
        account.heard_at_ms = now_ms
        for first, last in ranges:
            for number in range(max(1, first), min(last, account.last_number) + 1):
                if number in account.owed and number not in account.waiting:
                    owed = account.owed.pop(number)
                    owed.confirmed_at_ms = now_ms
                    account.confirmed[number] = owed
                    self._retries.clear((by, number))
        self._sweep_soon(now_ms)
        return self._fill(account, now_ms)

    def gone(self, receiver: BrokerId) -> list[Owed]:
        """Forget ``receiver``, which is gone; return what others must be served with."""
        account = self._accounts.get(receiver)
        if account is None:
            return []
        trusted_ms = account.heard_at_ms - self._parameters.linger_ms
        again = [o for o in account.confirmed.values() if o.confirmed_at_ms >= trusted_ms]
        again += account.owed.values()
        for owed in (*account.confirmed.values(), *account.owed.values()):
            self.bytes -= len(owed.run)
        for number in account.owed:
            self._retries.clear((receiver, number))
        # Numbering continues: the receiver may come back and remember the numbers it has seen.
        self._accounts[receiver] = _Account(last_number=account.last_number)
        return again

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return earliest(self._retries.next_deadline_ms(), self._sweep_at_ms)

    def on_deadline(self, *, now_ms: Millis) -> tuple[list[Owed], list[Held]]:
        """Return what to send or resend now, and what is dropped as too old."""
        sends: list[Owed] = []
        lost: list[Held] = []
        for to, number in self._retries.pop_due(now_ms):
            owed = self._accounts[to].owed[number]
            self._set_retry(owed, now_ms)
            sends.append(owed)
        if self._sweep_at_ms is not None and now_ms >= self._sweep_at_ms:
            self._sweep_at_ms = None
            for account in self._accounts.values():
                lost += self._sweep(account, now_ms)
                sends += self._fill(account, now_ms)
            while self._held and self._held[0].since_ms + self._parameters.keep_ms <= now_ms:
                self.bytes -= len(self._held[0].run)
                lost.append(self._held.popleft())
            if self.bytes or len(self):
                self._sweep_soon(now_ms)
        return sends, lost

    def _fill(self, account: _Account, now_ms: Millis) -> list[Owed]:
        """Send waiting parcels, as far as the window allows."""
        sends = []
        room = self._parameters.window - (len(account.owed) - len(account.waiting))
        for number in list(account.waiting)[: max(0, room)]:
            owed = account.waiting.pop(number)
            self._set_retry(owed, now_ms)
            sends.append(owed)
        return sends

    def _set_retry(self, owed: Owed, now_ms: Millis) -> None:
        parameters = self._parameters
        gap_ms = min(parameters.retry_min_ms << min(owed.tries, 16), parameters.retry_max_ms)
        owed.tries += 1
        self._retries.set((owed.to, owed.number), Millis(now_ms + gap_ms))

    def _sweep(self, account: _Account, now_ms: Millis) -> list[Owed]:
        """Forget old parcels; return those of them that were not confirmed."""
        parameters = self._parameters
        heard_ms = max(account.heard_at_ms, now_ms - parameters.detection_ms)
        for number, owed in list(account.confirmed.items()):
            if owed.confirmed_at_ms + parameters.linger_ms > heard_ms:
                break
            self._forget_confirmed(account, number)
        lost = []
        for number, owed in list(account.owed.items()):
            if owed.since_ms + parameters.keep_ms <= now_ms:
                del account.owed[number]
                account.waiting.pop(number, None)
                self._retries.clear((owed.to, number))
                self.bytes -= len(owed.run)
                lost.append(owed)
        return lost

    def _sweep_soon(self, now_ms: Millis) -> None:
        if self._sweep_at_ms is None:
            self._sweep_at_ms = Millis(now_ms + max(1, self._parameters.linger_ms // 2))

    def _make_room(self, size: int) -> bool:
        """Forget confirmed parcels early, oldest first; return whether ``size`` bytes fit then."""
        for account in self._accounts.values():
            for number in list(account.confirmed):
                if self.bytes + size <= self._parameters.bytes_max:
                    return True
                self._forget_confirmed(account, number)
        return self.bytes + size <= self._parameters.bytes_max

    def _forget_confirmed(self, account: _Account, number: int) -> None:
        self.bytes -= len(account.confirmed.pop(number).run)
