"""A small federation's metrics stream, made by hand: lines, and landing folders of them.

Three brokers in a line, 1 - 2 - 3, links of 2 and 3 ms. Brokers 1 and 3 publish ``a/#`` for each
other; ``clocks_us`` sets brokers' clocks wrong. Everything is a function of its arguments.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from federator_analytics.digest.tables import part_files, read_tables
from federator_analytics.schemas.reports import REPORT_TABLES

from federator.protocol.telemetry.records import MADE_WINDOW_US

START_US = 1_790_000_000_000_000
FLOOR_US = {(1, 2): 2_000, (2, 3): 3_000, (1, 3): 5_000}
LINE = dict[str, object]


def spool_of(broker: int) -> str:
    return f"{broker:016x}"


def record(table: str, broker: int, *, batch: int, row: int, **values: object) -> LINE:
    """One record; ``batch`` also counts the seconds since START_US unless ``at_us`` is told."""
    head = {"v": 1, "table": table, "federation": "example", "broker": broker, "epoch": 1}
    head |= {"spool": spool_of(broker), "batch": batch, "row": row, "window_ms": 1_000}
    return head | {"at_us": START_US + batch * 1_000_000} | values


def bucket_of(us: int) -> int:
    """The histogram's bucket of a delay above its base."""
    bucket = 0
    while us > 1.02**bucket:
        bucket += 1
    return bucket


def delivery(origin: int, delays_us: Iterable[int], **values: object) -> LINE:
    """The values of a ``deliveries`` row for these delays."""
    told = sorted(delays_us)
    counts: dict[int, int] = defaultdict(int)
    for delay in told:
        counts[bucket_of(delay - told[0])] += 1
    row: LINE = {"origin": origin, "hops": 2, "qos": 1, "strategy": "mesh", "redundancy": 2}
    row |= {"publications": len(told), "bytes": 100 * len(told), "frames": len(told)}
    row |= {"out_of_order": 0, "repaired": 0, "base_us": told[0], "sum_us": sum(told)}
    row |= {"min_us": told[0], "max_us": told[-1]}
    return row | {"delay": [[b, n] for b, n in sorted(counts.items())]} | values


def link(neighbour: int, round_trip_us: int, **values: object) -> LINE:
    """The values of a ``links`` row."""
    row: LINE = {"neighbour": neighbour, "up": 1, "cost": 1, "round_trip_us": round_trip_us}
    row |= dict.fromkeys(("queue_bytes", "duplicates", "duplicate_publications"), 0)
    row |= dict.fromkeys(("dropped", "deferred"), 0)
    row |= {"frames_out": 4, "publications_out": 4, "bytes_out": 500}
    return row | {"frames_in": 4, "publications_in": 4, "bytes_in": 500} | values


AGENT: LINE = {
    "clients": 2,
    "filters": 1,
    "local_filters": 1,
    "publications_in": 4,
    "publications_out": 4,
    "delivered": 4,
    "no_route": 0,
    "dropped": 0,
    "deferred": 0,
    "custody_bytes": 0,
    "custody_gaps": 0,
    "send_queue_bytes": 0,
    "cpu_us": 20_000,
    "rss_bytes": 40_000_000,
    "loop_lag_us": 300,
    "redundancy": 2,
    "link_count": 1,
}


def _second(broker: int, batch: int, clocks_us: Mapping[int, int]) -> list[LINE]:
    """What ``broker`` reports of one second."""
    neighbours = {1: (2,), 2: (1, 3), 3: (2,)}[broker]
    rows: list[tuple[str, LINE]] = [("agents", AGENT)]
    for neighbour in neighbours:
        floor_us = FLOOR_US[min(broker, neighbour), max(broker, neighbour)]
        known = {"capacity": 64_000 + 1_000 * (batch % 5)} if broker < neighbour else {}
        rows.append(("links", link(neighbour, 2 * floor_us + batch % 3, **known)))
        flood = {"neighbour": neighbour, "kind": "core_ann", "messages": 1, "bytes": 80}
        rows.append(("control", flood | {"direction": "out"}))
        rows.append(("control", flood | {"direction": "in"}))
    if broker == 1:
        rows.append(("announcements", {"announcements": 1}))
    if broker in (1, 3):
        other = 4 - broker
        skew_us = clocks_us.get(broker, 0) - clocks_us.get(other, 0)
        delays_us = [FLOOR_US[1, 3] + skew_us + 37 * batch + 150 * i * i for i in range(4)]
        counts = {"filter": "a/#", "qos": 1, "strategy": "mesh", "publications": 4, "bytes": 400}
        made = {one: START_US + batch * 1_000_000 + clocks_us.get(one, 0) for one in (1, 3)}
        made = {one: us - us % MADE_WINDOW_US for one, us in made.items()}
        rows.append(("offered", counts | {"made_us": made[broker]}))
        rows.append(("arrived", counts | {"origin": other, "made_us": made[other]}))
        if batch % 10 == 1:
            since_us = START_US - 60_000_000 + clocks_us.get(broker, 0)
            rows.append(("wants", {"filter": "a/#", "since_us": since_us, "window_ms": 0}))
        rows.append(("deliveries", delivery(other, delays_us)))
        told = {"flow": "a/#", "rate": 3_200 + batch, "error": 9, "publications_per_min": 240}
        rows.append(("flows", told | {"destinations": 1, "planned": int(batch > 20)}))
    return [
        record(table, broker, batch=batch, row=row, **values)
        for row, (table, values) in enumerate(rows)
    ]


def _sampled(seq: int, clocks_us: Mapping[int, int]) -> list[tuple[int, LINE]]:
    """A frame from 1 by 2 to 3, as each of them saw it."""
    at_us = START_US + seq * 1_000_000 + 500_000
    told: LINE = {"origin": 1, "origin_epoch": 1, "seq": seq, "custody": 1, "qos": 1}
    told |= {"origin_time_us": at_us + clocks_us.get(1, 0), "window_ms": 0}
    passed = [(1, 0, None, 0), (2, 1, 1, 2_300 + seq), (3, 2, 2, 5_500 + 3 * seq)]
    return [
        (b, told | {"hop": hop, "sender": s, "at_us": at_us + us + clocks_us.get(b, 0)})
        for b, hop, s, us in passed
    ]


def example(
    *, seconds: int = 25, clocks_us: Mapping[int, int] | None = None
) -> dict[int, list[LINE]]:
    """Broker to its records of ``seconds`` seconds, one batch each, in order."""
    clocks = clocks_us or {}
    told: dict[int, list[LINE]] = {}
    for broker in (1, 2, 3):
        told[broker] = []
        for batch in range(1, seconds + 1):
            told[broker] += _second(broker, batch, clocks)
            for seen_by, values in _sampled(batch, clocks):
                if seen_by == broker:
                    row = len(_second(broker, batch, clocks))
                    told[broker].append(record("hops", broker, batch=batch, row=row, **values))
        told[broker].append(_event(broker, seconds, "agent_started", at_s=0))
    told[3].append(_event(3, seconds, "link_down", at_s=12, neighbour=2, row=1))
    told[2].append(_event(2, seconds, "link_down", at_s=12, neighbour=3, row=1))
    told[3].append(_event(3, seconds, "parent_changed", at_s=14, filter="a/#", row=2))
    return told


def _event(
    broker: int, seconds: int, kind: str, *, at_s: int, row: int = 0, **values: object
) -> LINE:
    told: LINE = {"kind": kind, "window_ms": 0, "at_us": START_US + at_s * 1_000_000}
    return record("events", broker, batch=seconds + 1, row=row, **(told | values))


def text(records: Iterable[LINE]) -> str:
    """Lines as an agent writes them."""
    return "".join(json.dumps(told, separators=(",", ":")) + "\n" for told in records)


def land(folder: Path, told: Mapping[int, list[LINE]], *, batches_per_file: int = 10) -> list[Path]:
    """Write a landing folder as the collector does; returns its files."""
    paths = []
    for broker, records in sorted(told.items()):
        segments: dict[int, list[LINE]] = defaultdict(list)
        for one in records:
            batch = one["batch"]
            assert isinstance(batch, int)
            segments[(batch - 1) // batches_per_file].append(one)
        for _, lines in sorted(segments.items()):
            first, last = lines[0], lines[-1]
            assert isinstance(first["at_us"], int)
            at = datetime.fromtimestamp(first["at_us"] / 1e6, tz=UTC)
            name = f"{broker}-{spool_of(broker)}-{first['batch']}-{last['batch']}.jsonl"
            path = folder / f"date={at:%Y-%m-%d}" / f"hour={at:%H}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text(lines))
            paths.append(path)
    return paths


def reported(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """Each report table's rows, in an order of their own; read without Spark, which takes long."""
    rows = read_tables(folder).rows
    return {name: sorted((tuple(row.values()) for row in rows[name]), key=repr) for name in rows}


def typed(folder: Path) -> dict[str, set[pa.Schema]]:
    """Each report table to the columns and types of its files: one set, if they are alike.

    Whether a column may be NULL is left out: Spark's writer tells what its plan of the day knows.
    """

    def of(file: Path) -> pa.Schema:
        return pa.schema([field.with_nullable(True) for field in pq.read_schema(file)])

    return {name: {of(file) for file in part_files(folder / name)} for name in REPORT_TABLES}
