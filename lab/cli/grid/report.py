"""``federator-lab grid --metrics DIR`` and ``--report [DIR]``: a grid's records and report."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from lab.grid.measure import Measurement
from lab.grid.measured import broker_legs_us, gather_spools, write_clients
from lab.grid.reporting import PAGE, Copies, check_analytics, compare, make_report
from lab.grid.running import FEDERATION, RunningGrid

AGENT_OPTIONS: Final[dict[str, dict[str, Any]]] = {"metrics": {"enabled": True, "sample": 10}}
"""For agents whose records are wanted. A grid's traffic is thin: one frame in ten is followed."""


@dataclass(frozen=True, slots=True)
class Records:
    """Where records go, and the report of them."""

    folder: Path  # for the records
    report: Path | None  # for tables and page; ``None``: no report is wanted

    @classmethod
    def wanted(cls, metrics: Path | None, report: str | None) -> "Records | None":
        """What the options ask for.

        Raises:
            click.UsageError: A folder holds something already.
            LinkError: Reports cannot be made here.
        """
        if metrics is None and report is None:
            return None
        place: Path | None = None
        if report is not None:
            check_analytics()
            place = Path(report or tempfile.mkdtemp(prefix="federator-report-")).resolve()
        folder = metrics.resolve() if metrics is not None else (place or Path()) / "records"
        for option, each in (("--metrics", metrics), ("--report", place)):
            if each is not None and each.is_dir() and any(each.iterdir()):
                raise click.UsageError(f"{option} {each}: is not empty; name another folder")
            if each is not None and each.exists() and not each.is_dir():
                raise click.UsageError(f"{option} {each}: is a file; name a folder")
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, place)

    def keep(self, running: RunningGrid, measurement: Measurement) -> None:
        """Gather what stopped agents and the clients wrote."""
        gather_spools((agent.state_dir for agent in running.agents.values()), self.folder)
        write_clients(measurement.runs, self.folder, federation=FEDERATION)

    async def tell(self, measurement: Measurement, copies: Copies, console: Console) -> bool:
        """Make the report, hold it against what was measured, and say where it is.

        Returns:
            Whether it agrees.

        Raises:
            LinkError: The report could not be made.
        """
        if self.report is None:
            console.print(f"records: {self.folder}", soft_wrap=True, highlight=False)
            return True
        console.print("making the report ...", highlight=False)
        summary = await make_report(self.folder, self.report)
        found = compare(summary, measurement.runs, copies, broker_legs_us(self.folder))
        for finding in found:
            text = finding.text if finding.agrees else f"fault: {finding.text}: they differ"
            console.print(text, style=None if finding.agrees else "bold red", highlight=False)
        console.print(f"report: {self.report / PAGE}", soft_wrap=True, highlight=False)
        return all(finding.agrees for finding in found)
