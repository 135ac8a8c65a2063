"""Reports to an OpenTelemetry collector what happened to sampled frames at this agent.

Hops are collected while the data path works; twice a second finished ones become spans.

Source: docs/how-to/opentelemetry.md.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from federator.config.settings import Settings
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.forwarding.frames import KEY_BYTES, keys_in
from federator.protocol.opentelemetry.hop_spans import FILTERS_MAX, hop_span
from federator.protocol.opentelemetry.hops import Hop, HopRecorder
from federator.protocol.opentelemetry.spans import places_of
from federator.protocol.telemetry.frame_events import FrameEventSink
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.parts import Part
from federator.runtime.process.clocks import beat, both_clocks

if TYPE_CHECKING:
    from federator.runtime.opentelemetry.exporter import OtlpExporter

LOOK_S: Final = 0.5
CLOSE_S: Final = 0.5
"""How long a leaving agent waits for its last spans to be sent."""


@dataclass(kw_only=True, eq=False, repr=False)
class SpanReporter:
    """Turns hops into spans, and hands these to the exporter."""

    federation: str
    self_id: BrokerId
    topics: bool  # whether filters may be reported
    recorder: HopRecorder
    exporter: "OtlpExporter"
    forwarder: Forwarder
    transport_to: Callable[[BrokerId], str]

    def part(self) -> Part:
        return Part(tasks={"spans": self.run}, end=self.leave)

    async def run(self) -> None:
        while True:
            await beat(LOOK_S)
            self._report(self.recorder.take())

    async def leave(self) -> None:
        """Report what is left, without waiting for a collector that does not answer."""
        self._report(self.recorder.take_all())
        await asyncio.to_thread(self.exporter.close, CLOSE_S)

    def _report(self, hops: list[Hop]) -> None:
        for hop in hops:
            span = hop_span(
                hop,
                federation=self.federation,
                self_id=self.self_id,
                filters=self._filters_of(hop.keys) if self.topics else (),
                transport_to=self.transport_to,
            )
            self.exporter.add(span)

    def _filters_of(self, keys: bytes) -> list[str]:
        """The filters behind ``keys``, except those between agents, which begin with ``$``."""
        few = keys_in(keys[: FILTERS_MAX * KEY_BYTES])
        named = [f for key in few for f in self.forwarder.filters_with(key)]
        return [f for f in named if not f.startswith("$")]


def reporter_of(
    settings: Settings,
    *,
    forwarder: Forwarder,
    transport_to: Callable[[BrokerId], str],
    also: FrameEventSink | None,
) -> SpanReporter:
    """The reporter of one agent; ``also`` gets all frame events, too."""
    from federator.runtime.opentelemetry.exporter import OtlpExporter  # noqa: PLC0415 - an extra

    otel, broker = settings.opentelemetry, settings.broker
    assert otel.endpoint is not None, "it is asked for where there is a collector"
    resource: dict[str, str | int] = {
        "service.name": "federator",
        "service.namespace": settings.federation,
        "service.instance.id": str(broker.id),
        "federator.broker": broker.id,
    }
    if broker.name:
        resource["federator.broker.name"] = broker.name
    return SpanReporter(
        federation=settings.federation,
        self_id=settings.broker_id,
        topics=otel.topics,
        recorder=HopRecorder(
            self_id=settings.broker_id,
            places=places_of(otel.sample),
            hops_per_s_max=otel.spans_per_s_max,
            now=both_clocks,
            also=also,
        ),
        exporter=OtlpExporter(
            otel.endpoint,
            resource=resource,
            timeout_ms=otel.timeout_ms,
            queue_spans_max=otel.queue_spans_max,
        ),
        forwarder=forwarder,
        transport_to=transport_to,
    )
