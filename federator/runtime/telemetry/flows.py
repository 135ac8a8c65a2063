"""The heaviest flows of our clients as rows of one window: the causes of link load.

Clients choose the number of flows and the length of filters, so few are reported, by short names.

Source: docs/metrics.md, "flows".
"""

from collections.abc import Sequence
from typing import Any

from federator.protocol.messages.steering import FlowLoad
from federator.protocol.telemetry.records import FLOWS_MAX, Flows, Row, flow_name


def flow_rows(flows: Sequence[FlowLoad], when: dict[str, Any]) -> list[Row]:
    """A row for each of the first ``FLOWS_MAX`` of ``flows``, which are the heaviest first."""
    return [(Flows, when | _as_json(flow)) for flow in flows[:FLOWS_MAX]]


def _as_json(flow: FlowLoad) -> dict[str, Any]:
    return {
        "flow": flow_name(flow.filters),
        "rate": round(flow.rate),
        "error": round(flow.error),
        "publications_per_min": round(60 * flow.publications),
        "destinations": len(flow.destinations),
        "planned": int(flow.planned),
    }
