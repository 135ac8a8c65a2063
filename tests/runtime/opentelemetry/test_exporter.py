"""The exporter: what it sends is what it was given, and nobody who adds a span waits for it."""

import logging
import time

import pytest

from federator.protocol.opentelemetry.spans import Span
from federator.runtime.opentelemetry.exporter import OtlpExporter
from tests.otlp_collector import collecting

AT_ONCE_S = 2.0
"""Far less than a collector that is silent would have whoever waits for it wait."""


def span(number, **fields):
    told = {"kind": "consumer", "trace_id": 9 << 64 | 1, "span_id": number, "parent_id": None}
    told |= {"name": "forward", "start_us": 5, "end_us": 7, "attributes": {"federator.hops": 1}}
    return Span(**(told | fields))


def exporter(url, **options):
    bounds = {"timeout_ms": 5_000, "queue_spans_max": 100} | options
    return OtlpExporter(url, resource={"service.name": "federator"}, **bounds)


def test_a_span_arrives_as_it_is():
    with collecting() as collector:
        sends = exporter(collector.url)
        assert sends.add(span(3, trace_state="ot=th:8"))
        assert sends.add(span(4, parent_id=3, kind="producer", error="lost", start_us=6))
        assert sends.close(10)

    one, two = collector.spans
    assert (one.trace_id, one.span_id, one.parent_id) == (f"{9 << 64 | 1:032x}", f"{3:016x}", "")
    assert (one.start_ns, one.end_ns, one.error, one.trace_state) == (5_000, 7_000, "", "ot=th:8")
    assert (two.parent_id, two.trace_id, two.error) == (one.span_id, one.trace_id, "lost")
    assert (one.kind, two.kind) == (5, 4)
    assert one.attributes == {"federator.hops": 1}
    assert one.resource["service.name"] == "federator"
    assert (sends.exported, sends.failed, sends.dropped, sends.waiting) == (2, 0, 0, 0)


def test_the_spans_of_a_trace_that_came_later_do_not_take_the_names_of_earlier_ones():
    with collecting() as collector:
        sends = exporter(collector.url)
        for number in range(1, 90):
            sends.add(span(number, trace_id=number << 64, parent_id=number + 1))
        assert sends.close(10)

    for number, got in enumerate(collector.spans, 1):
        assert int(got.span_id, 16) == number
        assert int(got.trace_id, 16) == number << 64
        assert int(got.parent_id, 16) == number + 1


def test_what_a_silent_collector_does_not_take_is_bounded_counted_and_waited_for_by_nobody():
    with collecting() as collector:
        collector.held.clear()
        sends = exporter(collector.url, queue_spans_max=10, timeout_ms=60_000)
        since_s = time.monotonic()

        taken = [sends.add(span(number)) for number in range(1, 1_001)]

        assert taken == [True] * 10 + [False] * 990
        assert (sends.waiting, sends.dropped) == (10, 990)
        assert not sends.close(0.2)
        assert time.monotonic() - since_s < AT_ONCE_S


def test_numbers_of_a_lying_label_lose_no_batch():
    most = {"federator.seq": 2**64 - 1, "federator.since_origin_us": 5 - (2**64 - 1)}
    with collecting() as collector:
        sends = exporter(collector.url)
        sends.add(span(1, attributes=most, start_us=2**63 - 1, end_us=2**63 - 1))
        sends.add(span(2))
        assert sends.close(10)

    assert sends.exported == 2
    assert collector.spans[0].attributes["federator.seq"] == 2**63 - 1


@pytest.mark.parametrize("path", ["", "/", "/v1/traces", "/tempo"])
def test_a_collector_may_be_named_with_or_without_the_path(path):
    with collecting() as collector:
        sends = exporter(collector.url + path)
        sends.add(span(1))
        assert sends.close(10)

    assert collector.paths == {"/tempo/v1/traces" if path == "/tempo" else "/v1/traces"}


def test_a_refused_batch_is_counted_and_its_reason_kept_out_of_other_logs(monkeypatch):
    heard = []
    handler = logging.Handler()
    handler.emit = heard.append
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    with collecting() as collector:
        collector.status = 400
        sends = exporter(collector.url)
        sends.add(span(1))
        sends.close(10)

    assert (sends.exported, sends.failed, sends.waiting) == (0, 1, 0)
    assert "code: 400" in sends.trouble
    assert [r for r in heard if r.name.startswith("opentelemetry")] == []
