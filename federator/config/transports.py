"""What carries frames past the brokers, as the configuration names it.

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
"""A socket's address has room for 107 bytes: the rest is for its name."""


def split_endpoint(text: str) -> tuple[str, int]:
    """``host:port`` in two, IPv6 in brackets. Raises ``ValueError``, which says what is wanted."""
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


def told_endpoint(listen: str, advertise: str | None, *, host_of_broker: str, port: int) -> str:
    """Where neighbours find what listens on ``listen``, at ``port`` as it turned out.

    Of ``advertise`` as it stands; port 0 there is ``port``.
    """
    host, told = split_endpoint(advertise or listen)
    if advertise is None:
        told = port
        if host in _ANY:
            host = host_of_broker
    place = f"[{host}]" if ":" in host else host
    return f"{place}:{told or port}"


def _check_folder(path: str) -> None:
    """Refuse what leaves no room for the names of sockets in it."""
    if not Path(path).is_absolute() or len(path.encode()) > FOLDER_BYTES_MAX:
        raise ValueError(
            f"{path[:60]!r} is no folder for sockets: "
            f"write an absolute path of at most {FOLDER_BYTES_MAX} bytes, like /run/federator"
        )


class DirectSettings(Section):
    """Links straight from agent to agent, with links.transport = "direct". See docs/direct.md."""

    listen: _Endpoint = "0.0.0.0:18840"
    """Address and TCP port on which neighbours' agents are let in; port 0 is any free one."""
    advertise: _Endpoint | None = None
    """host:port where neighbours find us, when they cannot reach listen as it stands; else the host
    of listen, or of broker.advertise and broker.url when listen is any address."""
    folder: Annotated[str, readable_by(_check_folder)] | None = None
    """A folder for Unix sockets: agents of one host that name the same one use those instead of
    TCP. Only agents may write there."""


class UdpSettings(Section):
    """Links over datagrams, with links.transport = "udp-fec". See docs/udp-fec.md."""

    listen: _Endpoint = "0.0.0.0:18840"
    """Address and port on which datagrams of neighbours are taken; port 0 is any free one."""
    advertise: _Endpoint | None = None
    """host:port that neighbours send to, when they cannot reach listen as it stands; else the host
    of listen, or of broker.advertise and broker.url when listen is any address."""
    datagram_bytes: Annotated[WholeNumber, Interval(ge=576, le=1_472)] = 1_200
    """Longest payload of a datagram. One that does not get through whole is never used."""
    bytes_per_s: Annotated[WholeNumber, Interval(ge=10_000, le=1_000_000_000)] = 1_000_000
    """Pace to each neighbour, repair packets included. Nothing slows down by itself when a link is
    too narrow: set what it can carry. Frames beyond it go by the broker."""
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
        """How links over datagrams may be used."""
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
