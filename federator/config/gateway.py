"""The settings of one gateway, with their defaults and bounds, and the checks across several.

They are read as an agent's settings are: from one TOML file, overridden by the environment, with
one line per error. A gateway has a name instead of an id, because it is no broker. Only
``ListenerSettings.context`` reads further files: those of TLS.

The docstring below a setting is its text in docs/configuration.md and in the schema for editors.
"""

import ipaddress
import ssl
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Interval, Len, MaxLen, MinLen

from federator.config.brokers import BrokerAddress, check_named_once, check_pair, in_clear
from federator.config.certificates import server_context
from federator.config.section import (
    BrokerNumber,
    Name,
    SecretFile,
    Section,
    WholeNumber,
    wrong,
)
from federator.config.sections import HttpSettings, LogSettings, Span
from federator.config.security import GatewayKeySettings
from federator.protocol.effects import Notice
from federator.protocol.filters import validate_filter

LISTENERS_MAX = 16
BROKERS_MAX = 256
ASSIGNMENTS_MAX = 4_096
UPSTREAMS_MAX = 16
SHARED_ADDRESSES_MAX = 256
UPSTREAM_FILTERS_MAX = 100_000


class ListenerSettings(Section):
    """A listener for clients: plain, or TLS with ``cert_file`` and ``key_file``."""

    host: Annotated[str, MinLen(1)] = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[WholeNumber, Interval(ge=1, le=65_535)] = 1883
    """TCP port."""
    cert_file: Path | None = None
    """PEM certificate; with it the listener speaks TLS."""
    key_file: Annotated[Path | None, SecretFile.KEY] = None
    """PEM key of cert_file, not encrypted; closed to others."""
    client_ca_file: Path | None = None
    """Authorities for the certificates that clients must then present."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pair(self.cert_file, self.key_file)
        if self.client_ca_file is not None and self.cert_file is None:
            what = "client_ca_file on a listener without TLS"
            raise wrong("client_ca_file", what, "add cert_file and key_file, or remove it")

    def context(self, now: datetime) -> ssl.SSLContext | None:
        """Read the certificates: the TLS context, or ``None`` for a plain listener.

        Raises:
            OSError: A file cannot be read.
            ValueError: A file has other content, or a certificate is not valid at ``now``.
        """
        if self.cert_file is None or self.key_file is None:
            return None
        return server_context(
            cert_file=self.cert_file,
            key_file=self.key_file,
            client_ca_file=self.client_ca_file,
            now=now,
        )


class GatewayBrokerSettings(BrokerAddress):
    """A broker that clients may be attached to. Credentials are the gateway's own, for the guide
    and for control; clients use theirs.
    """

    id: BrokerNumber
    """The broker's id in the federation."""


class UpstreamSettings(Section):
    """Topics that belong to one broker, for every client: their publications and subscriptions go
    to it, and the rest to the broker of ``[attachment]``. A topic belongs to the first upstream
    with a filter that matches it.
    """

    broker: BrokerNumber
    """Id of the broker; it must be in [[brokers]]. While it is dead, another broker serves these
    topics."""
    filters: Annotated[tuple[str, ...], Len(1, UPSTREAM_FILTERS_MAX)]
    """Topic filters, such as `["city/3/#"]`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for index, filter in enumerate(self.filters):
            what = f"upstreams.filters[{index}] = {filter[:60]!r}"
            try:
                valid = validate_filter(filter)
            except ValueError as error:
                raise wrong(f"filters.{index}", f"{what}: {error}", "correct it") from None
            if valid.startswith("$"):
                raise wrong(f"filters.{index}", what, "name topics that do not begin with $")


class AttachmentSettings(Section):
    """Which broker a client is attached to."""

    policy: Literal["assigned", "nearest", "least-loaded"] = "assigned"
    """"assigned" follows assign, and spreads all others by their client id, so that every gateway
    chooses alike; "nearest" takes the broker that answers soonest; "least-loaded" the one with the
    fewest clients."""
    assign: Annotated[tuple[str, ...], MaxLen(ASSIGNMENTS_MAX)] = ()
    """PATTERN=ID: client ids like PATTERN (* stands for anything) belong to that broker while it
    serves. The first match applies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for index, text in enumerate(self.assign):
            pattern, equals, broker = text.rpartition("=")
            if not equals or not pattern or not broker.isdecimal():
                what = f"attachment.assign[{index}] = {text[:60]!r}"
                raise wrong(f"assign.{index}", what, "write PATTERN=ID, like pump-*=3")

    @property
    def assignments(self) -> tuple[tuple[str, int], ...]:
        """Patterns and broker ids, in order."""
        split = [text.rpartition("=") for text in self.assign]
        return tuple((pattern, int(broker)) for pattern, _, broker in split)


class ClientSettings(Section):
    """Limits per client, and for all together."""

    clients_max: Annotated[WholeNumber, Interval(ge=1, le=1_000_000)] = 10_000
    """Connections; more are refused."""
    packet_bytes_max: Annotated[WholeNumber, Interval(ge=1_024, le=268_435_460)] = 1_048_576
    """Largest packet from or to a client. A larger one ends the connection."""
    buffer_bytes_max: Annotated[WholeNumber, Interval(ge=4_096, le=2**32)] = 1_048_576
    """The buffer per client and direction, for a client without broker or one that does not read.
    Beyond it the client is disconnected: its messages can no longer be kept."""
    connect_timeout_ms: Span = 5_000
    """Time from the TCP connection, TLS included, to a complete CONNECT."""
    unfinished_max: Annotated[WholeNumber, Interval(ge=1, le=1_000_000)] = 1_024
    """Connections without a complete CONNECT; beyond it the oldest is closed."""
    connecting_per_address_max: Annotated[WholeNumber, Interval(ge=1, le=1_000_000)] = 256
    """Connections of one IPv4 address, or of one IPv6 network of 64 bits, that no broker has
    accepted. Beyond it the oldest of them without a complete CONNECT is closed; if there is none,
    the new one is refused."""
    connecting_bytes_max: Annotated[WholeNumber, Interval(ge=65_536, le=2**40)] = 16_777_216
    """Bytes that all connections may have sent before a broker accepted them; beyond it, the one
    that sent the most is closed. At least one packet of packet_bytes_max is allowed."""
    shared_addresses: Annotated[tuple[str, ...], MaxLen(SHARED_ADDRESSES_MAX)] = (
        "127.0.0.0/8",
        "::1",
    )
    """Addresses and networks of load balancers, and of others that many clients share: exempt from
    connecting_per_address_max."""
    filters_max: Annotated[WholeNumber, Interval(ge=1, le=1_000_000)] = 10_000
    """Subscriptions of one client."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for index, text in enumerate(self.shared_addresses):
            try:
                ipaddress.ip_network(text)
            except ValueError:
                what = f"clients.shared_addresses[{index}] = {text[:60]!r}"
                mend = "write an address or a network, like 10.0.0.7 or 10.0.0.0/24"
                raise wrong(f"shared_addresses.{index}", what, mend) from None


class FailoverSettings(Section):
    """When a broker counts as dead, and how long its clients are held."""

    hold_ms: Span = 30_000
    """How long a client is kept without a broker before it is disconnected."""
    attempt_ms: Span = 2_000
    """Time limit for a broker to accept a client."""
    ping_ms: Span = 1_000
    """Interval of pings to each broker; after three without an answer it counts as dead."""
    settle_ms: Annotated[WholeNumber, Interval(ge=0, le=60_000)] = 500
    """How long a SUBACK may be held back until the whole federation knows the subscription; 0: it
    is not held back."""
    custody_mark_ms: Span = 20
    """Least time between two questions to a broker's agent: which publications of our clients are
    in its custody?"""
    recent_ms: Span = 10_000
    """How long publications and deliveries at QoS 1 and 2 are kept, so that a client that is moved
    to another broker gets what it missed."""
    heal: Literal["seen", "all"] = "seen"
    """Topics on which a moved client gets what it missed: those on which a broker delivered to it
    before, or "all" that it subscribes to. With "all" it may get topics that a broker's ACL denies
    it: use it only where no broker has such rules."""
    recall: Literal["guarded", "always"] = "guarded"
    """Over which brokers gateways ask each other what their clients published around a failure, and
    answer: "guarded": those that let no other client write below $fed/; "always": all, and any
    client with access to $fed/ can read the answers there, too."""
    recent_bytes_max: Annotated[WholeNumber, Interval(ge=65_536, le=2**40)] = 67_108_864
    """Bytes kept of all clients' publications, and as many again of deliveries; the oldest are
    dropped first."""


class GatewayHttpSettings(HttpSettings):
    """The listener of /metrics, /healthz, /readyz, /status and /routes."""

    port: Annotated[WholeNumber, Interval(ge=0, le=65_535)] = 9884
    """0 takes any free port, which is logged."""


_Listeners = Annotated[tuple[ListenerSettings, ...], MaxLen(LISTENERS_MAX)]


class GatewaySettings(Section):
    """Everything one gateway needs to start."""

    federation: Name = "fed"
    """Name shared by all agents."""
    name: Name
    """Name of this gateway, unique in the federation."""
    listeners: _Listeners = (ListenerSettings(),)
    brokers: Annotated[tuple[GatewayBrokerSettings, ...], MaxLen(BROKERS_MAX)]
    """Brokers clients may be attached to."""
    upstreams: Annotated[tuple[UpstreamSettings, ...], MaxLen(UPSTREAMS_MAX)] = ()
    """Topics that belong to certain brokers."""
    attachment: AttachmentSettings = AttachmentSettings()
    clients: ClientSettings = ClientSettings()
    failover: FailoverSettings = FailoverSettings()
    keys: GatewayKeySettings = GatewayKeySettings()
    http: GatewayHttpSettings = GatewayHttpSettings()
    log: LogSettings = LogSettings()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_listeners_and_brokers()
        self._check_broker_ids()

    def _check_listeners_and_brokers(self) -> None:
        """Raise unless there is a listener and a broker, and none appears twice."""
        for key, entries in (("listeners", self.listeners), ("brokers", self.brokers)):
            if not entries:
                raise wrong(key, f"{key} is empty", f"add [[{key}]]")
        check_named_once(self.brokers)
        listening: set[tuple[str, int]] = set()
        for index, listener in enumerate(self.listeners):
            if (listener.host, listener.port) in listening:
                what = f"{listener.host}:{listener.port} appears twice"
                raise wrong(f"listeners.{index}.port", what, "remove one, or correct its port")
            listening.add((listener.host, listener.port))

    def _check_broker_ids(self) -> None:
        """Raise unless assignments and upstreams name configured brokers, an upstream each."""
        ids = {broker.id for broker in self.brokers}
        for index, (_, broker) in enumerate(self.attachment.assignments):
            if broker not in ids:
                what = f"broker {broker} is not in [[brokers]]"
                raise wrong(f"attachment.assign.{index}", what, "add it, or correct the id")
        with_upstream: set[int] = set()
        for index, upstream in enumerate(self.upstreams):
            if upstream.broker not in ids:
                what = f"broker {upstream.broker} is not in [[brokers]]"
                raise wrong(f"upstreams.{index}.broker", what, "add it, or correct the id")
            if upstream.broker in with_upstream:
                what = f"broker {upstream.broker} has two upstreams"
                raise wrong(f"upstreams.{index}.broker", what, "put their filters into one")
            with_upstream.add(upstream.broker)

    def notices(self) -> tuple[Notice, ...]:
        """Warnings at start: credentials that are sent in clear."""
        return in_clear((f"brokers.{index}", broker) for index, broker in enumerate(self.brokers))
