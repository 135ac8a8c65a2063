"""A collector of OpenTelemetry for tests: takes OTLP over HTTP, as protobuf, and keeps spans."""

import contextlib
import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue


@dataclass(frozen=True)
class Got:
    """A span as it came, with who sent it."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str  # empty: none
    start_ns: int
    end_ns: int
    attributes: dict[str, object]
    resource: dict[str, object]
    trace_state: str
    error: str


class Collector:
    """What came so far, and what is answered.

    Attributes:
        spans: All that came, in order.
        status: Of the answers.
        held: While it is not set, nobody gets an answer.
    """

    def __init__(self):
        self.spans = []
        self.requests = 0
        self.paths = set()
        self.status = 200
        self.held = threading.Event()
        self.held.set()
        self.url = ""

    def take(self, path, body):
        """Keep the spans of a request."""
        self.requests += 1
        self.paths.add(path)
        self.held.wait(60)
        if self.status != 200:
            return
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = attributes(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans += [_got(span, resource) for span in scope.spans]


def _got(span, resource):
    return Got(
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=attributes(span.attributes),
        resource=resource,
        trace_state=span.trace_state,
        error=span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else "",
    )


def attributes(pairs):
    """Attributes as a dictionary of Python's own values."""
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


@contextlib.contextmanager
def collecting():
    """A collector that listens on a free port of loopback."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.headers["Content-Type"] == "application/x-protobuf"
            collector.take(self.path, body)
            answer = ExportTraceServiceResponse().SerializeToString()
            with contextlib.suppress(OSError):  # who asked may be gone
                self.send_response(collector.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_):
            """Say nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield collector
    finally:
        collector.held.set()
        server.shutdown()
        server.server_close()
        thread.join()
