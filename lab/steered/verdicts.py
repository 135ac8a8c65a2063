"""What a steered run must show, and whether it did."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from lab.steered.run import FOLLOWED_WITHIN_S, Outcome

FULLEST_MAX: Final = 0.95
P99_TIMES_MAX: Final = 1.3
CONTROL_SHARE_MAX: Final = 0.01


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that was to be shown."""

    text: str
    held: bool


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    """All of them, of medians over the turns; losses and links of the worst turn."""
    lost = max(spell.lost_share for spell in outcome.steered)
    before = median(spell.lost_share for spell in outcome.plain)
    yield Verdict(f"lost {lost:.2%} (wanted 0), {before:.1%} without a steerer", lost == 0)
    fullest = max(spell.fullest for spell in outcome.steered)
    text = f"fullest link {fullest:.0%} of its capacity (wanted <= {FULLEST_MAX:.0%})"
    yield Verdict(text, fullest <= FULLEST_MAX)
    full, light = (
        median(spell.worst_ms(0.99) for spell in spells)
        for spells in (outcome.steered, outcome.light)
    )
    text = (
        f"p99 of the worst flow {full:.1f} ms, {full / light:.2f} times that of its ways"
        f" uncongested, {light:.1f} ms (wanted <= {P99_TIMES_MAX})"
    )
    yield Verdict(text, full <= P99_TIMES_MAX * light)
    moved_s = max(outcome.moved_s)
    text = f"a tree after {moved_s:.0f} s (wanted <= {FOLLOWED_WITHIN_S:.0f})"
    yield Verdict(text, moved_s <= FOLLOWED_WITHIN_S)
    share = max(spell.control_share for spell in outcome.steered)
    text = f"loads and plans {share:.2%} of the links' bytes (wanted < {CONTROL_SHARE_MAX:.0%})"
    yield Verdict(text, share < CONTROL_SHARE_MAX)
