"""Since when, and until when, our clients want each filter: by this a reader checks deliveries.

A reader that compares offers with arrivals must know what a destination is owed. Membership of a
mesh does not show it, because relays join too; and a new subscriber is not owed what was published
before.

Nothing is owed in the first seconds of a term, until the demand has reached every origin; so a term
is reported when it is ``FRESH_US`` old, and clients that come and go faster cost nothing. Each is
reported again now and then, for readers that start later or missed a record, and when it has ended.
Terms without room in a window wait for the next: a late report is as good as an early one.

Source: docs/metrics.md, "wants".
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

FRESH_US: Final = 5_000_000
AGAIN_US: Final = 60_000_000
ROWS_MAX: Final = 1_024
"""Terms reported in one window; some 300 kB."""


class Terms:
    """The terms of all filters that our clients want, and ended ones that were reported."""

    def __init__(self) -> None:
        self._since_us: dict[str, int] = {}
        self._ended: deque[tuple[str, int, int]] = deque()  # bounded: each was reported once
        # When to report which filter, the soonest first: the first time, and then again.
        self._fresh: dict[str, int] = {}
        self._again: dict[str, int] = {}

    def change(self, added: Iterable[str], removed: Iterable[str], *, now_us: int) -> None:
        """Follow our clients' demand: ``added`` and ``removed`` filters."""
        for filter_ in removed:
            since_us = self._since_us.pop(filter_, now_us)
            self._fresh.pop(filter_, None)
            if self._again.pop(filter_, None) is not None:
                self._ended.append((filter_, since_us, now_us))
        for filter_ in added:
            if filter_ not in self._since_us and not filter_.startswith("$"):
                self._since_us[filter_] = now_us
                self._fresh[filter_] = now_us + FRESH_US

    def rows(self, *, now_us: int) -> list[dict[str, Any]]:
        """The terms to report now: fields of ``Wants``, ``ROWS_MAX`` at most."""
        rows: list[dict[str, Any]] = []
        while self._ended and len(rows) < ROWS_MAX:
            filter_, since_us, until_us = self._ended.popleft()
            rows.append({"filter": filter_, "since_us": since_us, "until_us": until_us})
        for waiting in (self._fresh, self._again):
            for filter_ in _due(waiting, now_us)[: ROWS_MAX - len(rows)]:
                del waiting[filter_]
                self._again[filter_] = now_us + AGAIN_US
                rows.append({"filter": filter_, "since_us": self._since_us[filter_]})
        return rows


def _due(waiting: dict[str, int], now_us: int) -> list[str]:
    """The filters that are due; also those too far ahead, after the clock was set back."""
    is_due = (
        filter_ for filter_, due_us in waiting.items() if not now_us < due_us <= now_us + AGAIN_US
    )
    return list(islice(is_due, ROWS_MAX))
