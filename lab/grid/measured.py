"""What a grid's clients measured, as records of the ``clients`` table, beside the agents' spools.

So whoever reads the agents' stream can hold it against somebody who measured from outside.

Source: docs/metrics.md, "clients".
"""

import secrets
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from federator.protocol.telemetry.records import Agents, Clients, decode, encode
from federator.protocol.telemetry.sketch import quantile
from federator.protocol.types import BrokerId
from lab.grid.tally import Arrivals

MEASURED_EPOCH: Final = 0
"""Clients have no incarnations."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one subscriber got of one publisher in one run."""

    at_us: int  # when the run began, Unix time
    window_ms: int  # how long it took
    publisher: BrokerId  # the broker it was published at
    destination: BrokerId  # the subscriber's broker
    qos: int  # of publications and subscriptions
    strategy: str  # of the agents
    arrivals: Arrivals  # what came


def write_clients(runs: Iterable[Run], folder: Path, *, federation: str) -> None:
    """One file per destination into ``folder``, named like a segment of a spool."""
    by_destination: dict[BrokerId, list[Run]] = {}
    for run in runs:
        by_destination.setdefault(run.destination, []).append(run)
    for destination, own in sorted(by_destination.items()):
        spool = secrets.token_hex(8)
        log: dict[str, Any] = {
            "federation": federation,
            "epoch": MEASURED_EPOCH,
            "spool": spool,
            "batch": 1,
        }
        records = (
            Clients(broker=destination, row=row, **log, **_fields(run))
            for row, run in enumerate(own)
        )
        content = b"".join(encode(record) + b"\n" for record in records)
        (folder / f"{destination}-{spool}-1-1.jsonl").write_bytes(content)


def gather_spools(state_dirs: Iterable[Path], folder: Path) -> int:
    """Copy the whole segments of stopped agents into ``folder``; how many."""
    segments = [path for state in state_dirs for path in sorted(state.glob("metrics/*.jsonl"))]
    for path in segments:
        shutil.copy2(path, folder / path.name)
    return len(segments)


def broker_legs_us(folder: Path) -> dict[int, float]:
    """What the agents of the records in ``folder`` say of a leg between a client and them: the
    median for each broker.
    """
    found: dict[int, list[int]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            record = decode(line)
            if isinstance(record, Agents) and record.broker_round_trip_us is not None:
                found.setdefault(record.broker, []).append(record.broker_round_trip_us)
    return {broker: median(each) for broker, each in found.items()}


def median_us(runs: Iterable[Run]) -> float:
    """The middle of all delays; within 1 % when there are too many to have kept each."""
    sketches = [run.arrivals.delays for run in runs]
    exact = sorted(delay for each in sketches for delay in each.each_us)
    if len(exact) == sum(count for each in sketches for _, count in each.buckets):
        return exact[max(0, -(-len(exact) // 2) - 1)]
    return quantile([(each.base_us, each.buckets) for each in sketches if each.buckets], 0.5)


def _fields(run: Run) -> dict[str, Any]:
    delays = run.arrivals.delays
    return {
        "at_us": run.at_us,
        "window_ms": run.window_ms,
        "publisher_broker": run.publisher,
        "destination": run.destination,
        "qos": run.qos,
        "strategy": run.strategy,
        "publications": run.arrivals.received + run.arrivals.duplicates,
        "expected": run.arrivals.sent,
        "base_us": delays.base_us,
        "sum_us": delays.sum_us,
        "min_us": delays.min_us,
        "max_us": delays.max_us,
        "delay": delays.buckets,
        "delays_us": delays.each_us,
    }
