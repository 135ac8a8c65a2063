"""Where traces of OpenTelemetry go, and how much of what is forwarded is told there.

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
    """Where spans are posted at a collector that is named ``http[s]://host[:port][/path]``.

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
    """The share of frames that are told, 0 to 1. Agents take the same ones without asking each
    other, and one with a smaller share a part of them: give all the same for whole traces."""
    topics: Switch = False
    """Tell the filters that frames were routed by, too. Off by default: they may name people or
    places, and a collector is often not ours."""
    spans_per_s_max: Annotated[WholeNumber, Interval(ge=1, le=10_000)] = 100
    """Frames that are told in a second, at most; with more, the share falls until it fits."""
    queue_spans_max: Annotated[WholeNumber, Interval(ge=1, le=65_536)] = 2_048
    """Spans that wait for the collector; further ones are dropped and counted."""
    timeout_ms: Annotated[WholeNumber, Interval(ge=100, le=60_000)] = 10_000
    """What the collector may take for a batch, with all attempts; then the batch is lost."""

    @property
    def reports(self) -> bool:
        """Whether anything is told."""
        return self.endpoint is not None and self.sample > 0


def _has_library() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # nor has it what that is a part of
        return False


def require_exporter(settings: OpenTelemetrySettings, name: str) -> None:
    """Raise ``ConfigError`` where spans go out and the library is missing; ``name`` is the file."""
    if settings.endpoint is not None and not _has_library():
        what = "opentelemetry.endpoint needs the library opentelemetry-exporter-otlp-proto-http"
        raise unusable(f"{name}: {what}: install it (the extra {EXTRA}), or remove the key")
