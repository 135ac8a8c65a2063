"""Decides by the broker's own counts whether the subscription table can be trusted.

Every ``sys_interval`` the broker publishes its uptime and, where they have changed, its numbers of
subscriptions: plain and shared separately, one per client and filter, offline sessions and our own
included. These counts and the log lines come over one connection at one QoS, so they arrive in the
order in which the broker sent them. An uptime thus opens a **tick**, which ends with the next line
or shortly after: in a tick, the counts received last cover exactly the lines before. Our other
connections report their own subscriptions from before we received the log, in no fixed order;
numbers right after such a report open no tick. Nor do numbers that were queued for us in the
broker: they count what our other connections had then, not what they have now.

- **More than we know**: a subscription was never logged. Not trusted until the counts agree.
- **Exactly the sure ones**: trusted; the doubtful ones are gone.
- **All doubtful ones as well**: they are alive. While trusted this is certain. After a gap it is
  likely: an unknown subscription may compensate for one that is gone. We assume it for
  ``hopeful_ms``; but once an unknown subscription was counted, not for subscriptions that became
  doubtful by themselves.
- **In between**: proves little, trust stays as it was. But a broker that restarted may have kept
  only its persistent sessions, if all doubtful subscriptions became so with that gap.
- **Less than the sure ones**: a subscription vanished without a line, and where one line was lost,
  others may have been. Not trusted either: missed removals compensate for missed additions.

Once lines were **lost**, or the broker counted more before a gap than we can account for, matching
sums prove nothing: unlogged subscriptions compensate for vanished ones, and an attacker that makes
a broker lose lines can choose how many subscriptions are missed. Trust returns with a count of
exactly those that were logged since.

A count that has not changed for long is not even retained (2.0.x: 60 s). While one is missing we
change it ourselves now and then with a subscription of our own (``ProbeCounts``).

Think of a cloakroom: the tickets we hold must add up to the coats that hang there.

Source: docs/protocol.md 9; Mosquitto's ``subs.c`` and ``sys_tree.c``.
"""

from dataclasses import dataclass

from federator.protocol.discovery.parameters import DiscoveryParameters
from federator.protocol.discovery.subscription_table import Alive, Kind, SubscriptionTable, Tally
from federator.protocol.timers import earliest
from federator.protocol.types import Millis

KINDS = len(Kind)  # computed once: ``len`` of an enumeration counts its members anew

FIRST_PROBE_MS = Millis(1_000)
"""Time from the connection to the first probe: retained counts should be here by then."""

PROBES_ANSWERED_WITHIN = 2
"""A broker that publishes counts at all must have published one after so many probes."""

BACKLOG_MS_MAX = Millis(20_000)
"""Messages queued for us have come by then, even if no retained value followed them."""

COUNT_OWN_GAP_MS = Millis(1_000)
"""Between two orders to count our own subscriptions: an overload loses lines all the time."""

ROLL_GAPS_MS = (Millis(10_000), Millis(640_000))
"""Between two roll calls: the first gap, and the largest. It doubles while roll calls do not help.
"""


@dataclass(frozen=True, slots=True)
class ProbeCounts:
    """Orders to subscribe to the probe filters, or unsubscribe, so that the broker counts anew."""

    subscribe: bool


@dataclass(frozen=True, slots=True)
class CountOwn:
    """Orders to report our own connections' subscriptions again: their log lines may be lost."""


@dataclass(frozen=True, slots=True)
class CallRoll:
    """Orders to ask gateways and other clients of ours to subscribe again, so that it is logged."""


def compare(count: int, tally: Tally, *, hopeful: bool, by_class: bool) -> Alive | None:
    """Return which doubtful subscriptions ``count`` proves alive; ``None``: it does not match.

    ``hopeful``: all doubtful ones may be alive; ``by_class``: only those of persistent sessions
    may.
    """
    if count == tally.sure:
        alive = tally.most == tally.sure
        return Alive(alive, alive)
    if count == tally.most and hopeful:
        return Alive(persistent=True, other=True)
    unlike = tally.doubtful_persistent != tally.doubtful_other
    if by_class and unlike and count == tally.sure + tally.doubtful_persistent:
        return Alive(persistent=True, other=False)
    return None


@dataclass(eq=False)
class Reconciliation:
    """Decides whether a subscription table can be trusted."""

    table: SubscriptionTable
    parameters: DiscoveryParameters
    # Why the table may lack subscriptions; ``None``: it is trusted.
    doubt: str | None = "starting: the broker has not been counted yet"
    lost: bool = False  # lines were lost since the table was last trusted
    beyond: bool = False  # the broker counted more than we can account for since then
    late: bool = False  # received messages are too old to trust the table
    restarted: bool = False  # the broker restarted since the last gap: its uptime is shorter

    def __post_init__(self) -> None:
        self.counts: dict[Kind, int] = {}  # the broker's counts since the last gap
        self._connected: int | None = None
        self._hopeful_until_ms = Millis(0)
        self._count_own_at_ms: Millis | None = None
        self._own_counted_at_ms = Millis(-COUNT_OWN_GAP_MS)
        self.unheard_before_ms: Millis | None = None  # when lines were last missing
        self._roll_at_ms: Millis | None = None
        self._rolls_from_ms = Millis(0)  # no roll call before this
        self._roll_gap_ms = ROLL_GAPS_MS[0]
        self._tick_ends_at_ms: Millis | None = None
        self._unordered_until_ms = Millis(0)
        self._up = False
        self._backlog_until_ms = Millis(0)
        self._probe_at_ms = Millis(0)
        self._probing = False
        self._unanswered_probes = 0

    @property
    def unknown(self) -> int:
        """How many subscriptions the broker counts beyond all sure and doubtful ones."""
        tallies = self.table.tallies()
        return sum(max(0, count - tallies[kind].most) for kind, count in self.counts.items())

    @property
    def unknown_clients(self) -> int:
        """How many connected clients no log line reported."""
        return max(0, (self._connected or 0) - self.table.connected)

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` must be called."""
        probe_at_ms = self._probe_at_ms if self._needs_probe else None
        roll_at_ms = self._roll_at_ms if self._up else None
        return earliest(self._tick_ends_at_ms, probe_at_ms, self._count_own_at_ms, roll_at_ms)

    def distrust(self, reason: str, *, gap: bool, now_ms: Millis) -> None:
        """No longer trust the table: lines are missing; in a ``gap``, perhaps counts as well."""
        self.doubt = reason
        self._tick_ends_at_ms = None
        self._hopeful_until_ms = Millis(now_ms + self.parameters.hopeful_ms)
        if gap:
            self.want_roll(now_ms=now_ms)
            self.unheard_before_ms = now_ms
            self.counts.clear()
            self._connected = None
            self.restarted = False

    def lose(self, reason: str, *, now_ms: Millis) -> None:
        """Trust nothing received so far: log lines were lost."""
        self.distrust(reason, gap=True, now_ms=now_ms)
        self.lost = True
        self.table.on_gap()
        self._count_own_at_ms = Millis(max(now_ms, self._own_counted_at_ms + COUNT_OWN_GAP_MS))

    def count_own(self, *, now_ms: Millis) -> list[CountOwn]:
        """Return the order to report our own connections' subscriptions, when it is due."""
        if self._count_own_at_ms is None or now_ms < self._count_own_at_ms:
            return []
        self._count_own_at_ms = None
        self._own_counted_at_ms = now_ms
        return [CountOwn()]

    def want_roll(self, *, now_ms: Millis) -> None:
        """Call the roll as soon as the gap allows."""
        if self._roll_at_ms is None and self.parameters.log_topics:
            self._roll_at_ms = Millis(max(now_ms, self._rolls_from_ms))

    def call_roll(self, *, now_ms: Millis) -> list[CallRoll]:
        """Return the order to call the roll, when it is due."""
        if not self._up or self._roll_at_ms is None or now_ms < self._roll_at_ms:
            return []
        self._roll_at_ms = None
        self._rolls_from_ms = Millis(now_ms + self._roll_gap_ms)
        self._roll_gap_ms = min(Millis(2 * self._roll_gap_ms), ROLL_GAPS_MS[1])
        return [CallRoll()]

    def on_broker_up(self, *, now_ms: Millis) -> None:
        """The broker is reachable again: it sends the queued messages, then the retained ones."""
        self._up = True
        self._backlog_until_ms = Millis(now_ms + BACKLOG_MS_MAX)
        self._probe_at_ms = Millis(now_ms + FIRST_PROBE_MS)

    def hears_backlog(self, *, now_ms: Millis) -> bool:
        """Whether incoming messages may have been queued for us in the broker."""
        return now_ms < self._backlog_until_ms

    def on_stored(self) -> None:
        """Note that a retained value came: the broker sends those after all queued messages."""
        self._backlog_until_ms = Millis(0)

    def drop_probe(self) -> ProbeCounts:
        """Unsubscribe the probes: the resumed session may hold those of an earlier process.

        We do not subscribe them instead: older counts are on their way, and an additional
        subscription of ours would compensate in them for one of a client.
        """
        self._probing = False
        return ProbeCounts(subscribe=False)

    def on_broker_down(self) -> None:
        """Stop probing: the broker is unreachable."""
        self._up = False
        self.lost |= self.beyond  # unknown subscriptions compensate for what we miss now
        self._tick_ends_at_ms = None

    def on_unordered(self, *, now_ms: Millis) -> None:
        """Compare nothing for a moment: the table learned of a subscription outside the log.

        Counts that come now may be older and lack that subscription; one that no line reported
        would compensate for it. The next tick has newer counts.
        """
        self._unordered_until_ms = Millis(now_ms + self.parameters.tick_ms)

    def on_tick(self, *, now_ms: Millis) -> None:
        """Open a tick: the broker begins to publish its numbers."""
        ordered = now_ms >= self._unordered_until_ms and not self.hears_backlog(now_ms=now_ms)
        if self._tick_ends_at_ms is None and ordered:
            self._tick_ends_at_ms = Millis(now_ms + self.parameters.tick_ms)

    def on_count(self, kind: Kind, count: int, *, stored: bool, now_ms: Millis) -> None:
        """Handle a count; a ``stored`` one is the newest from before we subscribed."""
        if kind is Kind.PLAIN:
            count = max(0, count - self.parameters.unlogged_subscriptions)
        if stored:
            self.counts.setdefault(kind, count)
            return
        self.counts[kind] = count
        self._unanswered_probes = 0
        self.on_tick(now_ms=now_ms)

    def on_clients_connected(self, count: int, *, stored: bool, now_ms: Millis) -> None:
        """Handle the number of connected clients."""
        self._connected = count
        if not stored:
            self.on_tick(now_ms=now_ms)

    def end_tick(self, *, now_ms: Millis) -> None:
        """Compare counts if a tick is open. Call this before every log line."""
        if self._tick_ends_at_ms is None:
            return
        self._tick_ends_at_ms = None
        if self._count_own_at_ms is not None:
            return  # our own subscriptions are not certain
        if self._connected == self.table.connected:
            self.table.complete = True
        if self.doubt is None:
            self._check(now_ms=now_ms)
        elif not self.late:
            self._reconsider(now_ms=now_ms)

    def on_deadline(self, *, now_ms: Millis) -> list[ProbeCounts]:
        """End a tick, or probe."""
        if self._tick_ends_at_ms is not None and now_ms >= self._tick_ends_at_ms:
            self.end_tick(now_ms=now_ms)
        if not self._needs_probe or now_ms < self._probe_at_ms:
            return []
        self._probe_at_ms = Millis(now_ms + self.parameters.probe_interval_ms)
        if self._unanswered_probes >= PROBES_ANSWERED_WITHIN:
            self.doubt = "the broker publishes no counts; is its sys_interval 0?"
        self._unanswered_probes += 1
        self._probing = not self._probing
        return [ProbeCounts(self._probing)]

    @property
    def _needs_probe(self) -> bool:
        return self._up and len(self.counts) < KINDS

    def _compare(self, *, hopeful: bool, by_class: bool) -> dict[Kind, Alive | None]:
        tallies = self.table.tallies()
        return {
            kind: compare(count, tallies[kind], hopeful=hopeful, by_class=by_class)
            for kind, count in self.counts.items()
        }

    def _check(self, *, now_ms: Millis) -> None:
        """Compare while trusted: every subscription is known, only doubtful ones are open."""
        compared, tallies = self._compare(hopeful=True, by_class=False), self.table.tallies()
        # Bridges that are disconnected are allowed for.
        away = {Kind.PLAIN: self.parameters.unlogged_subscriptions, Kind.SHARED: 0}
        if less := [k for k, count in self.counts.items() if count + away[k] < tallies[k].sure]:
            self.lose(self._reason(less), now_ms=now_ms)
            return
        if more := [k for k, count in self.counts.items() if count > tallies[k].most]:
            self.doubt = self._reason(more)
            self.want_roll(now_ms=now_ms)
            self.beyond = True
        for kind, alive in compared.items():
            if alive is not None:
                self.table.settle(kind, alive)

    def _reconsider(self, *, now_ms: Millis) -> None:
        """Compare while the table is not trusted."""
        hopeful = now_ms < self._hopeful_until_ms and not self.table.guesses and not self.lost
        hopeful = hopeful and not (self.beyond and self.table.mixed)
        restarted = self.restarted and not self.table.mixed
        compared = self._compare(hopeful=hopeful, by_class=hopeful and restarted)
        agree = {kind: alive for kind, alive in compared.items() if alive is not None}
        if disagree := [kind for kind in compared if kind not in agree]:
            self.doubt = self._reason(disagree)
            self.want_roll(now_ms=now_ms)
        self.beyond |= self.unknown > 0
        all_agree = len(agree) == len(Kind)
        for kind, alive in agree.items():
            # While one kind disagrees, doubtful ones of the other may be dropped, but not
            # confirmed.
            if all_agree or not any(alive):
                self.table.settle(kind, alive)
        if all_agree:
            self.doubt = self._roll_at_ms = None
            self.lost = self.beyond = False
            self._roll_gap_ms = ROLL_GAPS_MS[0]

    def _reason(self, kinds: list[Kind]) -> str:
        parts = []
        for kind in kinds:
            tally = self.table.tallies()[kind]
            doubtful = tally.most - tally.sure
            parts.append(
                f"{kind.value}: the broker counts {self.counts[kind]}, "
                f"{tally.sure} are known" + (f" and {doubtful} doubtful" if doubtful else "")
            )
        if self.table.refused:
            parts.append(f"{self.table.refused} did not fit into the table")
        return "; ".join(parts)
