"""Reports to an OpenTelemetry collector what happened to sampled frames at this agent.

Hops are collected while the data path works; twice a second finished ones become spans.

Source: docs/how-to/opentelemetry.md.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from federator.config.opentelemetry import OpenTelemetrySettings
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.forwarding.frames import KEY_BYTES, keys_in
from federator.protocol.opentelemetry.hop_spans import FILTERS_MAX, hop_span
from federator.protocol.opentelemetry.hops import Hop, HopRecorder
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.parts import Part
from federator.runtime.process.clocks import beat

if TYPE_CHECKING:
    from federator.runtime.opentelemetry.exporter import OtlpExporter

LOOK_S: Final = 0.5
CLOSE_S: Final = 0.5
"""How long a leaving agent waits for its last spans to be sent."""


def exporter_of(
    settings: OpenTelemetrySettings, *, federation: str, broker: BrokerId, name: str
) -> "OtlpExporter":
    """The exporter of one agent. ``name`` is that of its broker, or empty."""
    from federator.runtime.opentelemetry.exporter import OtlpExporter  # noqa: PLC0415 - an extra

    assert settings.endpoint is not None, "it is asked for where there is a collector"
    resource: dict[str, str | int] = {
        "service.name": "federator",
        "service.namespace": federation,
        "service.instance.id": str(broker),
        "federator.broker": broker,
    }
    if name:
        resource["federator.broker.name"] = name
    return OtlpExporter(
        settings.endpoint,
        resource=resource,
        timeout_ms=settings.timeout_ms,
        queue_spans_max=settings.queue_spans_max,
    )


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
