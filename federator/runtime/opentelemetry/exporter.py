"""Hands spans to OpenTelemetry's own library, which sends them in a thread of its own.

Whatever a collector does, adding a span never blocks: unsent spans are counted here, and refused
beyond a bound. The library generates random ids; ours must be ids that other agents know, so it is
given these instead.

Needs the extra ``otel``: imported only where spans are sent. Source: docs/how-to/opentelemetry.md.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.util.types import Attributes

from federator import __version__
from federator.config.opentelemetry import traces_url
from federator.protocol.opentelemetry.spans import Span, Value
from federator.runtime.process.notices import Complaints

BATCH_SPANS_MAX: Final = 64
"""Spans in one request. Encoding a batch takes the interpreter from the data path: it is short."""
BATCH_GAP_MS: Final = 1_000
"""How long spans wait for others to go with."""

INTEGER_MAX: Final = 2**63 - 1

_KINDS: Final = {"producer": SpanKind.PRODUCER, "consumer": SpanKind.CONSUMER}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)

_log = structlog.get_logger()


class OtlpExporter(SpanExporter):
    """Sends spans to one collector, counts the results, and logs failures now and then.

    The library calls what is of ``SpanExporter`` in its own thread.

    Args:
        endpoint: The collector, as ``traces_url`` reads it.
        resource: The sender's attributes.
        timeout_ms: Time limit of one batch.
        queue_spans_max: Spans that may wait.

    Attributes:
        added: Spans accepted.
        dropped: Spans refused: too many wait.
        exported: Spans that the collector accepted.
        failed: Spans that were sent in vain, and given up.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        resource: Mapping[str, str | int],
        timeout_ms: int,
        queue_spans_max: int,
    ) -> None:
        self.added = self.dropped = self.exported = self.failed = 0
        self._queue_spans_max = queue_spans_max
        self._url = traces_url(endpoint)
        self._inner = OTLPSpanExporter(endpoint=self._url, timeout=timeout_ms / 1_000)
        self._complain = Complaints().complain
        self._is_failing = False
        self._library = _LibraryLog.installed()
        self._processor = BatchSpanProcessor(
            self,
            max_queue_size=queue_spans_max,
            schedule_delay_millis=BATCH_GAP_MS,
            max_export_batch_size=min(BATCH_SPANS_MAX, queue_spans_max),
        )
        self._planned = _Planned()
        provider = TracerProvider(
            sampler=self._planned,
            id_generator=self._planned,
            resource=Resource.create({"service.version": __version__, **resource}),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer("federator", __version__)

    @property
    def waiting(self) -> int:
        """Spans that are not sent yet, including those in flight."""
        return self.added - self.exported - self.failed

    @property
    def trouble(self) -> str:
        """The library's last message about lost spans; empty without one."""
        return self._library.last

    def add(self, span: Span) -> bool:
        """Queue ``span``; return whether there was room. Never blocks."""
        if self.waiting >= self._queue_spans_max:
            self.dropped += 1
            return False
        self.added += 1
        self._planned.span = span
        parent = trace.INVALID_SPAN_CONTEXT
        if span.parent_id is not None:
            parent = SpanContext(
                span.trace_id, span.parent_id, is_remote=True, trace_flags=_SAMPLED
            )
        made = self._tracer.start_span(
            span.name,
            context=trace.set_span_in_context(trace.NonRecordingSpan(parent), Context()),
            kind=_KINDS[span.kind],
            attributes={name: _sound(value) for name, value in span.attributes.items()},
            start_time=_nanoseconds(span.start_us),
        )
        if span.error:
            made.set_status(trace.StatusCode.ERROR, span.error)
        made.end(_nanoseconds(span.end_us))
        return True

    def close(self, wait_s: float) -> bool:
        """Send what waits, for ``wait_s`` at most; return whether nothing is left. Blocks."""
        # The library may wait for half a minute; a daemon thread keeps the process from waiting.
        closing = threading.Thread(target=self._processor.shutdown, name="otel close", daemon=True)
        closing.start()
        closing.join(wait_s)
        return not self.waiting

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        except Exception as error:  # of the library: only its batch is lost
            self._library.last = repr(error)
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
            if self._is_failing:
                _log.info("opentelemetry.export_resumed", endpoint=self._url)
        else:
            self.failed += len(spans)
            self._complain(
                "opentelemetry.export_failed",
                endpoint=self._url,
                reason=self.trouble,
                so_far=self.failed,
            )
        self._is_failing = result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


def _sound(value: Value) -> Value:
    """``value`` within the range of OTLP, or a whole batch would be lost: labels may be forged."""
    return max(-INTEGER_MAX, min(value, INTEGER_MAX)) if isinstance(value, int) else value


def _nanoseconds(time_us: int) -> int:
    return min(time_us * 1_000, INTEGER_MAX)


class _Planned(IdGenerator, Sampler):
    """Gives the library's next span the ids of the planned one, and has it sampled."""

    span: Span

    def generate_span_id(self) -> int:
        return self.span.span_id

    def generate_trace_id(self) -> int:
        return self.span.trace_id

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        states = [self.span.trace_state] if self.span.trace_state else []
        return SamplingResult(
            Decision.RECORD_AND_SAMPLE, attributes, TraceState.from_header(states)
        )

    def get_description(self) -> str:
        return "federator"


class _LibraryLog(logging.Handler):
    """Keeps the library's last log message, for the reason of a failure, out of our own log."""

    last = ""

    @classmethod
    def installed(cls) -> "_LibraryLog":
        """The handler of the library's loggers, one per process."""
        logger = logging.getLogger("opentelemetry")
        for handler in logger.handlers:
            if isinstance(handler, cls):
                return handler
        made = cls(logging.WARNING)
        logger.addHandler(made)
        logger.propagate = False
        return made

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()[:300]
