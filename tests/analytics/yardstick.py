"""The report's tables a second time: other engine, other code, the same files.

DuckDB reads the segments and computes each table from the definitions in docs/metrics.md and
docs/analytics.md. Nothing of ``federator_analytics.transforms`` is used, so whatever both agree on
is not one person's slip. Whole batches that stand in two files are taken from one of them.
"""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb

from tests.analytics.yardstick_clocks import judge, least_ways
from tests.analytics.yardstick_loss import loss
from tests.analytics.yardstick_queries import PAIRS, QUERIES, VIEWS

MEMORY = "3GB"
THREADS = 4

COLUMNS = {
    "table": "VARCHAR", "federation": "VARCHAR", "broker": "BIGINT", "epoch": "BIGINT",
    "spool": "VARCHAR", "batch": "BIGINT", "row": "BIGINT", "at_us": "BIGINT",
    "window_ms": "BIGINT", "origin": "BIGINT", "hops": "BIGINT", "qos": "BIGINT",
    "strategy": "VARCHAR", "redundancy": "BIGINT", "publications": "BIGINT", "bytes": "BIGINT",
    "frames": "BIGINT", "out_of_order": "BIGINT", "repaired": "BIGINT", "base_us": "BIGINT",
    "sum_us": "BIGINT", "min_us": "BIGINT", "max_us": "BIGINT", "delay": "BIGINT[][]",
    "filter": "VARCHAR", "neighbour": "BIGINT", "up": "BIGINT", "cost": "BIGINT",
    "round_trip_us": "BIGINT", "queue_bytes": "BIGINT", "publications_out": "BIGINT",
    "bytes_out": "BIGINT", "duplicates": "BIGINT", "duplicate_publications": "BIGINT",
    "kind": "VARCHAR", "direction": "VARCHAR", "messages": "BIGINT", "announcements": "BIGINT",
    "clients": "BIGINT", "filters": "BIGINT", "publications_in": "BIGINT", "delivered": "BIGINT",
    "no_route": "BIGINT", "dropped": "BIGINT", "custody_bytes": "BIGINT",
    "send_queue_bytes": "BIGINT", "cpu_us": "BIGINT", "rss_bytes": "BIGINT",
    "loop_lag_us": "BIGINT", "subject": "BIGINT", "detail": "VARCHAR", "value": "BIGINT",
    "origin_epoch": "BIGINT", "seq": "BIGINT", "custody": "BIGINT", "hop": "BIGINT",
    "sender": "BIGINT", "origin_time_us": "BIGINT", "publisher_broker": "BIGINT",
    "destination": "BIGINT", "delays_us": "BIGINT[]", "made_us": "BIGINT", "since_us": "BIGINT",
    "until_us": "BIGINT", "name": "VARCHAR", "capacity": "BIGINT",
    "flow": "VARCHAR", "rate": "BIGINT", "planned": "BIGINT",
}  # fmt: skip


Table = tuple[list[str], list[tuple[Any, ...]]]
"""Names of columns, and rows in any order."""

TABLES = (
    "deliveries", "offered", "arrived", "links", "control", "announcements", "agents", "events",
    "hops", "clients", "wants", "flows",
)  # fmt: skip


class Yardstick:
    """All records of a landing folder, in a database of its own.

    Args:
        segments: Folder of ``*.jsonl`` or ``*.jsonl.gz``.
        scratch: Where the database may lie.
    """

    def __init__(self, segments: Path, scratch: Path) -> None:
        self._base = duckdb.connect(str(scratch / "yardstick.duckdb"))
        self._base.execute(f"SET memory_limit='{MEMORY}'; SET threads={THREADS}")
        self._base.execute(f"SET temp_directory='{scratch / 'spill'}'; SET TimeZone='UTC'")
        columns = ", ".join(f"'{name}': '{kind}'" for name, kind in COLUMNS.items())
        self._base.execute(
            f"""
            CREATE TABLE lines AS
            SELECT * FROM read_json('{segments}/**/*.jsonl*', format = 'newline_delimited',
                columns = {{{columns}}}, filename = true)
            """
        )
        self._base.execute(
            """
            CREATE TABLE taken AS
            SELECT broker, spool, batch, min(filename) AS filename FROM lines
            GROUP BY broker, spool, batch
            """
        )
        self._base.execute(
            "CREATE VIEW records AS FROM lines"
            " SEMI JOIN taken USING (broker, spool, batch, filename)"
        )
        for table in TABLES:
            self._base.execute(f"CREATE VIEW {table} AS FROM records WHERE \"table\" = '{table}'")
        for view in VIEWS:
            self._base.execute(view)
        self._judge_clocks()

    def table(self, name: str) -> Table:
        """The report table ``name``."""
        if name == "hop_times":
            return self._hop_times()
        if name == "loss":
            return self._loss()
        return self.rows(QUERIES[name])

    def reported(self, folder: Path) -> Table:
        """What a report wrote there as Parquet; instants as microseconds."""
        source = f"read_parquet('{folder}/*.parquet')"
        _, columns = self.rows(f"SELECT column_name, column_type FROM (DESCRIBE FROM {source})")
        told = ", ".join(
            f'epoch_us("{name}") AS "{name}"' if kind.startswith("TIMESTAMP") else f'"{name}"'
            for name, kind in columns
        )
        return self.rows(f"SELECT {told} FROM {source}")

    def _judge_clocks(self) -> None:
        """Floors and clocks, as tables."""
        _, half = self.rows(
            "SELECT least(broker, neighbour), greatest(broker, neighbour),"
            " min(round_trip_us) // 2 FROM links WHERE round_trip_us IS NOT NULL"
            " GROUP BY 1, 2"
        )
        _, seen = self.rows(
            "SELECT origin, broker, min(min_us), count(DISTINCT at_us // 10000000)"
            " FROM deliveries GROUP BY 1, 2"
        )
        floors = least_ways(half)
        clocks, offsets = judge({(o, d): (us, n) for o, d, us, n in seen}, floors)
        self._relative = offsets
        self._base.execute(
            "CREATE TABLE clocks (a BIGINT, b BIGINT, offset_us BIGINT,"
            " ab BIGINT, ba BIGINT, windows BIGINT, verdict VARCHAR)"
        )
        self._base.executemany("INSERT INTO clocks VALUES (?, ?, ?, ?, ?, ?, ?)", clocks)
        self._base.execute("CREATE TABLE floors (a BIGINT, b BIGINT, floor_us BIGINT)")
        self._base.executemany(
            "INSERT INTO floors VALUES (?, ?, ?)", [(a, b, us) for (a, b), us in floors.items()]
        )
        self._base.execute(PAIRS)

    def rows(self, query: str) -> Table:
        """What ``query`` gives."""
        answer = self._base.execute(query)
        assert answer.description is not None
        return [column[0] for column in answer.description], answer.fetchall()

    def _hop_times(self) -> Table:
        """Each destination's way is climbed, frame by frame, from row to row."""
        _, rows = self.rows(
            "SELECT origin, origin_epoch, seq, custody, broker, hop, sender, at_us FROM hops"
        )
        _, ends = self.rows("SELECT DISTINCT origin, broker FROM deliveries")
        wanted = set(ends)
        frames: dict[tuple[int, ...], dict[int, tuple[int, int | None, int]]] = defaultdict(dict)
        for *frame, broker, hop, sender, at_us in rows:
            frames[tuple(frame)][broker] = (hop, sender, at_us)
        steps: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        for (origin, *_), seen in frames.items():
            for end in seen:
                if (origin, end) in wanted:
                    for hop, sender, receiver in _way(seen, end):
                        shift = self._relative.get(sender, {}).get(receiver, 0)
                        taken = seen[receiver][2] - seen[sender][2] - shift
                        steps[origin, end, hop, sender, receiver].append((taken, shift))
        names = ["origin", "destination", "hop", "sender", "receiver", "samples", "p50", "p95", "q"]
        return names, [
            (*key, *_summary(taken, self._unknown(*key[3:]))) for key, taken in steps.items()
        ]

    def _loss(self) -> Table:
        """Each window of each destination by itself."""
        _, offers = self.rows(
            "SELECT filter, broker, qos, made_us, sum(publications) FROM offered GROUP BY ALL"
        )
        _, arrivals = self.rows(
            "SELECT filter, origin, qos, made_us, broker, sum(publications) FROM arrived"
            " GROUP BY ALL"
        )
        _, wants = self.rows("SELECT filter, broker, epoch, since_us, until_us FROM wants")
        _, lives = self.rows(
            "SELECT broker, epoch, min(at_us), max(at_us + window_ms * 1000) FROM records"
            " GROUP BY ALL"
        )
        _, order = self.rows(
            "SELECT origin, broker, qos, sum(out_of_order) FROM deliveries GROUP BY ALL"
        )
        _, clocks = self.rows("SELECT origin, destination, offset_us, quality FROM pairs")
        late = {tuple(key): count for *key, count in order}
        apart = {(a, b): None if q == "flagged" else us for a, b, us, q in clocks}
        return [], loss(offers, arrivals, wants, lives, apart, late)

    def _unknown(self, sender: int, receiver: int) -> bool:
        """Whether nothing compares two clocks of which one differs from some other one."""
        here, there = (self._relative.get(broker, {}) for broker in (sender, receiver))
        groups = (*here.values(), *there.values())
        return receiver not in here and any(groups)


def _way(seen: dict[int, tuple[int, int | None, int]], end: int) -> list[tuple[int, int, int]]:
    """(hop, sender, receiver) up to the origin; empty when a row is missing."""
    way: list[tuple[int, int, int]] = []
    here = end
    for _ in range(seen[end][0]):
        hop, sender, _ = seen[here]
        if sender is None or sender not in seen:
            return []
        way.append((hop, sender, here))
        here = sender
    return way


def _summary(taken: list[tuple[int, int]], unknown: bool) -> tuple[int, int, int, str]:
    us = sorted(step for step, _ in taken)
    half, most = (us[-(-len(us) * percent // 100) - 1] for percent in (50, 95))
    shifted = max(shift for _, shift in taken) != 0
    doubtful = unknown or us[0] < -1_000
    quality = "flagged" if doubtful else "corrected" if shifted else "ok"
    return len(us), half, most, quality


QUOTIENT_NOISE = 1e-9
"""Relative: sums of whole numbers are exact on both sides, their quotients are rounded."""

SHOWN_MAX = 5


def differences(yardstick: Yardstick, report: Path) -> dict[str, list[str]]:
    """Report table to what differs in it; no entry where nothing does."""
    found = {}
    for name in (*QUERIES, "hop_times", "loss"):
        _, wanted = yardstick.table(name)
        _, got = yardstick.reported(report / name)
        told = _different(wanted, got)
        if told:
            found[name] = told
    return found


def _different(wanted: list[tuple[Any, ...]], got: list[tuple[Any, ...]]) -> list[str]:
    if len(wanted) != len(got):
        return [f"{len(got)} rows, wanted {len(wanted)}"]
    pairs = zip(sorted(wanted, key=_order), sorted(got, key=_order), strict=True)
    unlike = [f"{b}, wanted {a}" for a, b in pairs if not _alike(a, b)]
    return [f"{len(unlike)} of {len(got)} rows", *unlike[:SHOWN_MAX]] if unlike else []


def _order(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple("" if isinstance(value, float) else str(value) for value in row)


def _alike(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(
        math.isclose(x, y, rel_tol=QUOTIENT_NOISE)
        if isinstance(x, float) or isinstance(y, float)
        else x == y
        for x, y in zip(a, b, strict=True)
    )
