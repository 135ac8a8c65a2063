"""What the comparison prints, and when it fails."""

from dataclasses import replace

from click.testing import CliRunner

from lab.cli.local_steering import BARS, command, misses
from lab.local_steering.trial import Outcome

GOOD = Outcome(
    steerer="local",
    fullest=0.93,
    over_exact=0.01,
    moves=3,
    most_moves=1,
    late_moves=2,
    fullest_noisy=0.9,
    control_share=0.002,
    shift_s=25.0,
    shift_95_s=30.0,
    burst_moves=0,
)


def test_a_bar_that_is_missed_is_named_and_counted():
    slow = replace(GOOD, shift_95_s=31.0)

    assert list(misses([GOOD, GOOD])) == []
    assert list(misses([GOOD, slow, slow])) == [
        "local misses shift_95_s <= 30 at 2 of 3 demands",
    ]
    assert all(hasattr(GOOD, bar) for bar in BARS)


def test_without_demands_it_tells_of_mixtures():
    ran = CliRunner().invoke(
        command, ["--seeds", "0", "--large", "0", "--mixtures", "1", "--processes", "1"]
    )

    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith("mixtures: 1 seeds, ")
