"""The state of one trace: reports of brokers on its way, and which are outstanding.

Source: docs/protocol.md 8.6; docs/observability.md, "A topic on its way".
"""

from dataclasses import dataclass, field

from federator.protocol.messages.operators import Traced
from federator.protocol.types import BrokerId

Hop = tuple[BrokerId, BrokerId]
"""From one broker to the next."""


@dataclass(slots=True)
class Journey:
    """The reports about one trace."""

    start: Traced | None = None  # the report of the agent we asked, ``None`` before
    came: dict[Hop, Traced] = field(default_factory=dict)  # the report about each hop
    names: dict[str, str] = field(default_factory=dict)  # names of brokers on the way, by id

    def take(self, report: Traced) -> None:
        self.names |= report.names
        if len(report.path) == 1:
            self.start = report
        else:
            self.came[report.path[-2], report.path[-1]] = report

    @property
    def waited_for(self) -> list[Hop]:
        """Hops that were started and not yet reported."""
        reports = [report for report in (self.start, *self.came.values()) if report is not None]
        begun = [
            (report.path[-1], next_hop) for report in reports for next_hop, _ in report.next_hops
        ]
        return [hop for hop in begun if hop not in self.came]
