"""Report tables of a small federation, as Spark would write them, for tests of what is shown.

Nine brokers in a grid; broker 9 dies at the end; filters are named by somebody hostile.
"""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from federator_analytics.schemas.reports import REPORT_TABLES
from pyspark.sql.pandas.types import to_arrow_schema

HOSTILE = "<script>alert(1)</script>/\"'&{{7*7}}</title>/#"
NAMES = {
    1: "hall-3",
    2: "<img src=x onerror=alert(1)>\"'&",
    3: "Kesselhaus S\u00fcd, 2. Stock",
    9: "hall-3",
}
"""Of brokers: one is hostile and two are the same."""
START = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
SIDE = 3


def write_table(folder, name, rows):
    """One Parquet table of the report; NULL where a row has no value."""
    schema = to_arrow_schema(REPORT_TABLES[name], timezone="UTC")
    filled = [{field: row.get(field) for field in schema.names} for row in rows]
    (Path(folder) / name).mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.Table.from_pylist(filled, schema=schema), Path(folder) / name / "part-0.parquet"
    )


def write_tables(folder, tables):
    for name in REPORT_TABLES:
        write_table(folder, name, tables.get(name, []))


def grid_links():
    def id_of(x, y):
        return 1 + x + SIDE * y

    across = [(id_of(x, y), id_of(x + 1, y)) for y in range(SIDE) for x in range(SIDE - 1)]
    down = [(id_of(x, y), id_of(x, y + 1)) for y in range(SIDE - 1) for x in range(SIDE)]
    return across + down


def hops_between(a, b):
    return abs((a - 1) % SIDE - (b - 1) % SIDE) + abs((a - 1) // SIDE - (b - 1) // SIDE)


# Rows of tables, several keys to a line.
# fmt: off
def example(seed=1):
    """Rows by table name."""
    draw = random.Random(seed)
    brokers = range(1, SIDE * SIDE + 1)
    pairs = [(a, b) for a in brokers for b in brokers if a != b and draw.random() < 0.6]
    tables = {"delay": list(_delays(draw, pairs)), "delay_over_time": []}
    for window in range(36):
        for a, b in pairs[:12]:
            base = 900 * hops_between(a, b) * (3 if window == 20 else 1) * draw.uniform(0.9, 1.2)
            tables["delay_over_time"].append(
                {
                    "window_start": START + timedelta(seconds=10 * window), "origin": a,
                    "destination": b, "strategy": "mesh", "publications": 200,
                    "delay_us_p50": int(base), "delay_us_p95": int(base * 2),
                    "delay_us_p99": int(base * 3), "quality": "ok",
                }
            )
    tables["hop_times"] = [
        {
            "origin": a, "destination": b, "hop": 1, "sender": a, "receiver": b, "samples": 40,
            "hop_us_p50": draw.randrange(500, 1500), "hop_us_p95": 2500, "quality": "ok",
        }
        for a, b in grid_links()
    ]
    tables |= _costs(draw, pairs) | _changes() | _load(draw, brokers)
    return tables


def _delays(draw, pairs):
    def row(scope, links, publications, **keys):
        p50 = int(900 * links * draw.uniform(0.9, 1.3))
        return {
            "scope": scope, "publications": publications, "delay_us_p50": p50,
            "delay_us_p95": p50 * 2, "delay_us_p99": p50 * 3, "delay_us_mean": p50 * 1.2,
            "delay_us_min": p50 // 2, "delay_us_max": p50 * 9, "floor_us": 600 * links,
            "quality": "ok",
        } | keys

    yield row("all", 2, 7200 * len(pairs))
    for strategy in ("mesh", "shortest-path"):
        yield row("strategy", 2, 3600 * len(pairs), strategy=strategy, floor_us=None)
    for hops in range(1, 5):
        yield row("hops", hops, 1800 * len(pairs), hops=hops, floor_us=None)
    for number, (a, b) in enumerate(pairs):
        doubt = {5: "flagged", 6: "corrected"}.get(number, "ok")
        offset = 3_600_000_000 if doubt != "ok" else None
        pair = {"origin": a, "destination": b, "quality": doubt, "clock_offset_us": offset}
        hops = hops_between(a, b)
        yield row("pair", hops, 7200, **pair)
        yield row("pair_hops", hops, 7200, **pair, hops=hops, qos=0, strategy="mesh")


def _costs(draw, pairs):
    overall = {
        "brokers": 9, "links": 12, "announcements": 640, "control_messages": 13_800,
        "control_messages_per_announcement": 21.6, "bound_2l": 24, "control_bytes": 1_900_000,
        "data_bytes": 88_000_000, "control_bytes_per_data_byte": 0.0216,
        "publications_offered": 120_000, "publications_delivered": 342_000, "data_copies": 481_000,
        "copies_per_publication": 4.01, "duplicates_suppressed": 1_204,
    }
    per_strategy = {"brokers": 9, "links": 12, "bound_2l": 24, "publications_delivered": 171_000}
    filters = ["plant/+/temperature", HOSTILE, "meters/#", "building/7/floor/2/room/+/presence"]
    ways = [(name, a, b) for name in filters for a, b in pairs if draw.random() < 0.5]
    return {
        "overhead": [
            overall,
            per_strategy | {"strategy": "mesh", "redundancy": 1, "data_copies": 260_000},
            per_strategy | {"strategy": "shortest-path", "redundancy": 1, "data_copies": 221_000},
        ],
        "control_by_kind": [
            {"broker": a, "neighbour": b, "kind": kind, "messages": n, "bytes": n * width}
            for a, b in grid_links()
            for kind, n, width in (("hello", 360, 90), ("core_ann", 120, 210), ("ack", 700, 40))
        ],
        "loss": [
            {
                "filter": name, "origin": a, "destination": b,
                "qos": 1 if name == "meters/#" else 0, "offered": 3600,
                "arrived": 3600 - (17 if (a, b) == pairs[3] else 0),
                "missing": 17 if (a, b) == pairs[3] else 0,
                "surplus": 0, "under_way": 0, "not_owed": 10,
                "out_of_order": 2 if (a, b) == pairs[3] else 0, "note": "compared",
            }
            for name, a, b in ways
        ],
        "traffic_matrix": [
            {
                "filter": name, "origin": a, "destination": b,
                "publications": (n := draw.randrange(300, 90_000)), "bytes": n * 180,
                "rate_per_s": n / 360,
            }
            for name, a, b in ways
        ],
        "clocks": [
            {
                "a": a, "b": b, "offset_us": 3_600_000_000 if b == 9 else 40,
                "one_way_min_ab_us": 500, "one_way_min_ba_us": 520, "windows": 360,
                "verdict": "corrected" if b == 9 else "ok",
            }
            for a, b in grid_links()
        ],
        "quarantine": [
            {
                "file": "1-ab-1-9.jsonl", "line": 7, "reason": "not JSON",
                "raw": "<img src=x onerror=",
            }
        ],
        "quarantine_counts": [
            {"reason": "not JSON", "records": 12},
            {"reason": "wrong type: hops", "records": 3},
        ],
    }


def _changes():
    def event(seconds, broker, kind, **keys):
        at = START + timedelta(seconds=seconds)
        return {"window_start": at, "broker": broker, "kind": kind} | keys

    started = [event(0.1 * id, id, "agent_started") for id in range(1, 10)]
    links = [event(1, a, "link_up", neighbour=b) for a, b in grid_links()]
    links += [event(1.1, b, "link_up", neighbour=a) for a, b in grid_links()]
    death = [
        event(200, 6, "link_down", neighbour=9),
        event(200.2, 8, "link_down", neighbour=9),
        event(201, 1, "takeover", subject=9, detail="8 takes over <b>all</b>"),
        event(203, 5, "core_changed", filter=HOSTILE, subject=5),
    ]
    return {
        "events": started + links + death,
        "convergence": [
            {
                "what": what, "started": START + timedelta(seconds=at),
                "settled": START + timedelta(seconds=at + took),
                "duration_us": int(took * 1_000_000), "brokers": 4,
            }
            for what, at, took in (
                ("link_down", 200, 3.2),
                ("takeover", 201, 0.8),
                ("core_changed", 203, 0.2),
                ("mesh_joined", 2, 0.4),
            )
        ],
    }


def _load(draw, brokers):
    return {
        "brokers": [
            {
                "broker": broker, "clients": 12, "filters": 40,
                "publications_in": draw.randrange(5_000, 20_000),
                "publications_out": draw.randrange(5_000, 20_000),
                "delivered": draw.randrange(15_000, 50_000), "no_route": 3, "dropped": 0,
                "cpu_share": draw.uniform(0.02, 0.4),
                "rss_bytes_max": draw.randrange(30_000_000, 60_000_000),
                "send_queue_bytes_max": 12_000, "custody_bytes_max": 40_000,
                "loop_lag_us_max": draw.randrange(2_000, 60_000), "restarts": 0,
                "last_heard": START + timedelta(seconds=200 if broker == 9 else 360),
                "name": NAMES.get(broker),
            }
            for broker in brokers
        ],
        "links": [
            {
                "a": a, "b": b, "up_share": 0.55 if b == 9 else 1.0,
                "round_trip_us_p50": draw.randrange(900, 1500), "round_trip_us_min": 800,
                "bytes_ab": draw.randrange(10**6, 9 * 10**6),
                "bytes_ba": draw.randrange(10**6, 9 * 10**6), "publications_ab": 20_000,
                "publications_ba": 19_000, "duplicates": 80, "queue_bytes_max": 12_000,
                "capacity_ab": 2_000_000 if a == 1 else None, "capacity_ba": None,
                "load_ab": {(1, 2): 0.4, (1, 4): 0.83}.get((a, b)), "load_ba": None,
            }
            for a, b in grid_links()
        ],
        "flows": [
            {
                "origin": origin, "flow": flow, "rate": rate / 2, "rate_max": rate,
                "bytes": 45 * rate, "planned_share": share,
            }
            for origin, flow, rate, share in (
                (2, "press/#", 64_000, 0.0), (1, HOSTILE, 1_600_000, 0.25),
            )
        ],
        "span": [
            {
                "federation": "plant", "first": START, "last": START + timedelta(seconds=360),
                "records": 214_000, "brokers": 9, "restarts": 1, "dropped_batches": 2,
                "duplicates_removed": 310,
            }
        ],
    }
