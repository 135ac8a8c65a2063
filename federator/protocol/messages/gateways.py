"""What gateways report and ask, and what agents and other gateways answer, as JSON.

A gateway tells the agent of each broker which clients it has there, asks it what the federation
knows and what is in its custody, and tells other gateways which clients it has taken over.

Source: docs/protocol.md 15; docs/gateway.md.
"""

from typing import Annotated

import msgspec

from federator.protocol.messages.fields import EpochField, Id, Name, Natural, Token

SESSIONS_PER_PAGE_MAX = 512
SESSION_PAGES_MAX = 512
TOPICS_PER_SESSION_MAX = 1_024
SETTLE_FILTERS_MAX = 1_024
RECALL_FILTERS_MAX = 1_024
SESSIONS_INTERVAL_S = 10
"""Between a gateway's whole reports to one broker; missing three, its sessions are forgotten."""

_Topics = Annotated[tuple[Name, ...], msgspec.Meta(max_length=TOPICS_PER_SESSION_MAX)]


class ReportedSession(msgspec.Struct, frozen=True):
    """One client of a gateway, on the broker that is told.

    Attributes:
        client: Its client id.
        on: Whether it is connected; otherwise only its session lasts.
        clean: Whether its session ends with its connection.
        publishes: Topics it published on lately.
        subscribes: Its filters, ``$share/`` as given.
    """

    client: Name
    on: bool
    clean: bool
    publishes: _Topics = ()
    subscribes: _Topics = ()


class SessionReport(msgspec.Struct, frozen=True):
    """All clients that ``gateway`` has on this broker, cut into pages.

    Pages of one report share ``seq``; it takes effect when all have come, and replaces the last.

    Attributes:
        gateway: The gateway's name; unique in the federation.
        epoch: Grows at every start of the gateway.
        seq: Grows with every report within the epoch.
        page: 0 to ``pages - 1``.
        pages: At least 1: an empty report is one empty page.
        sessions: The sessions on this page.
    """

    gateway: Token
    epoch: EpochField
    seq: Natural
    page: Natural
    pages: Annotated[int, msgspec.Meta(ge=1, le=SESSION_PAGES_MAX)]
    sessions: Annotated[
        tuple[ReportedSession, ...], msgspec.Meta(max_length=SESSIONS_PER_PAGE_MAX)
    ] = ()


class Settle(msgspec.Struct, frozen=True):
    """A gateway's question: tell me when everyone in reach knows that ``filters`` are wanted here.

    Attributes:
        gateway: The gateway that asks; the answer goes to ``settled_topic(..., gateway)``.
        token: Returned in the answer.
        filters: As clients subscribed them, without ``$share/...``.
    """

    gateway: Token
    token: Natural
    filters: Annotated[tuple[Name, ...], msgspec.Meta(max_length=SETTLE_FILTERS_MAX)]


class Settled(msgspec.Struct, frozen=True):
    """The answer to a ``Settle``; ``known`` is false when the bound passed first."""

    token: Natural
    known: bool


class Mark(msgspec.Struct, frozen=True):
    """A gateway's question: tell me when all that this broker acknowledged is in your custody.

    It reaches the agent behind these publications, for it comes by the same connection. The answer,
    ``Taken``, covers everything its broker had handled when it took the mark.
    """

    gateway: Token
    number: Natural


class Taken(msgspec.Struct, frozen=True):
    """The answer to a ``Mark``."""

    number: Natural


class Claim(msgspec.Struct, frozen=True):
    """A gateway's word to the others: this client is mine now, and its session is on ``broker``.

    Attributes:
        gateway: The gateway that says so.
        number: Grows with every claim of the gateway, restarts included; copies come by several
            brokers.
        client: Its client id.
        broker: The broker to which it is attached.
        came: Whether it connected to the gateway just now; otherwise it was attached elsewhere.
        lasts: Whether its session outlives its connection.
    """

    gateway: Token
    number: Natural
    client: Name
    broker: Id
    came: bool
    lasts: bool


class Recall(msgspec.Struct, frozen=True):
    """A gateway's question to the others when a broker died: what did your clients publish then?

    Attributes:
        gateway: The gateway that asks; answers go to ``recalled_topic(..., gateway)``.
        number: Grows with every question of the gateway; copies come by several brokers.
        filters: What its clients subscribe to.
        oldest_ms: How long ago it was acknowledged, at most,
        newest_ms: and at least.
    """

    gateway: Token
    number: Natural
    filters: Annotated[tuple[Name, ...], msgspec.Meta(max_length=RECALL_FILTERS_MAX)]
    oldest_ms: Natural
    newest_ms: Natural


class Recalled(msgspec.Struct, frozen=True):
    """The answer to a ``Recall``, or a part of it: publications at QoS 1 and 2.

    Attributes:
        gateway: The gateway that answers.
        number: The number of the question.
        packets: PUBLISH packets of MQTT 5, oldest first.
    """

    gateway: Token
    number: Natural
    packets: tuple[bytes, ...]
