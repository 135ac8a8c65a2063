"""The status of an agent: one record, from which all its pages and its metrics derive.

``/status`` shows it with the routes beside; ``runtime.observability.metrics`` says which numbers of
it Prometheus gets. Consoles ask for a part of it, ``LivePage``, every two seconds.

Source: docs/observability.md; docs/protocol.md 15.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from federator.protocol.messages.fields import Id

Text = Annotated[str, Meta(max_length=1_024)]
Amount = Annotated[float, Meta(ge=0, le=1e15)]
Count = Annotated[int, Meta(ge=0, le=2**53)]

Section = Mapping[str, Any]


class LinkStatus(Struct, frozen=True, kw_only=True):
    """A connection to a neighbour, and what hinders a link over it."""

    neighbour: Id | None
    name: str = ""
    address: Text = ""
    dialled_back: bool = False
    dialled: Text = ""  # by which side
    cost: Amount | None = None
    connected: bool = False
    state: Text  # "up", "down" or "connecting"
    reason: Text | None = None
    refuses: bool = False
    rtt_ms: Amount | None = None
    rate: Amount | None = None  # bit/s, as is the capacity
    capacity: Amount | None = None
    load: Amount | None = None  # the rate as a share of the capacity
    heard_ms_ago: int | UnsetType = UNSET
    datagrams: Section | UnsetType | None = UNSET  # unset: there are none in this process
    direct: Section | UnsetType | None = UNSET

    @property
    def transport(self) -> str:
        """How it transports publications."""
        scheme = self.address.partition("://")[0][:8]
        extra = [
            what
            for what, part in (("datagrams", self.datagrams), ("direct", self.direct))
            if isinstance(part, Mapping) and part.get("used")
        ]
        return " + ".join([scheme, *extra])


class LivePage(Struct, frozen=True, kw_only=True):
    """The state of an agent and its links, for consoles."""

    ready: bool
    ready_reason: Text
    epoch: Count
    name: str = ""
    release: Text = ""
    standing: Text = ""
    standing_reasons: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    run: Text | None = None
    draining: bool = False
    clients: Count | None = None
    core_of: Count = 0
    filters: Count = 0
    published: Count = 0
    delivered: Count = 0
    dropped: Count = 0
    links: Annotated[tuple[LinkStatus, ...], Meta(max_length=4_096)] = ()


class AgentStatus(Struct, frozen=True, kw_only=True):
    """Everything that one agent says of itself at one moment; counters since its start.

    A feature that is off has no section.
    """

    id: Id
    name: str
    epoch: int
    federation: str
    ready: bool
    ready_reason: str
    stands_well: bool  # and is ready
    standing: Section
    about: Section
    broker: Section
    security: Section
    links: list[LinkStatus]
    traffic: list[dict[str, float]]  # of each neighbour, also while it is away
    connections: Section
    routing: Section
    steering: Section
    datagrams: Section | None
    direct: Section | None
    discovery: Section
    rules: Section
    retained: Section | None
    loops: Section
    share: Section
    settling: Section
    tracing: Section
    custody: Section
    counters: Section
    delays: Section
    failover: Section | None
    topology: Section | None
    stream: Section | None
    spans: Section | None
    process: Section
    certificates: Section  # when each file's ends, in seconds since 1970
    damaged_files: Section
    configuration: Section
    hub: Section | None
    ports: Section | None  # sums over those of a hub's leaves
    leaves: list[dict[str, int]]
    hubs: Section | None
    hubs_known: list[dict[str, Any]]
    move: Section | None
