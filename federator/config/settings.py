"""What one agent can be told, as frozen records: every key, its type, its range, its default.

A section of the TOML file is a class here; ``docs/configuration.md`` is generated from the field
descriptions. Rules between fields are validators that name the key to mend. Nothing here opens a
file: ``reading`` does, and ``secrets`` and ``certificates`` judge the files that settings name.

Units are last in a key's name: ``_ms``, ``_bytes``.
"""

import ssl
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    Strict,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError

from federator.config.address import Address, is_loopback
from federator.config.certificates import client_context
from federator.protocol.effects import Notice
from federator.protocol.filters import validate_filter
from federator.protocol.messages import NEIGHBOURS_MAX
from federator.protocol.parameters import Parameters
from federator.protocol.types import BROKER_ID_MAX, BrokerId, Millis

SPAN_MS_MAX = 86_400_000
CONFIGURED_FILTERS_MAX = 8_192

_Int = Annotated[int, Strict()]
_Bool = Annotated[bool, Strict()]
_Span = Annotated[int, Strict(), Field(ge=1, le=SPAN_MS_MAX)]
_Id = Annotated[int, Strict(), Field(ge=0, le=BROKER_ID_MAX)]


def wrong(at: str, what: str, mend: str) -> PydanticCustomError:
    """An error about the key ``at``, relative to the model that raises it."""
    return PydanticCustomError("rule", "{what}: {mend}", {"at": at, "what": what, "mend": mend})


def _broker_url(text: str) -> str:
    try:
        Address.parse(text)
    except ValueError as error:
        what, _, mend = str(error).partition(": ")
        raise PydanticCustomError("rule", "{what}: {mend}", {"what": what, "mend": mend}) from error
    return text


def _topic_filter(text: str) -> str:
    try:
        valid = validate_filter(text)
    except ValueError as error:
        what = f"{text[:60]!r} is not a topic filter ({error})"
        raise PydanticCustomError(
            "rule", "{what}: {mend}", {"what": what, "mend": "write one like sensors/+/temp or a/#"}
        ) from error
    if valid.startswith("$"):
        what = f"{text[:60]!r} starts with $, which never leaves a broker"
        raise PydanticCustomError("rule", "{what}: {mend}", {"what": what, "mend": "remove it"})
    return valid


Url = Annotated[str, AfterValidator(_broker_url)]
TopicFilter = Annotated[str, AfterValidator(_topic_filter)]


class Section(BaseModel):
    """One table of the configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Credentials(Section):
    """Who we are to a broker. Files are checked when the configuration is loaded."""

    username: str | None = Field(default=None, description="MQTT user name.")
    password: SecretStr | None = Field(
        default=None,
        description="MQTT password. The configuration file must then be closed to others.",
    )
    password_file: Path | None = Field(
        default=None, description="File whose first line is the password; closed to others."
    )
    ca_file: Path | None = Field(
        default=None,
        description="PEM file of authorities that may sign the broker's certificate; the "
        "system's when absent.",
    )
    cert_file: Path | None = Field(default=None, description="PEM certificate we present.")
    key_file: Path | None = Field(
        default=None, description="PEM key of cert_file, not encrypted; closed to others."
    )

    @model_validator(mode="after")
    def _credentials_are_whole(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise wrong("password", "both password and password_file are set", "remove one")
        if self.username is None and (self.password or self.password_file):
            at = "password" if self.password else "password_file"
            raise wrong(at, "a password without a username", "add username")
        if (self.cert_file is None) != (self.key_file is None):
            has, lacks = ("cert_file", "key_file") if self.cert_file else ("key_file", "cert_file")
            raise wrong(has, f"{has} without {lacks}", f"add {lacks}, or remove {has}")
        return self

    def secret(self) -> bytes | None:
        """The password, read from its file when one is named.

        Raises:
            OSError: The file is gone since it was checked.
        """
        if self.password is not None:
            return self.password.get_secret_value().encode()
        if self.password_file is not None:
            return self.password_file.read_bytes().split(b"\n", 1)[0].rstrip(b"\r")
        return None


class Connection(Credentials):
    """A broker's address and who we are there."""

    url: Url = Field(description="mqtt://host[:1883] or mqtts://host[:8883].")

    @property
    def address(self) -> Address:
        """The parsed ``url``."""
        return Address.parse(self.url)

    def tls_context(self, now: datetime) -> ssl.SSLContext | None:
        """A verifying context for ``mqtts://``, ``None`` for ``mqtt://``.

        Raises:
            ValueError: A certificate or key is not usable; the text says how to mend it.
            OSError: A file cannot be read.
        """
        if not self.address.tls:
            return None
        return client_context(
            ca_file=self.ca_file, cert_file=self.cert_file, key_file=self.key_file, now=now
        )

    @model_validator(mode="after")
    def _tls_files_have_a_use(self) -> Self:
        if not self.address.tls:
            for name in ("ca_file", "cert_file"):
                if getattr(self, name) is not None:
                    raise wrong(
                        name, f"{name} with a mqtt:// url", f"use mqtts://, or remove {name}"
                    )
        return self


class BrokerSettings(Connection):
    """The broker this agent stands beside."""

    id: _Id = Field(description="Unique in the federation; a smaller id is preferred as core.")
    advertise: Url | None = Field(
        default=None,
        description="How other agents reach this broker, when url only works from here.",
    )
    priority: _Int = Field(
        default=0,
        ge=-(2**31),
        lt=2**31,
        description="Smaller is preferred as core, before the id is looked at.",
    )

    @property
    def advertised(self) -> str:
        """The URL told to neighbours."""
        return self.advertise or self.url


class NeighbourSettings(Connection):
    """A broker we talk to directly. Naming any one existing broker joins the federation."""

    id: _Id | None = Field(
        default=None, description="Checked against what the neighbour says, when given."
    )
    cost: _Int = Field(default=1, ge=1, le=1_000_000, description="Cost of this link; 1 is a hop.")


class LinkSettings(Credentials):
    """Links to neighbours. Credentials here hold for neighbours that name none of their own,
    and for those that are dialled back.
    """

    hello_interval_ms: _Span = Field(default=1_000, description="Between hellos on each link.")
    hello_timeout_ms: _Span = Field(
        default=3_000, description="Silence after which a link is down; more than the interval."
    )
    reconnect_min_ms: _Span = Field(default=100, description="First wait before reconnecting.")
    reconnect_max_ms: _Span = Field(
        default=5_000, description="Longest wait; waits double and are jittered in between."
    )
    dial_back: _Bool = Field(
        default=True, description="Connect to brokers that connect to ours without being listed."
    )
    send_queue_bytes_max: _Int = Field(
        default=16_777_216,
        ge=65_536,
        le=2**32,
        description="Per connection, what may wait to be sent; beyond it frames are dropped and "
        "counted.",
    )
    allow_plaintext: _Bool = Field(
        default=True,
        description="Allow mqtt:// to hosts other than this one. A warning is logged when "
        "credentials would travel in clear.",
    )

    @model_validator(mode="after")
    def _spans_are_ordered(self) -> Self:
        if self.hello_timeout_ms <= self.hello_interval_ms:
            raise wrong(
                "hello_timeout_ms",
                f"hello_timeout_ms = {self.hello_timeout_ms} is not more than "
                f"hello_interval_ms = {self.hello_interval_ms}",
                "use about three intervals",
            )
        if self.reconnect_max_ms < self.reconnect_min_ms:
            raise wrong(
                "reconnect_max_ms",
                f"reconnect_max_ms = {self.reconnect_max_ms} is less than "
                f"reconnect_min_ms = {self.reconnect_min_ms}",
                "raise it",
            )
        return self


class MeshSettings(Section):
    """The mesh protocol. All agents of a federation should use the same."""

    redundancy: _Int = Field(default=2, ge=1, le=16, description="Parents kept per core.")
    core_ann_interval_ms: _Span = Field(
        default=5_000, description="Between a core's refreshing announcements."
    )
    core_ann_gap_ms: _Int = Field(
        default=20,
        ge=0,
        le=SPAN_MS_MAX,
        description="Least time between two announcements of one core.",
    )
    core_lifetime_intervals: _Int = Field(
        default=3, ge=1, le=1_000, description="Intervals after which a silent core is forgotten."
    )
    solicit_timeout_ms: _Span = Field(
        default=500,
        description="How long a broker without a parent waits for the core's answer; more than a "
        "round trip across the federation.",
    )
    improvement_hold_ms: _Int = Field(
        default=30,
        ge=0,
        le=SPAN_MS_MAX,
        description="How long a relay waits for the cheaper copy it had last time.",
    )
    handover_ms: _Int = Field(
        default=1_000,
        ge=0,
        le=SPAN_MS_MAX,
        description="How long the mesh of a deposed core still carries data.",
    )
    list_request_gap_ms: _Span = Field(
        default=250, description="Least time between two requests for the same list."
    )
    filters_max: _Int = Field(
        default=1_000_000, ge=1, le=2**31, description="Filters one agent holds; more are refused."
    )
    cores_max: _Int = Field(
        default=65_536, ge=1, le=2**31, description="Cores one agent holds; more are refused."
    )

    @model_validator(mode="after")
    def _gap_is_within_the_interval(self) -> Self:
        if self.core_ann_gap_ms >= self.core_ann_interval_ms:
            raise wrong(
                "core_ann_gap_ms",
                f"core_ann_gap_ms = {self.core_ann_gap_ms} is not less than "
                f"core_ann_interval_ms = {self.core_ann_interval_ms}",
                "lower it",
            )
        return self


class RoutingSettings(Section):
    """How publications find their way."""

    strategy: Literal["mesh"] = Field(default="mesh", description="One core per filter.")


class DataSettings(Section):
    """The data path."""

    frame_bytes_max: _Int = Field(
        default=262_144,
        ge=1_024,
        le=1_900_000,
        description="Largest frame; a larger publication travels alone. Stays under the 2,000,000 "
        "bytes of max_packet_size that Mosquitto 2.1 allows by default.",
    )
    hop_limit: _Int = Field(
        default=64, ge=1, le=255, description="Hops after which a frame is dropped."
    )
    duplicate_window_bits: _Int = Field(
        default=65_536,
        ge=1_024,
        le=2**24,
        description="Frames remembered per origin and epoch; a multiple of 8.",
        multiple_of=8,
    )
    origins_max: _Int = Field(
        default=4_096, ge=1, le=2**20, description="Origins remembered; the oldest is forgotten."
    )
    topic_cache_max: _Int = Field(
        default=65_536, ge=1, le=2**24, description="Topics whose route is cached."
    )


class DiscoverySettings(Section):
    """How this agent learns what its broker's clients subscribe to."""

    log_topics: _Bool = Field(
        default=True, description="Read the broker's log topics (Mosquitto: log_dest topic)."
    )
    filters: tuple[TopicFilter, ...] = Field(
        default=(),
        max_length=CONFIGURED_FILTERS_MAX,
        description="Filters to ask for whatever clients do.",
    )
    new_regular_topic: _Bool = Field(
        default=True, description="Clients may announce filters on $fed/<federation>/."
    )
    match_all: Literal["local", "federate"] = Field(
        default="local",
        description='What # and +/# of local clients ask for: "local" serves them from this '
        'broker only, "federate" pulls everything.',
    )
    widen: _Bool = Field(
        default=True,
        description="Ask for more than needed while the learned table cannot be trusted.",
    )


class HttpSettings(Section):
    """The listener of /metrics, /healthz, /readyz, /status, /routes and /explain."""

    enabled: _Bool = Field(default=True, description="Whether to listen.")
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: _Int = Field(
        default=9883,
        ge=0,
        le=65_535,
        description="0 takes any free port and writes it to <state_dir>/http.port.",
    )
    allow_remote: _Bool = Field(
        default=False,
        description="Listen on an address other machines reach. Nobody is asked who they are.",
    )

    @model_validator(mode="after")
    def _stays_on_loopback(self) -> Self:
        if not self.allow_remote and not is_loopback(self.host):
            raise wrong(
                "host",
                f"http.host = {self.host[:60]!r} is not loopback",
                "use 127.0.0.1, or set http.allow_remote = true",
            )
        return self


class LogSettings(Section):
    """Our own log, on standard error."""

    format: Literal["console", "json"] = Field(default="console", description="Form of a line.")
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is written."
    )


class Settings(Section):
    """Everything one agent needs to start."""

    federation: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = Field(
        default="fed", description="Name shared by all agents: 1 to 64 of A-Z a-z 0-9 _ . -"
    )
    state_dir: Path = Field(
        default=Path("/var/lib/federator"),
        description="Folder for the epoch, learned subscriptions and http.port; one agent each.",
    )
    broker: BrokerSettings
    neighbours: tuple[NeighbourSettings, ...] = Field(
        default=(), max_length=NEIGHBOURS_MAX, description="Brokers to talk to directly."
    )
    links: LinkSettings = LinkSettings()
    mesh: MeshSettings = MeshSettings()
    routing: RoutingSettings = RoutingSettings()
    data: DataSettings = DataSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _neighbours_are_others(self) -> Self:
        ids: dict[int, int] = {}
        addresses = {self.broker.address: "broker.url"}
        for index, neighbour in enumerate(self.neighbours):
            at = f"neighbours.{index}"
            if neighbour.id is not None:
                if neighbour.id == self.broker.id:
                    raise wrong(
                        f"{at}.id",
                        f"neighbour id {neighbour.id} is this broker's own id",
                        "give every broker its own id",
                    )
                if neighbour.id in ids:
                    raise wrong(
                        f"{at}.id",
                        f"neighbour id {neighbour.id} appears twice",
                        "remove one, or correct its id",
                    )
                ids[neighbour.id] = index
            if neighbour.address in addresses:
                raise wrong(
                    f"{at}.url",
                    f"{neighbour.url} is already {addresses[neighbour.address]}",
                    "name each broker once",
                )
            addresses[neighbour.address] = f"{at}.url"
        return self

    @model_validator(mode="after")
    def _plaintext_is_wanted(self) -> Self:
        if not self.links.allow_plaintext:
            for at, connection in self.connections():
                if connection.address.is_exposed:
                    raise wrong(
                        f"{at}.url",
                        f"{connection.url} is plaintext off this host",
                        "use mqtts://, or set links.allow_plaintext = true",
                    )
        return self

    def connections(self) -> list[tuple[str, Connection]]:
        """Every broker named here with its key: ``broker``, ``neighbours.0``, ..."""
        named: list[tuple[str, Connection]] = [("broker", self.broker)]
        named += [(f"neighbours.{i}", n) for i, n in enumerate(self.neighbours)]
        return named

    def credential_holders(self) -> list[tuple[str, Credentials]]:
        """Every section that may name secrets, with its key."""
        return [*self.connections(), ("links", self.links)]

    def neighbour_connection(self, neighbour: NeighbourSettings) -> NeighbourSettings:
        """``neighbour`` with the credentials of ``[links]`` where it names none of its own."""
        own = neighbour.model_dump(exclude_none=True)
        names: list[str] = []
        if neighbour.username is None:
            names += ["username", "password", "password_file"]
        if neighbour.address.tls:
            names += ["ca_file"] if neighbour.ca_file is None else []
            names += ["cert_file", "key_file"] if neighbour.cert_file is None else []
        inherited = {name: getattr(self.links, name) for name in names}
        return NeighbourSettings(**{**inherited, **own})

    def dialled_back(self, url: str) -> NeighbourSettings:
        """How to reach a broker that named itself ``url`` in a hello.

        Raises:
            ValueError: ``url`` is not a broker's URL, or plaintext off this host is not allowed.
        """
        address = Address.parse(url)
        if address.is_exposed and not self.links.allow_plaintext:
            raise ValueError(f"{url} is plaintext: links.allow_plaintext is false")
        return self.neighbour_connection(NeighbourSettings(url=url))

    def parameters(self) -> Parameters:
        """The timers and bounds of the protocol core."""
        mesh, links = self.mesh, self.links
        return Parameters(
            redundancy=mesh.redundancy,
            hello_interval_ms=Millis(links.hello_interval_ms),
            hello_timeout_ms=Millis(links.hello_timeout_ms),
            core_ann_interval_ms=Millis(mesh.core_ann_interval_ms),
            core_ann_gap_ms=Millis(mesh.core_ann_gap_ms),
            core_lifetime_intervals=mesh.core_lifetime_intervals,
            solicit_timeout_ms=Millis(mesh.solicit_timeout_ms),
            improvement_hold_ms=Millis(mesh.improvement_hold_ms),
            handover_ms=Millis(mesh.handover_ms),
            list_request_gap_ms=Millis(mesh.list_request_gap_ms),
            filters_max=mesh.filters_max,
            cores_max=mesh.cores_max,
            dial_back=links.dial_back,
        )

    @property
    def broker_id(self) -> BrokerId:
        """This broker's id, typed."""
        return BrokerId(self.broker.id)

    def notices(self) -> tuple[Notice, ...]:
        """What an operator should hear at start: credentials that travel in clear."""
        exposed = [(at, c) for at, c in self.connections() if c.address.is_exposed]
        return tuple(
            Notice("credentials_in_clear", "warning", {"key": f"{at}.url", "url": connection.url})
            for at, connection in exposed
            if connection.username or (at != "broker" and self.links.username)
        )
