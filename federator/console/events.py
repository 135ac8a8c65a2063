"""Events as a console lists them: deaths weigh most, then trouble, then routine.

Events are found by comparing a changed record with the one before; those of agents' metrics
streams, which report parents and meshes, are added as they arrive. The list is bounded; the oldest
goes first.

Source: docs/console.md.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Literal

from federator.protocol.telemetry.records import Events
from federator.protocol.types import BrokerId

EVENTS_MAX: Final = 500
ROUTINE_MAX: Final = 1_000
"""From agents' streams, in a list of their own: so they never push out a death."""

FILTER_SHOWN: Final = 128
"""Characters of a filter."""

Weight = Literal["death", "bad", "good", "plain", "routine"]
Record = dict[str, Any]

_STATES: Final[dict[str, tuple[Weight, str]]] = {
    "down": ("death", "is down"),
    "silent": ("death", "has an agent that does not answer"),
    "unreached": ("bad", "cannot be reached from here; its neighbours reach it"),
    "not_ready": ("bad", "is not ready"),
    "draining": ("plain", "is draining"),
    "ready": ("good", "is ready"),
}
_OF_STREAMS: Final = frozenset(
    ("parent_changed", "mesh_joined", "mesh_left", "core_changed", "core_lost")
)
"""Events that only agents' streams report; we see the rest ourselves."""


class EventList:
    """The newest events, numbered; each list is bounded."""

    def __init__(self) -> None:
        self.number = 0
        self._weighty: deque[Record] = deque(maxlen=EVENTS_MAX)
        self._routine: deque[Record] = deque(maxlen=ROUTINE_MAX)

    def look(self, before: Record | None, record: Record, *, at_ms: int) -> None:
        """Compare the record of a broker or a link with the one before, if there was one."""
        if "state" in record:
            self._broker(before, record, at_ms)
        elif before is None or before["up"] != record["up"]:
            self._link(before, record, at_ms)

    def add(
        self,
        weight: Weight,
        text: str,
        brokers: Sequence[int],
        *,
        at_ms: int,
        filter: str | None = None,
    ) -> None:
        """Note what happened to ``brokers``; ``{}`` in ``text`` stand for their names, in order.

        ``filter`` is the filter concerned; a page gets only as much of it as it shows.
        """
        self.number += 1
        event: Record = {"number": self.number, "at_ms": at_ms, "weight": weight}
        event |= {"text": text, "brokers": list(brokers)}
        if filter is not None:
            event["filter"] = filter[:FILTER_SHOWN]
        (self._routine if weight == "routine" else self._weighty).append(event)

    def on_record(self, record: Events, broker: BrokerId) -> None:
        """Add an event from the metrics stream of ``broker``."""
        if record.kind not in _OF_STREAMS:
            return
        description = record.kind.replace("_", " ")
        about = "" if record.filter is None else f" ({record.filter[:FILTER_SHOWN]})"
        brokers: list[int] = [broker]
        if record.neighbour is not None:
            brokers.append(record.neighbour)
            description += " to {}"
        text = "{}: " + description + about.replace("{", "(").replace("}", ")")
        self.add("routine", text, brokers, at_ms=record.at_us // 1_000, filter=record.filter)

    def since(self, number: int) -> list[Record]:
        """The events after ``number``, the oldest first."""
        events = (*self._weighty, *self._routine)
        newer = (event for event in events if event["number"] > number)
        return sorted(newer, key=lambda event: int(event["number"]))

    def _broker(self, before: Record | None, record: Record, at_ms: int) -> None:
        was, state = None if before is None else before["state"], record["state"]
        if was == state or state not in _STATES or (was is None and state == "ready"):
            return
        weight, words = _STATES[state]
        if state == "ready" and was == "starting":
            return
        why = f": {record['why'][:200]}" if state == "not_ready" else ""
        self.add(
            weight,
            "{} " + words + why.replace("{", "(").replace("}", ")"),
            [record["id"]],
            at_ms=at_ms,
        )

    def _link(self, before: Record | None, record: Record, at_ms: int) -> None:
        if before is None and record["up"]:
            return
        weight: Weight = "good" if record["up"] else "bad"
        words = "is up" if record["up"] else "is down"
        self.add(weight, "the link of {} and {} " + words, [record["a"], record["b"]], at_ms=at_ms)
