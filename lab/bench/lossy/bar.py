"""What the project asks of links over datagrams, and what was got: one line for each part of it.

Delays are compared round by round, for what a shared machine adds differs from minute to minute;
the median of the rounds decides. All else is of all rounds together.

Source: docs/udp-fec.md, "Measured".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from lab.bench.lossy.measure import ALL_ROUNDS, DATAGRAMS, TCP, Row

P99_SHARE_MAX: Final = 0.5
DELIVERED_MIN: Final = {0: 0.999, 1: 1.0}
MODEL_SHARE_MAX: Final = 1.2
LOSSLESS_MAX: Final = 0.05


@dataclass(frozen=True, slots=True)
class Verdict:
    """One part of the bar."""

    what: str
    wanted: str
    got: str
    met: bool


def judged(rows: list[Row]) -> list[Verdict]:
    """Every part of the bar that ``rows`` say something of."""
    found: list[Verdict] = []
    for row in rows:
        if row.transport != DATAGRAMS or row.turn != ALL_ROUNDS:
            continue
        found += _lossy(row, rows) if row.plr else _lossless(row, rows)
    return found


def _lossy(row: Row, rows: list[Row]) -> Iterator[Verdict]:
    name = f"QoS {row.qos}"
    shares = [
        round_.p99 / _beside(round_, rows).p99
        for round_ in rows
        if (round_.transport, round_.qos, round_.plr) == (DATAGRAMS, row.qos, row.plr)
        and round_.turn != ALL_ROUNDS
    ]
    middle = median(shares)
    yield Verdict(
        f"{name}: p99 delay, of TCP's; median of rounds",
        f"<= {P99_SHARE_MAX}",
        f"{middle:.3f} ({', '.join(f'{share:.3f}' for share in shares)})",
        middle <= P99_SHARE_MAX,
    )
    delivered, wanted = row.delivered / row.offered, DELIVERED_MIN[row.qos]
    got = f"{delivered:.3%}, {row.twice} twice"
    yield Verdict(f"{name}: delivered", f">= {wanted:.1%}", got, delivered >= wanted)
    assert row.repairs_per_part is not None, "datagrams were used"
    assert row.model is not None, "datagrams were used"
    share = (1 + row.repairs_per_part) / (1 + row.model)
    what = f"{name}: packets, of the model's"
    yield Verdict(what, f"<= {MODEL_SHARE_MAX}", f"{share:.3f}", share <= MODEL_SHARE_MAX)


def _lossless(row: Row, rows: list[Row]) -> Iterator[Verdict]:
    assert row.repairs_per_part is not None, "datagrams were used"
    name, cost = "without loss, again", row.repairs_per_part
    wanted = f"<= {LOSSLESS_MAX:.0%}"
    yield Verdict(f"{name}: repair packets", wanted, f"{cost:.1%}", cost <= LOSSLESS_MAX)
    share = row.bytes_per_publication / _beside(row, rows).bytes_per_publication
    most = 1 + LOSSLESS_MAX
    yield Verdict(f"{name}: IP bytes, of TCP's", f"<= {most}", f"{share:.3f}", share <= most)


def _beside(row: Row, rows: list[Row]) -> Row:
    """What TCP came to beside it."""
    wanted = (TCP, row.qos, row.plr, row.turn)
    return next(r for r in rows if (r.transport, r.qos, r.plr, r.turn) == wanted)
