"""An agent's ``/status`` as verbs read it: a part of ``AgentStatus``, and the routes beside it.

Every field but those of a row has a default: the page of a gateway, or of an agent of another
release, lacks some. ``--json`` prints the answer as it came, and tables show all that their rows
hold.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from federator.errors import LinkError
from federator.protocol.messages.fields import Id
from federator.protocol.telemetry.agent_status import LinkStatus


class Standing(Struct, frozen=True):
    """How the agent stands in the federation."""

    word: str | None = None
    well: bool = True
    reasons: tuple[str, ...] = ()


class OwnBroker(Struct, frozen=True):
    """The agent's broker."""

    url: str = ""
    connected: bool = False
    version: str | None = None


class TreeRow(Struct, frozen=True):
    """Our parents towards a core; or, with children, our place in the mesh of a filter."""

    core: Id | None = None
    filter: str = ""
    filters: int = 0
    in_mesh: bool = False
    local: bool = False
    member: bool = False
    parents: tuple[Id, ...] = ()
    children: tuple[Id, ...] = ()


class Destination(Struct, frozen=True):
    """Where a filter's publications go over the shortest path."""

    filter: str
    to: Id
    next_hop: Id | None = None


class Flow(Struct, frozen=True):
    """What clients here publish on some filters, and for which brokers; rates in bit/s."""

    filters: tuple[str, ...] = ()
    destinations: tuple[Id, ...] = ()
    rate: float = 0
    error: float = 0
    publications: float | None = None  # a second
    planned: bool | None = None


class Flows(Struct, frozen=True):
    """The heaviest flows, and the rate of all others together."""

    heaviest: tuple[Flow, ...] = ()
    rest: float = 0


class Discovery(Struct, frozen=True):
    """Whether the agent asks for more than it knows of."""

    widened: bool = False


class StatusPage(Struct, frozen=True):
    """What verbs read by name."""

    id: Id | None = None
    federation: str | None = None
    names: Any = None  # of brokers by id, for ``Names``, which trusts nothing
    ready: bool = False
    ready_reason: str = ""
    standing: Standing = Standing()
    broker: OwnBroker = OwnBroker()
    links: tuple[LinkStatus, ...] = ()
    discovery: Discovery = Discovery()
    own_core: TreeRow = TreeRow()
    cores: tuple[TreeRow, ...] = ()
    meshes: tuple[TreeRow, ...] = ()
    destinations: tuple[Destination, ...] = ()
    flows: Flows = Flows()


def status_page(status: Mapping[str, Any]) -> StatusPage:
    """The page in an answer. Raises ``LinkError``: it is of no agent that we know."""
    try:
        return msgspec.convert(status, StatusPage)
    except msgspec.ValidationError as error:
        raise LinkError(f"/status: {error}: not of an agent, or of another release") from None
