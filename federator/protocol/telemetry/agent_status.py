"""An agent and its links as consoles ask for them, every two seconds: ``LivePage``.

The links are those of ``/status``, which ``runtime.agent.status`` reads.

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
