"""What of the offers did not arrive: only what a destination owed, and only once it is settled.

Offers and arrivals are counted by when the origin made them, in windows of its own clock, so both
ends speak of the same publications whatever their clocks say. Of a window, a destination owes a
filter's publications if

- its clients wanted the filter from ``SETTLE_US`` before the window to ``SETTLE_US`` after it: its
  agent says so (``wants``). A mesh that was joined as a relay is no wish;
- neither end's records have a gap there, nor was an agent starting;
- no wider filter of the same destination is owed then: ``#``, wanted while an agent is unsure,
  takes the place of all others, so that each publication counts under one filter. (Filters that
  overlap and do not contain one another count each.)

Owed is not lost: a window is judged when both ends have told all of it and something made later has
come, for a filter's publications stay in order; or after ``PATIENCE_US``. Until then what lacks is
under way. A window in which more came than was offered (copies, after a death or a move) makes up
for none in which less came.

All of it is columns in memory, of one filter and origin at a time: in Spark's workers for the
report, in the driver for the stream.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from federator.protocol.telemetry.records import MADE_WINDOW_US
from federator_analytics.schemas.reports import REPORT_TABLES
from federator_analytics.transforms.clocks import PairFacts
from federator_analytics.transforms.load import MISSING

SETTLE_US = 10_000_000
"""A wish has come to every origin by then, and what is not delayed has come back."""
TOLD_US = 2_000_000
"""An origin writes of what it made within a flush, and dies with no more of it untold."""
PATIENCE_US = (60_000_000, 1_800_000_000)
"""By QoS, what is not delivered by then and nothing behind it is lost: ``custody.keep_s``."""
FOREVER_US = 2**62
HOLES = ("records_lost",)
"""Events that tell of records missing just before."""

COUNTS = pa.schema(
    [
        ("filter", pa.string()),
        ("origin", pa.int64()),
        ("destination", pa.int64()),  # NULL: an offer
        ("qos", pa.int64()),
        ("made_us", pa.int64()),
        ("publications", pa.int64()),
    ]
)
OF_CLIENTS = 0
"""The epoch of records that test clients write: no life of an agent."""
COMPARED, UNDER_WAY = "compared", "under way"
"""Notes of rows: something was judged, or nothing is settled yet."""
_SCHEMA = to_arrow_schema(REPORT_TABLES["loss"])
_ABSENT = -1
Whole = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Term:
    """When clients wanted a filter, by their agent's clock. ``lasts``: as far as is known."""

    since_us: int
    until_us: int
    lasts: bool


@dataclass(slots=True)
class Book:
    """What agents said that decides what is owed."""

    terms: dict[str, dict[int, list[Term]]] = field(default_factory=dict)  # by filter, destination
    # By broker: the lives of its agent as (first, last) record, and spans that lack records.
    lives: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    gaps: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    # The destination's clock minus the origin's, where they disagree; None where nobody knows.
    offsets_us: dict[tuple[int, int], int | None] = field(default_factory=dict)
    out_of_order: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def told_until_us(self, broker: int) -> int:
        """Its last word, by its own clock."""
        return self.lives[broker][-1][1] if broker in self.lives else 0


OF_BOOK = ("wants", "agents_seen", "events", "deliveries")
"""The partials that the book is of."""


def book_of(parts: Mapping[str, pa.Table], facts: PairFacts) -> Book:
    """The book, from the partials that OF_BOOK names."""
    wants, agents_seen, events, deliveries = (parts[name] for name in OF_BOOK)
    book = Book()
    every = agents_seen.to_pylist()
    lives = {(row["broker"], row["epoch"]): row for row in every if row["epoch"] != OF_CLIENTS}
    by_broker: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (broker, _), row in lives.items():
        by_broker[broker].append((row["first_us"], row["last_us"]))
    book.lives = {broker: sorted(each) for broker, each in by_broker.items()}
    for row in wants.to_pylist():
        life, destination = lives[row["broker"], row["epoch"]], row["broker"]
        until_us = FOREVER_US if row["until_us"] is None else row["until_us"]
        here, since_us = (life["first_us"], life["last_us"]), row["since_us"]
        is_first, is_last = (here == book.lives[destination][at] for at in (0, -1))
        if not is_last:
            until_us = min(until_us, life["last_us"])
        if not is_first:  # of the first life there may be records that we do not have
            since_us = max(since_us, life["first_us"])
        term = Term(since_us, until_us, lasts=until_us == FOREVER_US)
        book.terms.setdefault(row["filter"], {}).setdefault(destination, []).append(term)
    for row in events.to_pylist():
        if row["kind"] in (*MISSING, *HOLES):
            since_us = 0 if row["kind"] in MISSING else row["at_us"] - SETTLE_US
            gap = (since_us, row["at_us"] + SETTLE_US)
            book.gaps.setdefault(row["broker"], []).append(gap)
    for pair, (offset_us, quality) in facts.judged().items():
        book.offsets_us[pair] = None if quality == "flagged" else offset_us
    for row in deliveries.to_pylist():
        key = (row["origin"], row["destination"], row["qos"])
        book.out_of_order[key] = book.out_of_order.get(key, 0) + row["out_of_order"]
    return book


def counts_of(offered: pa.Table, arrived: pa.Table) -> pa.Table:
    """COUNTS of the partials of these names."""
    none = pa.nulls(len(offered), pa.int64())
    offers = offered.append_column("destination", none).select(COUNTS.names)
    return pa.concat_tables([offers.cast(COUNTS), arrived.select(COUNTS.names).cast(COUNTS)])


def judged_batches(batches: Iterable[pa.RecordBatch], book: Book) -> Iterator[pa.RecordBatch]:
    """LOSS of all batches of COUNTS together: each filter and origin wholly in them."""
    yield from judged(pa.Table.from_batches(list(batches), COUNTS), book).to_batches()


def judged(flows: pa.Table, book: Book) -> pa.Table:
    """LOSS of COUNTS that hold each of their filters and origins wholly."""
    told = flows.set_column(2, "destination", pc.fill_null(flows["destination"], _ABSENT))
    told = told.set_column(4, "made_us", pc.fill_null(told["made_us"], _ABSENT))
    listed = ("destination", "made_us", "publications")
    groups = told.group_by(["filter", "origin", "qos"], use_threads=False).aggregate(
        [(name, "list") for name in listed]
    )
    lists = [groups[f"{name}_list"].combine_chunks() for name in listed]
    bounds = lists[0].offsets.to_numpy()
    columns = [np.asarray(each.values) for each in lists]
    rows: list[dict[str, Any]] = []
    names = (groups[name].to_pylist() for name in ("filter", "origin", "qos"))
    for at, (filter_, origin, qos) in enumerate(zip(*names, strict=True)):
        of_group = slice(bounds[at], bounds[at + 1])
        flow = _Flow(filter_, origin, qos, *(column[of_group] for column in columns), book=book)
        rows += flow.rows()
    return pa.Table.from_pylist(rows, _SCHEMA)


class _Flow:
    """All offers of one filter, origin and QoS, and all that arrived of them."""

    def __init__(
        self,
        filter_: str,
        origin: int,
        qos: int,
        destination: Whole,
        made_us: Whole,
        publications: Whole,
        *,
        book: Book,
    ) -> None:
        self._filter, self._origin, self._qos, self._book = filter_, origin, qos, book
        is_offer = destination == _ABSENT
        self._total = int(publications[is_offer].sum())
        self._is_told = bool(is_offer.any())
        is_dated = made_us != _ABSENT
        self._made_us = np.unique(made_us[is_offer & is_dated])
        self._offered = self._by_window(made_us, publications, is_offer & is_dated)
        self._dated = bool(is_dated[is_offer].all())
        self._came: dict[int, tuple[Whole, int]] = {}
        for one in np.unique(destination[~is_offer]).tolist():
            mine = destination == one
            came = self._by_window(made_us, publications, mine & is_dated)
            self._came[one] = came, int(publications[mine].sum())

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each destination that owes something, or to which something came."""
        terms = self._book.terms.get(self._filter, {})
        sound = self._sound_here()
        for destination in sorted({*self._came, *terms} - {self._origin}):
            nothing = np.zeros(len(self._made_us), np.int64), 0
            came, total = self._came.get(destination, nothing)
            row = self._row(destination, came, total, sound)
            if row is not None:
                key = (self._origin, destination, self._qos)
                yield row | {
                    "filter": self._filter,
                    "origin": self._origin,
                    "destination": destination,
                    "qos": self._qos,
                    "out_of_order": self._book.out_of_order.get(key, 0),
                }

    def _row(self, destination: int, came: Whole, total: int, sound: Mask) -> dict[str, Any] | None:
        owed, is_judged = self._owed(destination, came, sound)
        lacking = self._offered - came
        if owed.any():
            return {
                "offered": int(self._offered[is_judged].sum()),
                "arrived": int(came[is_judged].sum()),
                "missing": int(lacking[is_judged & (lacking > 0)].sum()),
                "surplus": int(-lacking[is_judged & (lacking < 0)].sum()),
                "under_way": int(lacking[owed & ~is_judged & (lacking > 0)].sum()),
                "not_owed": self._total - int(self._offered[owed].sum()),
                "note": COMPARED if is_judged.any() else UNDER_WAY,
            }
        if not total:
            return None
        nothing = dict.fromkeys(("offered", "arrived", "missing", "surplus", "under_way"), 0)
        return nothing | {"not_owed": self._total, "note": self._why_not(destination)}

    def _why_not(self, destination: int) -> str:
        pair = self._origin, destination
        if not self._is_told:
            return "offers not told"
        if not self._dated or destination not in self._book.terms.get(self._filter, {}):
            return "wishes not told"
        if pair in self._book.offsets_us and self._book.offsets_us[pair] is None:
            return "clocks disagree"
        return "not wanted long enough"

    def _owed(self, destination: int, came: Whole, sound: Mask) -> tuple[Mask, Mask]:
        """Which windows the destination owes, and which of them are judged."""
        nothing = np.zeros(len(self._made_us), bool)
        offset_us = self._book.offsets_us.get((self._origin, destination), 0)
        if offset_us is None:
            return nothing, nothing
        begins_us = self._made_us + offset_us  # by the destination's clock
        ends_us = begins_us + MADE_WINDOW_US
        sound = sound & self._is_sound(destination, begins_us, ends_us)
        for wider in wider_than(self._filter):
            for term in self._book.terms.get(wider, {}).get(destination, ()):
                sound = sound & ~_within(term, begins_us, ends_us)
        told_us = self._book.told_until_us(destination)
        owed, is_judged = nothing, nothing
        for term in self._book.terms.get(self._filter, {}).get(destination, ()):
            mine = sound & _within(term, begins_us, ends_us)
            is_later = (came > 0) & (begins_us >= term.since_us) & (begins_us < term.until_us)
            newest_us = int(begins_us[is_later].max(initial=0))
            is_settled = (begins_us < newest_us) & (ends_us + SETTLE_US <= told_us)
            if term.lasts:
                is_settled |= ends_us + PATIENCE_US[min(self._qos, 1)] <= told_us
            else:
                mine &= is_settled  # whoever left is owed nothing that is late
            owed, is_judged = owed | mine, is_judged | (mine & is_settled)
        return owed, is_judged

    def _sound_here(self) -> Mask:
        """The windows of which the origin has told all."""
        ends_us = self._made_us + MADE_WINDOW_US + TOLD_US
        is_told = ends_us <= self._book.told_until_us(self._origin)
        return is_told & self._is_sound(self._origin, self._made_us, ends_us)

    def _is_sound(self, broker: int, begins_us: Whole, ends_us: Whole) -> Mask:
        """Whether no record of the agent can be missing of what it did then."""
        sound = np.ones(len(begins_us), bool)
        for since_us, until_us in self._book.gaps.get(broker, ()):
            sound &= (ends_us <= since_us) | (begins_us >= until_us)
        last_us = 0  # of the life before
        for first_us, until_us in self._book.lives.get(broker, []):
            sound &= (ends_us + TOLD_US <= last_us) | (begins_us >= first_us)
            last_us = until_us
        return sound

    def _by_window(self, made_us: Whole, publications: Whole, mine: Mask) -> Whole:
        """What lies in each window of the offers; what was not offered in any is left out."""
        found = np.zeros(len(self._made_us), np.int64)
        if len(found):
            place = np.searchsorted(self._made_us, made_us[mine])
            place = np.minimum(place, len(found) - 1)
            known = self._made_us[place] == made_us[mine]
            np.add.at(found, place[known], publications[mine][known])
        return found


def _within(term: Term, begins_us: Whole, ends_us: Whole) -> Mask:
    is_long: Mask = (begins_us >= term.since_us + SETTLE_US) & (
        ends_us + SETTLE_US <= term.until_us
    )
    return is_long


def wider_than(filter_: str) -> list[str]:
    """The filters of the form ``some/levels/#`` that match all that this one does."""
    levels = filter_.removesuffix("#").removesuffix("/").split("/") if filter_ != "#" else []
    found = ["/".join([*levels[:count], "#"]) for count in range(len(levels) + 1)]
    return [wider for wider in found if wider != filter_]
