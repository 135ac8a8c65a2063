"""What an agent reports to its broker's clients and operators, retained on that broker as JSON.

An agent guides its broker's clients: it keeps, retained on its own broker, a page that says which
brokers there are, which broker would step in for which, and which takeovers have happened. A
gateway reads the page of any broker it reaches. The messages of gateways and operators are in
``gateways`` and ``operators``. All of this stays on one broker (topics that begin with `$` do not
travel), so the broker's own authentication and ACL decide which clients may send it.

Source: docs/protocol.md 15.
"""

from typing import Annotated, Literal

import msgspec

from federator.protocol.messages.fields import EpochField, Id, Natural

GUIDE_VERSION = 1
HEALTH_VERSION = 1
BROKERS_MAX = 4_096
SUBSTITUTES_MAX = 16
"""Per broker, best first: more would not help a client that waits."""

TAKEOVERS_MAX = 4_096

State = Literal["up", "draining", "gone"]

_Amount = Annotated[float, msgspec.Meta(ge=0)]


class GuideBroker(msgspec.Struct, frozen=True):
    """One broker of the federation."""

    id: Id
    # Where clients reach it, as ``mqtt://host:port``; empty when it announced none.
    address: Annotated[str, msgspec.Meta(max_length=512)] = ""
    state: State = "up"  # ``gone`` when neither it nor its agent is reachable
    clients: Natural = 0  # clients connected there
    load: _Amount = 0.0  # publications per second that its clients send and receive
    # The brokers that would step in for it now, best first.
    substitutes: Annotated[tuple[Id, ...], msgspec.Meta(max_length=SUBSTITUTES_MAX)] = ()


class Takeover(msgspec.Struct, frozen=True):
    """``substitute`` has stepped in for ``broker``: its clients belong there now.

    It stands until the broker is back and its clients may return (``state`` is ``up`` and the
    takeover is no longer listed), which by itself moves no client.
    """

    broker: Id  # the broker that is dead, or draining
    substitute: Id  # the broker that took over
    epoch: EpochField  # the term of the controller that decided
    number: Natural  # the number of the decision; grows within a term


class Guide(msgspec.Struct, frozen=True):
    """What the agent of ``broker`` knows of the federation, retained on that broker.

    Of two guides the newer has the greater (``epoch``, ``number``). Where both differ for longer,
    the federation is split and each guide is valid for its own side. The same takeover under a
    newer number is no new move.
    """

    version: Natural  # ``GUIDE_VERSION``
    federation: str
    broker: Id  # the broker on which this guide is retained
    controller: Id  # the broker that its agent takes for the controller
    epoch: EpochField  # the controller's term: grows whenever another broker becomes the controller
    number: Natural  # the number of the controller's newest decision; 0 before the first
    # All known brokers, ascending by id.
    brokers: Annotated[tuple[GuideBroker, ...], msgspec.Meta(max_length=BROKERS_MAX)] = ()
    # Takeovers in force, ascending by broker.
    takeovers: Annotated[tuple[Takeover, ...], msgspec.Meta(max_length=TAKEOVERS_MAX)] = ()
    # When this number changes, gateways, collectors and readers at this broker subscribe again, so
    # that its log shows their subscriptions. 0: no roll call so far.
    roll: Natural = 0


class Health(msgspec.Struct, frozen=True):
    """The state of the agent of ``broker``, retained on that broker; its Will says "down".

    A broker that died took its agent's Will along: readers should also check the age.
    """

    version: Natural  # ``HEALTH_VERSION``
    federation: str
    broker: Id  # the broker of this agent
    # ``ready`` when publications flow, ``down`` when the agent is gone.
    state: Literal["ready", "not_ready", "down"]
    reason: str  # why it is not ready
    epoch: EpochField  # the epoch of the agent
    release: str  # the release of the agent's program
    links: dict[str, Literal["up", "down"]]  # whether each link is up, by the neighbour's id
    # When it was published, by the agent's wall clock; 0 in a Will, which cannot know.
    at_us: Natural
    every_s: Natural  # seconds after which it is published again, changed or not
    name: str = ""  # what operators call the broker
    names: dict[str, str] = {}  # the names of those neighbours that have one, by id
    # Its standing in the federation, and what keeps it from a better one; empty while not ready.
    standing: Literal["joined", "alone", "partly", "degraded", ""] = ""
    standing_reasons: tuple[str, ...] = ()
    leaves: Natural = 0  # how many leaves the broker serves, for leaves that look for a hub
