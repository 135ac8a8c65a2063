"""Whether the table of subscriptions can be trusted, judged by the broker's own count.

The broker publishes how many subscriptions it holds (plain and shared apart, one per client and
filter, those of offline sessions and our own included). Counts and log lines come over one
connection at one QoS, so they arrive in the order in which the broker made them: a count speaks of
exactly the lines before it, and is compared at the moment it arrives.

- **More than we know**: a subscription was never reported. Not trusted until the counts agree.
- **Exactly the sure ones**: trusted; the doubtful ones are gone.
- **All doubtful ones as well**: they are alive. While trusted this is certain. After a gap it is
  likely: something unknown may make up for something gone. It is believed for ``hopeful_ms``.
- **In between**: says little, trust stays what it was. But a broker that restarted may have kept
  its persistent sessions only.
- **Less than the sure ones**: something vanished without a line. What we know is too much, never
  too little: who was trusted stays so, who was not gains nothing.

The two counts of one moment come one after the other, so trust is given ``grant_ms`` later, unless
the second one disagrees. Counts are published only when they change: while there is no trust we
change them ourselves now and then with a subscription of our own (``ProbeCounts``).

Think of a cloakroom: the tickets we hold must add up to the coats that hang there.

Source: docs/protocol.md, section 4; Mosquitto's ``subs.c`` and ``sys_tree.c``.
"""

from dataclasses import dataclass
from enum import Enum

from federator.protocol.discovery.subscription_table import SubscriptionTable, Tally
from federator.protocol.types import Millis

PROBES_ANSWERED_WITHIN = 2
"""Probes after which a broker that publishes counts must have published one."""


class Kind(Enum):
    """What one count is about."""

    PLAIN = "subscriptions"
    SHARED = "shared subscriptions"


class Outcome(Enum):
    """How a count compares with what we know."""

    EXACT = "agrees"
    WITHIN = "within doubt"
    MORE = "more"
    LESS = "less"


@dataclass(frozen=True, slots=True)
class Trusted:
    """What we know is all there is."""


@dataclass(frozen=True, slots=True)
class Widened:
    """There may be more than we know."""

    reason: str


Verdict = Trusted | Widened


@dataclass(frozen=True, slots=True)
class ProbeCounts:
    """Subscribe to the probe filters, or unsubscribe, so that the broker counts anew."""

    subscribe: bool


def compare(
    count: int, tally: Tally, *, hopeful: bool, by_class: bool
) -> tuple[Outcome, bool, bool]:
    """Compare one count with one tally.

    Args:
        count: What the broker says.
        tally: What we know.
        hopeful: All doubtful ones may be alive.
        by_class: Those of one class may be alive alone.

    Returns:
        The outcome and, when it is ``EXACT``, whether the doubtful subscriptions of persistent
        sessions and the other doubtful ones are alive.
    """
    if count < tally.sure:
        return Outcome.LESS, False, False
    if count > tally.most:
        return Outcome.MORE, False, False
    if count == tally.sure:
        alive = tally.most == tally.sure
        return Outcome.EXACT, alive, alive
    if count == tally.most and hopeful:
        return Outcome.EXACT, True, True
    only_persistent = count == tally.sure + tally.doubtful_persistent
    only_other = count == tally.sure + tally.doubtful_other
    if by_class and only_persistent != only_other:
        return Outcome.EXACT, only_persistent, only_other
    return Outcome.WITHIN, False, False


class Reconciliation:
    """Holds the verdict on a table.

    Args:
        table: The table to judge; doubts in it are settled from here.
        unlogged: Plain subscriptions that the broker counts but never logs: those of bridges that
            are configured in the broker itself.
        hopeful_ms: After a gap, how long a count of everything we knew is taken to mean that
            nothing has changed.
        grant_ms: From agreement to trust.
        probe_interval_ms: Between two probes. Should exceed the broker's ``sys_interval``.
    """

    def __init__(
        self,
        table: SubscriptionTable,
        *,
        unlogged: int,
        hopeful_ms: Millis,
        grant_ms: Millis,
        probe_interval_ms: Millis,
    ) -> None:
        self._table = table
        self._unlogged = unlogged
        self._hopeful_ms = hopeful_ms
        self._grant_ms = grant_ms
        self._probe_interval_ms = probe_interval_ms
        self._counts: dict[Kind, int] = {}
        self._verdict: Verdict = Widened("starting: the broker has not been counted yet")
        self._hopeful_until_ms = Millis(0)
        self._restarted = False
        self._grant_at_ms: Millis | None = None
        self._counted_now: set[Kind] = set()
        self._counted_at_revision = -1
        self._up = False
        self._probe_at_ms = Millis(0)
        self._probing = False
        self._unanswered_probes = 0

    @property
    def verdict(self) -> Verdict:
        """What we believe now."""
        return self._verdict

    @property
    def counts(self) -> dict[Kind, int]:
        """The broker's counts since the last gap."""
        return dict(self._counts)

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` must be called."""
        deadlines = [] if self._grant_at_ms is None else [self._grant_at_ms]
        if self._needs_probe:
            deadlines.append(self._probe_at_ms)
        return min(deadlines, default=None)

    def trust(self) -> None:
        """Believe the table as it was loaded: no line was missed since it was written."""
        self._verdict = Trusted()

    def distrust(self, reason: str, *, gap: bool, now_ms: Millis) -> None:
        """Lines are missing; in a ``gap``, perhaps counts as well."""
        self._verdict = Widened(reason)
        self._grant_at_ms = None
        self._hopeful_until_ms = Millis(now_ms + self._hopeful_ms)
        if gap:
            self._counts.clear()
            self._restarted = False

    def on_broker_restarted(self) -> None:
        """The broker runs for a shorter time than when we last heard of it."""
        self._restarted = True

    def on_broker_up(self, *, now_ms: Millis) -> list[ProbeCounts]:
        """The broker answers again: ask for its counts."""
        self._up = True
        return self.on_deadline(now_ms=now_ms)

    def on_broker_down(self) -> None:
        """Nothing can be asked."""
        self._up = False
        self._grant_at_ms = None
        self._probe_at_ms = Millis(0)

    def on_count(self, kind: Kind, count: int, *, now_ms: Millis) -> None:
        """The broker published a count just now (not a retained one)."""
        if kind is Kind.PLAIN:
            count = max(0, count - self._unlogged)
        self._counts[kind] = count
        self._unanswered_probes = 0
        if isinstance(self._verdict, Trusted):
            self._check(kind)
        else:
            self._reconsider(kind, now_ms=now_ms)

    def on_deadline(self, *, now_ms: Millis) -> list[ProbeCounts]:
        """Trust, or probe."""
        if self._grant_at_ms is not None and now_ms >= self._grant_at_ms:
            self._grant_at_ms = None
            self._verdict = Trusted()
        if not self._needs_probe or now_ms < self._probe_at_ms:
            return []
        self._probe_at_ms = Millis(now_ms + self._probe_interval_ms)
        if self._unanswered_probes >= PROBES_ANSWERED_WITHIN:
            self._verdict = Widened("the broker publishes no counts; is its sys_interval 0?")
        self._unanswered_probes += 1
        self._probing = not self._probing
        return [ProbeCounts(self._probing)]

    @property
    def _needs_probe(self) -> bool:
        trusted = isinstance(self._verdict, Trusted)
        return self._up and (not trusted or len(self._counts) < len(Kind))

    def _tally(self, kind: Kind) -> Tally:
        plain, shared = self._table.tallies()
        return plain if kind is Kind.PLAIN else shared

    def _check(self, kind: Kind) -> None:
        """A count came while we trust: every subscription is known, only doubts are open."""
        tally = self._tally(kind)
        outcome, persistent, other = compare(
            self._counts[kind], tally, hopeful=True, by_class=False
        )
        if outcome is Outcome.EXACT:
            self._settle(kind, persistent=persistent, other=other)
        elif outcome is Outcome.MORE:
            self._verdict = Widened(self._reason([kind]))

    def _reconsider(self, arrived: Kind, *, now_ms: Millis) -> None:
        """A count came while we do not trust."""
        hopeful = now_ms < self._hopeful_until_ms and not self._table.guesses
        by_class = hopeful and self._restarted
        compared = {
            kind: compare(count, self._tally(kind), hopeful=hopeful, by_class=by_class)
            for kind, count in self._counts.items()
        }
        agree = {kind for kind, (outcome, _, _) in compared.items() if outcome is Outcome.EXACT}
        all_agree = len(agree) == len(Kind)
        for kind in sorted(agree & self._current(arrived), key=lambda kind: kind.value):
            _, persistent, other = compared[kind]
            if all_agree or not (persistent or other):
                self._settle(kind, persistent=persistent, other=other)
        if all_agree:
            self._grant_at_ms = Millis(now_ms + self._grant_ms)
            return
        self._grant_at_ms = None
        if disagree := [kind for kind in self._counts if kind not in agree]:
            self._verdict = Widened(self._reason(disagree))

    def _current(self, arrived: Kind) -> set[Kind]:
        """The counts that speak of this moment: no line came since the first of them."""
        if self._counted_at_revision != self._table.revision:
            self._counted_now.clear()
        self._counted_now.add(arrived)
        self._counted_at_revision = self._table.revision
        return set(self._counted_now)

    def _settle(self, kind: Kind, *, persistent: bool, other: bool) -> None:
        shared = kind is Kind.SHARED
        self._table.settle(shared=shared, persistent=True, survive=persistent)
        self._table.settle(shared=shared, persistent=False, survive=other)
        self._counted_at_revision = self._table.revision

    def _reason(self, kinds: list[Kind]) -> str:
        parts = []
        for kind in kinds:
            tally = self._tally(kind)
            doubtful = tally.most - tally.sure
            parts.append(
                f"{kind.value}: the broker counts {self._counts[kind]}, "
                f"{tally.sure} are known" + (f" and {doubtful} doubtful" if doubtful else "")
            )
        if self._table.refused:
            parts.append(f"{self._table.refused} did not fit into the table")
        return "; ".join(parts)
