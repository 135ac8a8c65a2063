"""Spans for a hop of a sampled frame, and for each hop that ``federator trace`` reports.

Attributes have the names of OpenTelemetry's conventions for messaging, and ours begin with
``federator.``. A filter is not the name of a topic but what the conventions call a template; one
without wildcards is both.

Source: docs/how-to/opentelemetry.md.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from federator.protocol.forwarding.frames import CUSTODY_FLAG, REPAIR_FLAG
from federator.protocol.messages.broker_names import sound_name
from federator.protocol.messages.operators import Traced
from federator.protocol.opentelemetry.hops import Hop
from federator.protocol.opentelemetry.spans import (
    Span,
    Value,
    span_id_of,
    trace_id_of,
    trace_state_of,
)
from federator.protocol.telemetry.journey import Journey
from federator.protocol.types import BrokerId

FILTERS_MAX: Final = 16
"""Filters of one frame in a span."""
FILTER_CHARACTERS_MAX: Final = 256
"""A longer filter is cut to this length."""

_SYSTEM: Final[dict[str, Value]] = {"messaging.system": "mqtt"}


def hop_span(
    hop: Hop,
    *,
    federation: str,
    self_id: BrokerId,
    filters: Sequence[str],
    transport_to: Callable[[BrokerId], str],
) -> Span:
    """The span of this agent's work on a sampled frame.

    Args:
        hop: The recorded hop.
        federation: Its name, the same on all agents.
        self_id: Our broker.
        filters: The filters that routed the frame, if known and allowed to be shown.
        transport_to: The transport of frames to a neighbour.
    """
    frame = hop.frame
    trace_id = trace_id_of(federation, frame, hop.place)
    span_id, parent_id = span_id_of(trace_id, self_id), None
    if hop.is_delivery:
        span_id, parent_id = span_id_of(trace_id, self_id, "delivery"), span_id
    elif hop.sender is not None:
        parent_id = span_id_of(trace_id, hop.sender)
    is_ours = hop.sender is None and not hop.is_delivery
    operation = "send" if is_ours else "forward" if hop.sent_to or not hop.delivered else "deliver"
    attributes = _SYSTEM | {
        "messaging.operation.type": "send" if is_ours else "process",
        "messaging.operation.name": operation,
        "federator.broker": self_id,
        "federator.origin": frame.origin,
        "federator.epoch": frame.epoch,
        "federator.seq": frame.seq,
        "federator.hops": hop.hops,
        "federator.qos": hop.flags & CUSTODY_FLAG,
        "federator.repair": hop.flags & REPAIR_FLAG > 0,
        "federator.frame.bytes": hop.size,
        "federator.delivered": hop.delivered,
        "federator.next_hops": hop.sent_to,
        "federator.next_hops.transports": [transport_to(neighbour) for neighbour in hop.sent_to],
    }
    if hop.publications > 1:
        attributes["messaging.batch.message_count"] = hop.publications
    if hop.sender is not None:
        attributes["federator.previous_hop"] = hop.sender
        attributes["federator.previous_hop.transport"] = transport_to(hop.sender)
    if hop.origin_time_us is not None:
        attributes["federator.since_origin_us"] = hop.start_us - hop.origin_time_us
    if hop.refused_to:
        attributes["federator.refused_by"] = hop.refused_to
    attributes |= _destination(filters)
    return Span(
        name=f"{operation} {filters[0][:FILTER_CHARACTERS_MAX]}" if filters else operation,
        kind="producer" if is_ours else "consumer",
        trace_id=trace_id,
        span_id=span_id,
        parent_id=parent_id,
        start_us=hop.start_us,
        end_us=hop.end_us,
        attributes=attributes,
        error=f"{hop.lost} publications lost: queue full or no link" if hop.lost else "",
        trace_state=trace_state_of(hop.places),
    )


def journey_spans(journey: Journey, topic: str, *, trace_id: int) -> list[Span]:
    """The spans of a ``federator trace``: that of the asked agent, and one for each hop from there.

    A hop lasts from when the trace was at the previous broker to when it came; each time is by the
    clock of that broker. A hop that was started but not reported is an error, with no duration.
    """
    start = journey.start
    if start is None:
        return []
    reports = (start, *journey.came.values())
    spans: dict[tuple[BrokerId, ...], Span] = {(): _request_span(journey, start, topic, trace_id)}
    for before in reports:
        here = before.path[-1]
        transports = [*before.transports, *[""] * len(before.next_hops)]
        for (there, queued), transport in zip(before.next_hops, transports, strict=False):
            report = journey.came.get((here, there))
            more: dict[str, Value] = {"federator.queued_bytes": queued}
            if transport:
                more["federator.previous_hop.transport"] = transport
            span = _arrival_span(journey, before, there, report, topic, trace_id, more)
            spans.setdefault((here, there), span)
    return list(spans.values())


def _request_span(journey: Journey, start: Traced, topic: str, trace_id: int) -> Span:
    """The span of the asked agent; it lasts until the last echo was back."""
    here, at_us = start.path[-1], start.times_us[0]
    back_us = max(report.back_us for report in (start, *journey.came.values()))
    return Span(
        name="trace",
        kind="producer",
        trace_id=trace_id,
        span_id=span_id_of(trace_id, here),
        parent_id=None,
        start_us=at_us,
        end_us=max(at_us, back_us),
        attributes=_report_attributes(journey, start, here, "send", topic),
    )


def _arrival_span(
    journey: Journey,
    before: Traced,
    there: BrokerId,
    report: Traced | None,
    topic: str,
    trace_id: int,
    more: Mapping[str, Value],
) -> Span:
    """The hop from the reporter of ``before`` to ``there``, with its ``report`` if one came."""
    here, sent_us = before.path[-1], before.times_us[-1]
    came_us = sent_us if report is None else report.times_us[-1]
    attributes = _report_attributes(journey, report, there, "process", topic)
    attributes |= {"federator.previous_hop": here, **more}
    if came_us < sent_us:
        attributes["federator.clock_behind_us"] = sent_us - came_us
    return Span(
        name="hop",
        kind="consumer",
        trace_id=trace_id,
        span_id=span_id_of(trace_id, here, there),
        parent_id=span_id_of(trace_id, *before.path[-2:]),
        start_us=sent_us,
        end_us=max(sent_us, came_us),
        attributes=attributes,
        error="no answer" if report is None else "",
    )


def _report_attributes(
    journey: Journey, report: Traced | None, broker: BrokerId, operation: str, topic: str
) -> dict[str, Value]:
    """Attributes of a trace at one broker; a trace is sent like a publication of QoS 0."""
    attributes = _SYSTEM | {
        "messaging.operation.type": operation,
        "messaging.operation.name": "trace" if operation == "send" else "hop",
        "messaging.destination.name": topic,
        "federator.broker": broker,
        "federator.qos": 0,
    }
    if name := sound_name(journey.names.get(str(broker))):
        attributes["federator.broker.name"] = name
    if report is not None:
        attributes |= {
            "federator.hops": len(report.path) - 1,
            "federator.first": report.first,
            "federator.delivers": report.delivers,
            "federator.next_hops": [hop for hop, _ in report.next_hops],
        }
        if report.transports:
            attributes["federator.next_hops.transports"] = list(report.transports)
        if report.why:
            attributes["federator.why"] = report.why
    return attributes


def _destination(filters: Sequence[str]) -> dict[str, Value]:
    """Attributes of the topics of a frame that was routed by ``filters``."""
    if not filters:
        return {}
    first, *others = (filter_[:FILTER_CHARACTERS_MAX] for filter_ in filters[:FILTERS_MAX])
    attributes: dict[str, Value] = {"messaging.destination.template": first}
    is_topic = first == filters[0] and not any(level in ("+", "#") for level in first.split("/"))
    if not others and is_topic:
        attributes["messaging.destination.name"] = first
    if others:
        attributes["federator.filters"] = [first, *others]
    return attributes
