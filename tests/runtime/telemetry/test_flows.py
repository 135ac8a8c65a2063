"""Flows as rows: the heaviest few, by short names, as whole numbers."""

import pytest

from federator.protocol.messages.steering import FILTERS_MAX, FlowLoad
from federator.protocol.telemetry.records import FLOWS_MAX, LINE_BYTES_MAX, Flows, decode, encode
from federator.runtime.telemetry.state import flow_rows

WHEN = {"at_us": 5, "window_ms": 1_000}
OF = {"federation": "f", "broker": 3, "epoch": 5, "spool": "0" * 16, "batch": 7, "row": 0}


def test_a_flow_is_told_in_whole_numbers() -> None:
    flow = FlowLoad(("a/#", "b"), (2, 4), 1_000.6, 20.4, 0.1, planned=True)

    assert flow_rows([flow], WHEN) == [
        (
            Flows,
            {"at_us": 5, "window_ms": 1_000, "flow": "a/# b", "rate": 1_001, "error": 20}
            | {"publications_per_min": 6, "destinations": 2, "planned": 1},
        )
    ]


@pytest.mark.parametrize("letter", ["x", "\x01"])
def test_of_any_number_of_flows_with_filters_of_any_length_few_short_lines_are_told(letter) -> None:
    filters = [
        tuple(f"{n}/{at}/{letter * 1_000}" for at in range(FILTERS_MAX)) for n in range(100, 140)
    ]
    flows = [FlowLoad(some, (), 1e15 / n, 1e15, 1e12) for n, some in enumerate(filters, 1)]

    rows = flow_rows(flows, WHEN)

    lines = [encode(table(**OF, **fields)) for table, fields in rows]
    told = [record for line in lines if isinstance(record := decode(line), Flows)]
    assert len(lines) == FLOWS_MAX
    assert all(len(line) < 2_000 < LINE_BYTES_MAX for line in lines)
    assert [record.flow[:4] for record in told] == [f"{n}/" for n in range(100, 116)]
