"""Where OpenTelemetry traces are sent, and for which share of frames.

Source: docs/how-to/opentelemetry.md.
"""

import importlib.util
from typing import Annotated, Final
from urllib.parse import urlsplit

from annotated_types import Interval

from federator.config.section import STRICT, Section, Switch, WholeNumber, readable_by, unusable

EXTRA: Final = "otel"
"""The extra that brings the library."""
URL_CHARACTERS_MAX: Final = 512
TRACES_PATH: Final = "/v1/traces"


def traces_url(endpoint: str) -> str:
    """The URL for spans at the collector ``http[s]://host[:port][/path]``.

    Raises ``ValueError``: ``what: how to mend``.
    """
    shown = repr(endpoint[:60])
    mend = "write one like http://127.0.0.1:4318"
    if len(endpoint) > URL_CHARACTERS_MAX or not endpoint.isprintable() or " " in endpoint:
        raise ValueError(f"{shown} is not a URL: {mend}")
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:
        raise ValueError(f"{shown} has a bad host or port: {mend}") from None
    if "@" in parts.netloc:
        # Never shown: what stands before the @ is a secret.
        what = "the URL holds credentials"
        raise ValueError(f"{what}: set OTEL_EXPORTER_OTLP_HEADERS in the environment")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"{shown} is no collector's URL for OTLP over HTTP: {mend}")
    if parts.query or parts.fragment:
        raise ValueError(f"{shown} has a query or a fragment: {mend}")
    place = endpoint.rstrip("/")
    return place if place.endswith(TRACES_PATH) else place + TRACES_PATH


class OpenTelemetrySettings(Section):
    """Traces of forwarded frames for a collector of OpenTelemetry, by OTLP over HTTP; needs the
    extra otel. See [how-to/opentelemetry.md](how-to/opentelemetry.md).
    """

    endpoint: Annotated[str, readable_by(traces_url)] | None = None
    """The collector, `http[s]://host[:port]`; /v1/traces is added. Off without it."""
    sample: Annotated[float, STRICT, Interval(ge=0, le=1)] = 0.001
    """The share of frames that are traced, 0 to 1. All agents select the same frames, and one with
    a smaller share a part of them: set the same share everywhere for whole traces."""
    topics: Switch = False
    """Include the filters by which frames were routed. Off by default: they may name people or
    places, and the collector may belong to others."""
    spans_per_s_max: Annotated[WholeNumber, Interval(ge=1, le=10_000)] = 100
    """Frames traced per second, at most; beyond it the share is reduced."""
    queue_spans_max: Annotated[WholeNumber, Interval(ge=1, le=65_536)] = 2_048
    """Spans that wait for the collector; further ones are dropped and counted."""
    timeout_ms: Annotated[WholeNumber, Interval(ge=100, le=60_000)] = 10_000
    """Time limit for a batch, with all attempts; after it the batch is dropped."""

    @property
    def reports(self) -> bool:
        """Whether any frame is traced."""
        return self.endpoint is not None and self.sample > 0


def _has_library() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # the parent package is missing, too
        return False


def require_exporter(settings: OpenTelemetrySettings, name: str) -> None:
    """Raise ``ConfigError`` where spans go out and the library is missing; ``name`` is the file."""
    if settings.endpoint is not None and not _has_library():
        what = "opentelemetry.endpoint needs the library opentelemetry-exporter-otlp-proto-http"
        raise unusable(f"{name}: {what}: install it (the extra {EXTRA}), or remove the key")
