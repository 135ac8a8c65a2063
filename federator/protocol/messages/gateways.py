"""What gateways report and ask, and what agents and other gateways answer, as JSON.

A gateway reports to the agent of each broker which clients it has there, asks the agent what the
federation knows and what is in its custody, and announces to other gateways which clients it has
taken over.

Source: docs/protocol.md 15; docs/gateway.md.
"""

from typing import Annotated

import msgspec

from federator.protocol.messages.fields import EpochField, Id, Name, Natural, Token

SESSIONS_PER_PAGE_MAX = 512
SESSION_PAGES_MAX = 512
TOPICS_PER_SESSION_MAX = 1_024
SETTLE_FILTERS_MAX = 1_024
SETTLED_ALSO_MAX = 1_023
RECALL_FILTERS_MAX = 1_024
FETCH_FILTERS_MAX = 1_024
SESSIONS_INTERVAL_S = 10
"""Seconds between a gateway's whole reports to one broker. After three missing reports the broker's
agent drops the gateway's sessions.
"""

_Topics = Annotated[tuple[Name, ...], msgspec.Meta(max_length=TOPICS_PER_SESSION_MAX)]


class ReportedSession(msgspec.Struct, frozen=True):
    """One client of a gateway, on the broker that gets the report."""

    client: Name  # its client id
    on: bool  # whether it is connected; otherwise only its session lasts
    clean: bool  # whether its session ends with its connection
    publishes: _Topics = ()  # topics it published on lately
    subscribes: _Topics = ()  # its filters, ``$share/`` as given


class SessionReport(msgspec.Struct, frozen=True):
    """All clients that ``gateway`` has on this broker, cut into pages.

    Pages of one report share ``seq``; it takes effect when all have come, and replaces the last.
    """

    gateway: Token  # the gateway's name; unique in the federation
    epoch: EpochField  # grows at every start of the gateway
    seq: Natural  # grows with every report within the epoch
    page: Natural  # 0 to ``pages - 1``
    # At least 1: an empty report is one empty page.
    pages: Annotated[int, msgspec.Meta(ge=1, le=SESSION_PAGES_MAX)]
    sessions: Annotated[
        tuple[ReportedSession, ...], msgspec.Meta(max_length=SESSIONS_PER_PAGE_MAX)
    ] = ()


class Settle(msgspec.Struct, frozen=True):
    """A gateway asks: answer when all brokers in reach know that ``filters`` are wanted here."""

    gateway: Token  # the gateway that asks; the answer goes to ``settled_topic(..., gateway)``
    token: Natural  # returned in the answer
    # As clients subscribed them, without ``$share/...``.
    filters: Annotated[tuple[Name, ...], msgspec.Meta(max_length=SETTLE_FILTERS_MAX)]


class Settled(msgspec.Struct, frozen=True):
    """The answer to a ``Settle``; ``known`` is false when the time limit passed first."""

    token: Natural
    known: bool
    # Other questions with this answer; only in a signed answer, so that many share a signature.
    also: Annotated[tuple[Natural, ...], msgspec.Meta(max_length=SETTLED_ALSO_MAX)] = ()


class Mark(msgspec.Struct, frozen=True):
    """A gateway asks: answer when everything that this broker acknowledged is in your custody.

    The mark reaches the agent after these publications, for it comes by the same connection. The
    answer, ``Taken``, covers everything that the broker had handled when it took the mark.
    """

    gateway: Token
    number: Natural


class Taken(msgspec.Struct, frozen=True):
    """The answer to a ``Mark``."""

    number: Natural


class Claim(msgspec.Struct, frozen=True):
    """A gateway announces: this client is mine now, and its session is on ``broker``."""

    gateway: Token  # the claiming gateway
    # Grows with every claim of the gateway, restarts included; copies come by several brokers.
    number: Natural
    client: Name  # its client id
    broker: Id  # the broker to which it is attached
    came: bool  # whether it connected to the gateway just now; otherwise it was attached elsewhere
    lasts: bool  # whether its session outlives its connection


class Recall(msgspec.Struct, frozen=True):
    """A gateway asks the others when a broker died: what did your clients publish lately?"""

    gateway: Token  # the gateway that asks; answers go to ``recalled_topic(..., gateway)``
    number: Natural  # grows with every question of the gateway; copies come by several brokers
    # What its clients subscribe to.
    filters: Annotated[tuple[Name, ...], msgspec.Meta(max_length=RECALL_FILTERS_MAX)]
    oldest_ms: Natural  # how long ago it was acknowledged, at most,
    newest_ms: Natural  # and at least


class Recalled(msgspec.Struct, frozen=True):
    """The answer to a ``Recall``, or a part of it: publications at QoS 1 and 2."""

    gateway: Token  # the gateway that answers
    number: Natural  # the number of the question
    packets: tuple[bytes, ...]  # PUBLISH packets of MQTT 5, oldest first


class Fetch(msgspec.Struct, frozen=True):
    """A gateway asks the agent of its clients' new broker: what did they miss?

    It asks when the clients' subscriptions stand there. Later publications reach them anyway.
    """

    gateway: Token  # the gateway that asks; answers go to ``fetched_topic(..., gateway)``
    number: Natural  # grows with every question of the gateway
    # What the clients subscribe to at QoS 1 or 2, without ``$share/...``.
    filters: Annotated[tuple[Name, ...], msgspec.Meta(max_length=FETCH_FILTERS_MAX)]
    oldest_ms: Natural  # how long ago it was published, at most


class Fetched(msgspec.Struct, frozen=True):
    """A part of the answer to a ``Fetch``: publications at QoS 1 and 2, of any client."""

    number: Natural  # the number of the question
    packets: tuple[bytes, ...]  # PUBLISH packets of MQTT 5
