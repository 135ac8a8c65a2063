"""The sections of transports that bypass brokers.

Source: docs/direct.md; docs/udp-fec.md.
"""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Interval

from federator.config.section import Section, WholeNumber, readable_by, unusable
from federator.protocol.trust.guard import SEAL_BYTES

if TYPE_CHECKING:
    from federator.protocol.datagrams.sender import Limits

Transport = Literal["tcp", "direct", "udp-fec"]

HOST_CHARACTERS_MAX = 255
FOLDER_BYTES_MAX = 70
"""A socket's address has at most 107 bytes: the rest is for its name."""


def split_endpoint(text: str) -> tuple[str, int]:
    """Split ``host:port``, with IPv6 in brackets. Raises ``ValueError``: ``what: how to mend``."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    whole = colon and host and port.isascii() and port.isdigit() and len(port) <= 5
    plain = len(text) <= HOST_CHARACTERS_MAX and text.isprintable() and not set(text) & set(" /@")
    if not whole or not plain or int(port) > 65_535:
        mend = "write one like 0.0.0.0:18840"
        if text.count(":") > 1 and "[" not in text:
            mend = "an IPv6 address stands in brackets: write [::]:18840"
        raise ValueError(f"{text[:60]!r} is not host:port: {mend}")
    return host, int(port)


_Endpoint = Annotated[str, readable_by(split_endpoint)]
_ANY = ("0.0.0.0", "::")


def announced_endpoint(
    listen: str, advertise: str | None, *, host_of_broker: str, port: int
) -> str:
    """The announced address of the listener on ``listen``, which got the port ``port``.

    ``advertise`` is used unchanged, except that its port 0 becomes ``port``.
    """
    host, port_named = split_endpoint(advertise or listen)
    if advertise is None:
        port_named = port
        if host in _ANY:
            host = host_of_broker
    place = f"[{host}]" if ":" in host else host
    return f"{place}:{port_named or port}"


def _check_folder(path: str) -> None:
    """Refuse a folder with too long a path for the sockets in it."""
    if not Path(path).is_absolute() or len(path.encode()) > FOLDER_BYTES_MAX:
        raise ValueError(
            f"{path[:60]!r} is no folder for sockets: "
            f"write an absolute path of at most {FOLDER_BYTES_MAX} bytes, like /run/federator"
        )


class DirectSettings(Section):
    """Links straight from agent to agent, with links.transport = "direct". See docs/direct.md."""

    listen: _Endpoint = "0.0.0.0:18840"
    """Address and TCP port for connections of neighbours' agents; port 0 is any free one."""
    advertise: _Endpoint | None = None
    """host:port for neighbours that cannot reach listen itself; by default the host of listen, or
    of broker.advertise and broker.url when listen is any address."""
    folder: Annotated[str, readable_by(_check_folder)] | None = None
    """A folder for Unix sockets: agents of one host that name the same one use those instead of
    TCP. Only agents may write there."""


class UdpSettings(Section):
    """Links over datagrams, with links.transport = "udp-fec". See docs/udp-fec.md."""

    listen: _Endpoint = "0.0.0.0:18840"
    """Address and port for neighbours' datagrams; port 0 is any free one."""
    advertise: _Endpoint | None = None
    """host:port for neighbours that cannot reach listen itself; by default the host of listen, or
    of broker.advertise and broker.url when listen is any address."""
    datagram_bytes: Annotated[WholeNumber, Interval(ge=576, le=1_472)] = 1_200
    """Longest payload of a datagram. It must pass the path unfragmented."""
    bytes_per_s: Annotated[WholeNumber, Interval(ge=10_000, le=1_000_000_000)] = 1_000_000
    """Rate limit to each neighbour, repair packets included. There is no congestion control: set
    what the link can carry. Frames beyond it are sent through the broker."""
    wait_ms: Annotated[WholeNumber, Interval(ge=1, le=255)] = 8
    """Repair packets follow at most so long after what they protect; at once when frames come more
    seldom than that. The longer, the fewer of them do; less than a quarter of a round trip gains
    most."""
    failing_ppm: Annotated[WholeNumber, Interval(ge=1, le=500_000)] = 500
    """Of a million groups of datagrams, how many may lose more than repair packets mend."""
    late_ppm: Annotated[WholeNumber, Interval(ge=1, le=1_000_000)] = 1_500
    """Of a million groups of datagrams, how many may wait for the repair packets of the next group,
    on each link. 1000000 saves packets where frames come seldom."""

    def limits(self) -> "Limits":
        """The limits of links over datagrams."""
        from federator.protocol.datagrams.sender import Limits  # noqa: PLC0415 - of few agents

        return Limits(
            datagram_bytes=self.datagram_bytes - SEAL_BYTES,
            wait_ms=self.wait_ms,
            bytes_per_s=self.bytes_per_s,
            failing_max=self.failing_ppm / 1_000_000,
            late_max=self.late_ppm / 1_000_000,
        )


def require_codec(name: str) -> None:
    """Raise ``ConfigError`` without the erasure code; ``name`` is the file to mend."""
    if importlib.util.find_spec("raptorq") is None:
        what = 'transport = "udp-fec" needs the library raptorq'
        raise unusable(f'{name}: {what}: install it (the extra fec), or use "tcp"')
