"""What an agent says to its broker's clients and operators, retained on that broker as JSON.

An agent is the guide of its broker's clients: it keeps, retained on its own broker, a page that
says which brokers there are, who steps in for whom, and who has stepped in already. A gateway
reads the page of any broker it reaches. What gateways and operators say is in ``gateways`` and
``operators``. All of this stays on one broker (topics that begin with `$` do not travel), so the
broker's own authentication and ACL say who may speak.

Source: docs/protocol.md 15.
"""

from typing import Annotated, Literal

import msgspec

from federator.protocol.messages.fields import EpochField, Id, Natural

GUIDE_VERSION = 1
HEALTH_VERSION = 1
BROKERS_MAX = 4_096
SUBSTITUTES_MAX = 16
"""Per broker, best first: more could not help a client that waits."""

TAKEOVERS_MAX = 4_096

State = Literal["up", "draining", "gone"]

_Amount = Annotated[float, msgspec.Meta(ge=0)]


class GuideBroker(msgspec.Struct, frozen=True):
    """One broker of the federation."""

    id: Id
    # Where clients reach it, as ``mqtt://host:port``; empty when it did not say.
    address: Annotated[str, msgspec.Meta(max_length=512)] = ""
    state: State = "up"  # ``gone`` when neither it nor its agent is heard of
    clients: Natural = 0  # clients connected there
    load: _Amount = 0.0  # publications per second that its clients make and get
    # Who would step in for it now, best first.
    substitutes: Annotated[tuple[Id, ...], msgspec.Meta(max_length=SUBSTITUTES_MAX)] = ()


class Takeover(msgspec.Struct, frozen=True):
    """``substitute`` has stepped in for ``broker``: its clients belong there now.

    It stands until the broker is back and its clients may return (``state`` is ``up`` and the
    takeover is no longer listed), which moves nobody by itself.
    """

    broker: Id  # the broker that is dead, or draining
    substitute: Id  # the broker that took over
    epoch: EpochField  # the term of the controller that decided
    number: Natural  # the number of the decision; grows within a term


class Guide(msgspec.Struct, frozen=True):
    """What the agent of ``broker`` knows of the federation, retained on that broker.

    Of two guides the newer has the greater (``epoch``, ``number``). Where both differ for longer,
    the federation is split and each holds for its own side. The same takeover under a newer
    number is no new move.
    """

    version: Natural  # ``GUIDE_VERSION``
    federation: str
    broker: Id  # the broker on which this stands
    controller: Id  # the broker that its agent holds for the controller
    epoch: EpochField  # the controller's term: grows whenever somebody else becomes the controller
    number: Natural  # the number of the controller's newest decision; 0 before the first
    # All brokers heard of, ascending by id.
    brokers: Annotated[tuple[GuideBroker, ...], msgspec.Meta(max_length=BROKERS_MAX)] = ()
    # Takeovers in force, ascending by broker.
    takeovers: Annotated[tuple[Takeover, ...], msgspec.Meta(max_length=TAKEOVERS_MAX)] = ()
    # Another number than before asks gateways, collectors and readers at this broker to subscribe
    # again, so that its log tells of them. 0: nobody was asked.
    roll: Natural = 0


class Health(msgspec.Struct, frozen=True):
    """How the agent of ``broker`` is, retained on that broker, which says "down" when it vanishes.

    A broker that died took its agent's Will along: readers should also check how old this is.
    """

    version: Natural  # ``HEALTH_VERSION``
    federation: str
    broker: Id  # whose agent speaks
    # ``ready`` when publications flow, ``down`` when the agent is gone.
    state: Literal["ready", "not_ready", "down"]
    reason: str  # why it is not ready
    epoch: EpochField  # the epoch of the agent
    release: str  # the release of the agent's program
    links: dict[str, Literal["up", "down"]]  # whether each link is up, by the neighbour's id
    at_us: Natural  # when this was said, the agent's wall clock; 0 in a Will, which cannot know
    every_s: Natural  # seconds after which it is said again, changed or not
    name: str = ""  # what operators call the broker
    names: dict[str, str] = {}  # of those neighbours that have one, by id
    # How it stands in the federation, and why not better; empty while it is not ready.
    standing: Literal["joined", "alone", "partly", "degraded", ""] = ""
    standing_reasons: tuple[str, ...] = ()
    leaves: Natural = 0  # that the broker serves, to leaves that look for a hub
