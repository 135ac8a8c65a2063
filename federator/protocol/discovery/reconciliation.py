"""Whether the table of subscriptions can be trusted, judged by the broker's own count.

The broker publishes how many subscriptions it holds (plain and shared apart, one per client and
filter, those of offline sessions and our own included). Both the count and the log come over one
connection at one QoS, so they arrive in the order in which the broker made them: the count
describes exactly the lines before it. A few re-checks forgive a broker that does not keep to that.

- **More than we know**: a subscription was never reported. Not trusted until the counts agree.
- **Exactly the sure ones, or the doubtful as well**: trusted, and the doubt is settled. After a gap,
  those and one class of the doubtful will do, for that is what a restarted broker leaves.
- **In between**: says little. Trust stays what it was.
- **Less than the sure ones**: something vanished without a line. What we know is too much, never
  too little: who was trusted stays so, who was not gains nothing.

Counts are published when they change. Until both have been seen since the last gap, we change them
ourselves now and then with a subscription of our own (``ProbeCounts``).

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


def compare(count: int, tally: Tally, *, by_class: bool) -> tuple[Outcome, bool, bool]:
    """Compare one count with one tally; ``by_class`` lets one class of doubt be alive alone.

    Returns:
        The outcome and, when it is ``EXACT``, whether the doubtful subscriptions of persistent
        sessions and the other doubtful ones are alive.
    """
    if count < tally.sure:
        return Outcome.LESS, False, False
    if count > tally.most:
        return Outcome.MORE, False, False
    if count == tally.most:
        return Outcome.EXACT, True, True
    if count == tally.sure:
        return Outcome.EXACT, False, False
    if not by_class:
        return Outcome.WITHIN, False, False
    only_persistent = count == tally.sure + tally.doubtful_persistent
    only_other = count == tally.sure + tally.doubtful_other
    if only_persistent != only_other:
        return Outcome.EXACT, only_persistent, only_other
    return Outcome.WITHIN, False, False


class Reconciliation:
    """Holds the verdict on a table.

    Args:
        table: The table to judge; doubts in it are settled from here.
        unlogged: Plain subscriptions that the broker counts but never logs: those of bridges that
            are configured in the broker itself.
        recheck_ms: Between two looks at one count that did not agree.
        rechecks_max: Looks at one count.
        probe_interval_ms: Between two probes. Should exceed the broker's ``sys_interval``.
    """

    def __init__(
        self,
        table: SubscriptionTable,
        *,
        unlogged: int = 0,
        recheck_ms: Millis = Millis(100),
        rechecks_max: int = 10,
        probe_interval_ms: Millis = Millis(15_000),
    ) -> None:
        self._table = table
        self._unlogged = unlogged
        self._recheck_ms = recheck_ms
        self._rechecks_max = rechecks_max
        self._probe_interval_ms = probe_interval_ms
        self._counts: dict[Kind, int] = {}
        self._verdict: Verdict = Widened("starting")
        self._counted_since = False  # the verdict was last taken away
        self._recheck_at_ms: Millis | None = None
        self._rechecks_left = 0
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
        deadlines = [] if self._recheck_at_ms is None else [self._recheck_at_ms]
        if self._needs_probe:
            deadlines.append(self._probe_at_ms)
        return min(deadlines, default=None)

    def trust(self) -> None:
        """Believe the table as it was loaded: no line was missed since it was written."""
        self._verdict = Trusted()

    def distrust(self, reason: str, *, counts_too: bool) -> None:
        """Lines are missing; with ``counts_too``, perhaps counts as well."""
        self._verdict = Widened(reason)
        self._counted_since = False
        self._recheck_at_ms = None
        if counts_too:
            self._counts.clear()

    def on_broker_up(self, *, now_ms: Millis) -> list[ProbeCounts]:
        """The broker answers again: ask for its counts."""
        self._up = True
        return self.on_deadline(now_ms=now_ms)

    def on_broker_down(self) -> None:
        """Nothing can be asked."""
        self._up = False
        self._recheck_at_ms = None
        self._probe_at_ms = Millis(0)

    def on_count(self, kind: Kind, count: int, *, now_ms: Millis) -> None:
        """The broker published a count just now (not a retained one)."""
        if kind is Kind.PLAIN:
            count = max(0, count - self._unlogged)
        self._counts[kind] = count
        self._counted_since = True
        self._unanswered_probes = 0
        self._rechecks_left = self._rechecks_max
        self._judge(now_ms=now_ms)

    def on_deadline(self, *, now_ms: Millis) -> list[ProbeCounts]:
        """Look again at a count that did not agree; probe when a count is missing."""
        if self._recheck_at_ms is not None and now_ms >= self._recheck_at_ms:
            self._judge(now_ms=now_ms)
        if not self._needs_probe or now_ms < self._probe_at_ms:
            return []
        self._probe_at_ms = Millis(now_ms + self._probe_interval_ms)
        if self._unanswered_probes >= PROBES_ANSWERED_WITHIN and not self._counts:
            self._verdict = Widened("the broker publishes no counts; is its sys_interval 0?")
        self._unanswered_probes += 1
        self._probing = not self._probing
        return [ProbeCounts(self._probing)]

    @property
    def _needs_probe(self) -> bool:
        if not self._up:
            return False
        trusted = isinstance(self._verdict, Trusted)
        return len(self._counts) < len(Kind) or not (trusted or self._counted_since)

    def _judge(self, *, now_ms: Millis) -> None:
        self._recheck_at_ms = None
        tallies = dict(zip((Kind.PLAIN, Kind.SHARED), self._table.tallies(), strict=True))
        trusted = isinstance(self._verdict, Trusted)
        by_class = not trusted and not self._table.guesses
        compared = {
            kind: compare(count, tallies[kind], by_class=by_class)
            for kind, count in self._counts.items()
        }
        outcomes = [outcome for outcome, _, _ in compared.values()]
        all_agree = len(compared) == len(Kind) and set(outcomes) == {Outcome.EXACT}
        if trusted or all_agree:
            for kind, (outcome, persistent, other) in compared.items():
                if outcome is Outcome.EXACT:
                    self._settle(kind, persistent=persistent, other=other)
        if all_agree:
            self._verdict = Trusted()
            return
        if trusted and Outcome.MORE not in outcomes:
            return

        if self._rechecks_left:
            self._rechecks_left -= 1
            self._recheck_at_ms = Millis(now_ms + self._recheck_ms)
        elif len(compared) == len(Kind) or Outcome.MORE in outcomes:
            self._verdict = Widened(self._reason(tallies))

    def _settle(self, kind: Kind, *, persistent: bool, other: bool) -> None:
        shared = kind is Kind.SHARED
        self._table.settle(shared=shared, persistent=True, survive=persistent)
        self._table.settle(shared=shared, persistent=False, survive=other)

    def _reason(self, tallies: dict[Kind, Tally]) -> str:
        parts = []
        for kind in Kind:
            if kind in self._counts:
                tally = tallies[kind]
                doubtful = tally.most - tally.sure
                parts.append(
                    f"{kind.value}: the broker counts {self._counts[kind]}, "
                    f"{tally.sure} are known" + (f" and {doubtful} doubtful" if doubtful else "")
                )
        if self._table.refused:
            parts.append(f"{self._table.refused} did not fit into the table")
        return "; ".join(parts)
