"""What changed, as rows of ``events``: the node's effects, the meshes' events, and the agent's.

Source: docs/metrics.md, "events".
"""

from collections.abc import Iterable
from typing import Any, Final

from federator.protocol import effects as e
from federator.protocol.routing.mesh_event_log import MeshEntry
from federator.protocol.telemetry.records import Events, Row
from federator.runtime.process.clocks import wall_clock_us

EVENTS_MAX: Final = 2_048
"""In one window; what is more is counted."""
DETAIL_CHARS_MAX: Final = 1_024

_WITH: Final = {"neighbour": "neighbour", "detail": "reason"}

NOTICES: Final = {
    "link.up": ("link_up", _WITH),
    "link.down": ("link_down", _WITH),
    "controller.changed": ("controller_changed", {"subject": "controller", "value": "before"}),
    "core.lost": ("core_lost", {"subject": "core", "detail": "reason"}),
    "epoch.renewed": ("epoch_renewed", {"value": "epoch"}),
    "id.conflict": ("id_conflict", {"value": "other_epoch"}),
}
"""Notices of the node that are told: the kind of event each is, and from which of its details the
fields of the event are."""

KINDS: Final = (
    *(kind for kind, _ in NOTICES.values()),
    "agent_started",
    "agent_stopped",
    "broker_up",
    "broker_down",
    "core_changed",
    "mesh_joined",
    "mesh_left",
    "parent_changed",
    "takeover",
    "takeover_ended",
    "draining",
    "spool_dropped",
    "spool_torn",
    "records_lost",
    "events_lost",
)
"""All kinds there are."""


class EventRecorder:
    """The events of one window."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._missed = 0

    def note(self, kind: str, **fields: int | str | None) -> None:
        """Something changed just now; ``fields`` as in ``Events``."""
        assert kind in KINDS, kind
        if len(self._rows) >= EVENTS_MAX:
            self._missed += 1
            return
        if isinstance(detail := fields.get("detail"), str):
            fields["detail"] = detail[:DETAIL_CHARS_MAX]
        self._rows.append({"at_us": wall_clock_us(), "kind": kind, **fields})

    def on_effect(self, effect: e.Effect) -> None:
        """Something the node ordered, which may be news."""
        match effect:
            case e.Notice(name, _, details) if name in NOTICES:
                kind, told = NOTICES[name]
                self.note(kind, **{field: details.get(detail) for field, detail in told.items()})
            case e.StepIn(broker, _, sessions):
                self.note("takeover", subject=broker, value=len(sessions))
            case e.StepBack(broker):
                self.note("takeover_ended", subject=broker)
            case e.SetDraining(drain):
                self.note("draining", value=int(drain))
            case _:
                pass

    def on_mesh_events(self, entries: Iterable[MeshEntry], missed: int) -> None:
        """What happened to meshes."""
        self._missed += missed
        fields: dict[str, int | str | None]
        for entry in entries:
            match entry.kind:
                case "core_changed":
                    before = None if entry.before is None else f"from {entry.before}"
                    fields = {"filter": entry.filter, "detail": before}
                case "parent_changed":
                    parents = ", ".join(map(str, entry.parents)) or "none"
                    first = entry.parents[0] if entry.parents else None
                    fields = {"neighbour": first, "detail": parents, "value": len(entry.parents)}
                case _:
                    fields = {"filter": entry.filter}
            self.note(entry.kind, subject=entry.core, **fields)

    def rows(self) -> list[Row]:
        """All since this was last asked."""
        if self._missed:
            missed, self._missed = self._missed, 0
            self._rows.append({"at_us": wall_clock_us(), "kind": "events_lost", "value": missed})
        rows, self._rows = self._rows, []
        return [(Events, fields) for fields in rows]
