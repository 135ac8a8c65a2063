"""The sections of the configuration by which a daemon is watched: metrics, HTTP page and log."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from federator.config.brokers import is_loopback
from federator.config.section import Section, Switch, WholeNumber, wrong

NAMES_MAX: Final = 64

HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,253}$")]


class MetricsSettings(Section):
    """The metrics stream: what the agent tells of itself for reports ([metrics.md](metrics.md))."""

    enabled: Switch = False
    """Record it. Off by default: a gateway's flash and its broker's clients get nothing to carry
    until somebody wants reports. `/metrics` is there either way."""
    flush_ms: WholeNumber = Field(default=1_000, ge=100, le=60_000)
    """Between two batches of records."""
    spool_bytes_max: WholeNumber = Field(default=268_435_456, ge=1_048_576, le=2**40)
    """Bytes kept in `state_dir/metrics`; the oldest goes first, and is counted."""
    segment_bytes_max: WholeNumber = Field(default=8_388_608, ge=65_536, le=67_108_864)
    """A file is finished when it is so large; at most half of `spool_bytes_max`."""
    segment_age_ms: WholeNumber = Field(default=10_000, ge=100, le=3_600_000)
    """A file is finished when it is so old."""
    live: Switch = True
    """Publish each batch under `$fed/<federation>/metrics/` on our broker, too."""
    sample: WholeNumber = Field(default=100, ge=0, le=1_000_000)
    """One frame in so many is told hop by hop; 0: none. All agents of a federation must use the
    same."""

    @model_validator(mode="after")
    def _a_segment_fits(self) -> Self:
        if 2 * self.segment_bytes_max > self.spool_bytes_max:
            pair = ("segment_bytes_max", "more than half of", "spool_bytes_max")
            raise self.clash(*pair, "lower it, or raise spool_bytes_max")
        return self


class HttpSettings(Section):
    """The listener of /metrics, /healthz, /readyz, /status, /routes, /explain, /controller and
    /topology.
    """

    enabled: Switch = True
    """Whether to listen."""
    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on."""
    port: WholeNumber = Field(default=9883, ge=0, le=65_535)
    """0 takes any free port and writes it to <state_dir>/http.port."""
    allow_remote: Switch = False
    """Listen on an address other machines reach. Nobody is asked who they are."""
    names: tuple[HostName, ...] = Field(default=(), max_length=NAMES_MAX)
    """Names with a dot under which pages may be asked for, beside our host's: a browser asks under
    any name that leads to us.
    """

    @model_validator(mode="after")
    def _stays_on_loopback(self) -> Self:
        if not self.allow_remote and not is_loopback(self.host):
            what = f"http.host = {self.host[:60]!r} is not loopback"
            raise wrong("host", what, "use 127.0.0.1, or set http.allow_remote = true")
        return self


class LogSettings(Section):
    """Our own log, on standard error."""

    format: Literal["console", "json"] = "console"
    """Form of a line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is written."""
