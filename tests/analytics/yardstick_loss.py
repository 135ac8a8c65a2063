"""The yardstick's loss: one window, one destination and one microsecond at a time.

By the definition in docs/analytics.md, "What is owed", for logs without gaps.
"""

from collections import defaultdict
from typing import Any

SECOND_US = 1_000_000
WINDOW_US, SETTLE_US, TOLD_US = 10 * SECOND_US, 10 * SECOND_US, 2 * SECOND_US
PATIENCE_US = {0: 60 * SECOND_US, 1: 1_800 * SECOND_US}

Rows = list[tuple[Any, ...]]


def loss(
    offers: Rows,
    arrivals: Rows,
    wants: Rows,
    lives: Rows,
    apart: dict[tuple[int, int], int | None],
    late: dict[tuple[Any, ...], int],
) -> Rows:
    """The rows of the table ``loss``."""
    sent: dict[tuple[str, int, int], dict[int, int]] = defaultdict(dict)
    for filter_, origin, qos, made_us, count in offers:
        sent[filter_, origin, qos][made_us] = count
    came: dict[tuple[str, int, int, int], dict[int, int]] = defaultdict(dict)
    for filter_, origin, qos, made_us, broker, count in arrivals:
        came[filter_, origin, qos, broker][made_us] = count
    terms = _terms(wants, lives)
    rows = []
    for filter_, origin, qos in {*sent, *(key[:3] for key in came)}:
        ends = {key[3] for key in came if key[:3] == (filter_, origin, qos)}
        ends |= {broker for name, broker in terms if name == filter_}
        for broker in ends - {origin}:
            row = _row(
                sent.get((filter_, origin, qos), {}),
                came.get((filter_, origin, qos, broker), {}),
                [terms[filter_, broker]] if (filter_, broker) in terms else [],
                [terms[f, broker] for f in _wider(filter_) if (f, broker) in terms],
                (lives, origin, broker, qos, apart.get((origin, broker), 0)),
            )
            if row is not None:
                out_of_order = late.get((origin, broker, qos), 0)
                rows.append((filter_, origin, broker, qos, *row[:-1], out_of_order, row[-1]))
    return rows


def _terms(wants: Rows, lives: Rows) -> dict[tuple[str, int], set[tuple[int, int, bool]]]:
    terms = defaultdict(set)
    for filter_, broker, epoch, since_us, until_us in wants:
        first_us, last_us = next(life[2:] for life in lives if life[:2] == (broker, epoch))
        if epoch > min(life[1] for life in lives if life[0] == broker):
            since_us = max(since_us, first_us)
        newest = epoch == max(life[1] for life in lives if life[0] == broker)
        end_us = until_us if until_us is not None else None if newest else last_us
        terms[filter_, broker].add((since_us, end_us or 2**62, end_us is None))
    return terms


def _wider(filter_: str) -> list[str]:
    return [
        wide
        for wide in ("#", *(filter_[:at] + "/#" for at, one in enumerate(filter_) if one == "/"))
        if wide != filter_
    ] + ([f"{filter_}/#"] if not filter_.endswith("#") else [])


def _row(
    sent: dict[int, int],
    came: dict[int, int],
    terms: list[set[tuple[int, int, bool]]],
    wider: list[set[tuple[int, int, bool]]],
    where: tuple[Rows, int, int, int, int | None],
) -> tuple[Any, ...] | None:
    lives, origin, broker, qos, offset_us = where
    ends_us = {at: max(life[3] for life in lives if life[0] == at) for at in (origin, broker)}
    told = offered = arrived = missing = surplus = under_way = owed = judged = 0
    for made_us, count in sent.items():
        if offset_us is None or made_us + WINDOW_US + TOLD_US > ends_us[origin]:
            continue
        here_us = made_us + offset_us
        if not _whole(lives, origin, made_us, TOLD_US) or not _whole(lives, broker, here_us, 0):
            continue
        if any(_in(term, here_us) for each in wider for term in each):
            continue
        for term in (term for each in terms for term in each if _in(term, here_us)):
            newest_us = max(
                (at + offset_us for at, n in came.items()
                 if n and at in sent and term[0] <= at + offset_us < term[1]),
                default=0,
            )  # fmt: skip
            end_us = here_us + WINDOW_US
            settled = here_us < newest_us and end_us + SETTLE_US <= ends_us[broker]
            if term[2]:
                settled = settled or end_us + PATIENCE_US[qos] <= ends_us[broker]
            if settled or term[2]:
                owed, told = owed + 1, told + count
                lacks = count - came.get(made_us, 0)
                judged += settled
                offered += count * settled
                arrived += came.get(made_us, 0) * settled
                missing += max(lacks, 0) * settled
                surplus += max(-lacks, 0) * settled
                under_way += max(lacks, 0) * (not settled)
    total = sum(sent.values())
    if owed:
        note = "compared" if judged else "under way"
        return offered, arrived, missing, surplus, under_way, total - told, note
    if not came:
        return None
    reasons = ((not sent, "offers"), (not terms, "wishes"))
    untold = [f"{what} not told" for is_so, what in reasons if is_so]
    unsure = ["clocks disagree"] if offset_us is None else []
    return 0, 0, 0, 0, 0, total, [*untold, *unsure, "not wanted long enough"][0]


def _whole(lives: Rows, broker: int, begin_us: int, margin_us: int) -> bool:
    """Whether the window lies in one life of the agent."""
    end_us, before_us = begin_us + WINDOW_US + margin_us + TOLD_US, 0
    for first_us, last_us in sorted(life[2:] for life in lives if life[0] == broker):
        if end_us > before_us and begin_us < first_us:
            return False
        before_us = last_us
    return True


def _in(term: tuple[int, int, bool], begin_us: int) -> bool:
    return term[0] + SETTLE_US <= begin_us and begin_us + WINDOW_US + SETTLE_US <= term[1]
