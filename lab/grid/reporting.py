"""A grid's report: made by analytics from what agents and clients wrote, then held against both.

Two witnesses tell the same story here. Agents count and time publications from within; clients do
so from outside, as records of the ``clients`` table beside the agents' spools, and agents' counters
of data copies are read over HTTP. The report is believed when the stories agree: counts exactly,
delays within ``DELAY_MS_MAX`` at the median, once the two legs between clients and agents, which
agents time by themselves, are added to what lies between agents.

Analytics is another program (PySpark, Java): it is started, never imported.

Source: docs/metrics.md, "clients"; docs/analytics.md.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.telemetry.records import Agents, Clients, decode, encode
from federator.protocol.telemetry.sketch import quantile
from federator.protocol.types import BrokerId
from lab.grid.clients import Arrivals
from lab.grid.processes.children import mortal, python

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
        log: dict[str, Any] = {"federation": federation, "epoch": MEASURED_EPOCH, "spool": spool}
        records = (
            Clients(broker=destination, row=row, batch=1, **log, **_fields(run))
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


DELAY_MS_MAX: Final = 0.5
"""Between the report's median and the clients'."""

PAGE: Final = "report.html"
REPORT_TIMEOUT_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Copies:
    """What the agents' counters say of data since their start."""

    copies: int  # publications in frames to neighbours
    duplicates: int  # publications suppressed

    @classmethod
    def of(cls, statuses: Mapping[BrokerId, Mapping[str, Any]]) -> "Copies":
        counters = [status["counters"]["data"] for status in statuses.values()]
        return cls(
            sum(each["copies_out"] for each in counters),
            sum(each["duplicates_suppressed"] for each in counters),
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison, and whether both sides say the same."""

    text: str
    agrees: bool


def check_analytics() -> None:
    """See that reports can be made here, before a grid runs for one.

    Raises ``LinkError``: something is missing; the text says what to install.
    """
    if find_spec("federator_analytics") is None or find_spec("pyspark") is None:
        raise LinkError("--report: PySpark is missing: run script/setup")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise LinkError("--report: Java 17 is missing: install it, or set JAVA_HOME")


async def make_report(records: Path, out: Path) -> dict[str, Any]:
    """Have analytics make the tables and the page of ``records`` in ``out``; its summary.

    Raises ``LinkError``: it could not; the text is its own.
    """
    command = mortal(
        python("federator_analytics", "report", str(records), "--out", str(out), "--json")
    )
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(REPORT_TIMEOUT_S):
            told, complaint = await process.communicate()
    except TimeoutError:
        raise LinkError(f"no report of {records} within {REPORT_TIMEOUT_S:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        lines = complaint.decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"exit code {process.returncode}"
        raise LinkError(f"{Path(sys.executable).name} -m federator_analytics report: {why}")
    summary: dict[str, Any] = json.loads(told)
    return summary


def compare(
    summary: Mapping[str, Any], runs: Sequence[Run], copies: Copies, legs_us: Mapping[int, float]
) -> list[Finding]:
    """The report beside what clients measured and agents' counters say.

    ``legs_us`` lie between a client and the agent, by broker.
    """
    delay, overhead = summary["delay"], summary["overhead"]["overall"] or {}
    told = {(row["origin"], row["destination"]): row for row in delay["slowest_pairs"]}
    found: list[Finding] = []
    for publisher, destination in sorted({(run.publisher, run.destination) for run in runs}):
        own = [run for run in runs if (run.publisher, run.destination) == (publisher, destination)]
        row = told.get((publisher, destination))
        if row is None and delay["pairs"] > len(told):
            continue  # the summary names the slowest pairs only; the total has them all
        both_us = legs_us.get(publisher, 0.0) + legs_us.get(destination, 0.0)
        found.append(_delays(f"from {publisher} to {destination}", row or {}, own, both_us))
    received = sum(run.arrivals.received + run.arrivals.duplicates for run in runs)
    text = f"report: {delay['publications']:,} of {received:,} deliveries in all"
    found.append(Finding(text, delay["publications"] == received))
    reported = [overhead.get(name) or 0 for name in ("data_copies", "duplicates_suppressed")]
    found.append(
        Finding(
            f"report: {reported[0]:,} data copies (agents' counters {copies.copies:,}), "
            f"{reported[1]:,} duplicates suppressed (agents' counters {copies.duplicates:,})",
            reported == [copies.copies, copies.duplicates],
        )
    )
    return found


def _delays(what: str, row: Mapping[str, Any], own: Sequence[Run], legs_us: float) -> Finding:
    received = sum(run.arrivals.received + run.arrivals.duplicates for run in own)
    reported = row.get("publications") or 0
    text = f"report: {reported:,} of {received:,} deliveries {what}"
    p50_us = row.get("delay_us_p50")
    if not received:
        return Finding(text, reported == 0)
    if p50_us is None:
        return Finding(f"{text}, no p50", False)
    clients_ms = median_us(own) / 1_000
    report_ms = (p50_us + legs_us) / 1_000
    text += (
        f", p50 {report_ms:.2f} ms: {p50_us / 1_000:.2f} between agents and "
        f"{legs_us / 1_000:.2f} at both brokers (clients {clients_ms:.2f})"
    )
    close = abs(report_ms - clients_ms) <= DELAY_MS_MAX
    return Finding(text, reported == received and close)
