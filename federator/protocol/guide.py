"""What agents, gateways and operators say to each other on one broker, as JSON.

An agent is the guide of its broker's clients: it keeps, retained on its own broker, a page that
says which brokers there are, who steps in for whom, and who has stepped in already. A gateway
reads the page of any broker it reaches, and tells the agent of each broker which clients it has
there. All of this stays on one broker (topics that begin with `$` do not travel), so the broker's
own authentication and ACL say who may speak.

Readers ignore fields they do not know, so that agents and gateways may be of different releases.

Source: design section 6; docs/protocol.md section 15.
"""

from typing import Annotated, Final, Literal, TypeVar, get_args

import msgspec

from federator.errors import DecodeError
from federator.protocol.types import BROKER_ID_MAX, EPOCH_MAX, BrokerId, Epoch

GUIDE_VERSION = 1
HEALTH_VERSION = 1
GUIDE_BYTES_MAX = 1_048_576
BROKERS_MAX = 4_096
SUBSTITUTES_MAX = 16
"""Per broker, best first: more could not help a client that waits."""

TAKEOVERS_MAX = 4_096
SESSIONS_PER_PAGE_MAX = 512
SESSION_PAGES_MAX = 512
TOPICS_PER_SESSION_MAX = 1_024
SETTLE_FILTERS_MAX = 1_024
RECALL_FILTERS_MAX = 1_024
SESSIONS_INTERVAL_S = 10
"""Between a gateway's whole reports to one broker; missing three, its sessions are forgotten."""

State = Literal["up", "draining", "gone"]

_Id = Annotated[BrokerId, msgspec.Meta(ge=0, le=BROKER_ID_MAX)]
_Epoch = Annotated[Epoch, msgspec.Meta(ge=0, le=EPOCH_MAX)]
_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Amount = Annotated[float, msgspec.Meta(ge=0)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=65_535)]
_Gateway = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern="^[A-Za-z0-9_.-]+$")]
_Topics = Annotated[tuple[_Name, ...], msgspec.Meta(max_length=TOPICS_PER_SESSION_MAX)]


class GuideBroker(msgspec.Struct, frozen=True):
    """One broker of the federation.

    Attributes:
        id: The broker's.
        address: Where clients reach it, as ``mqtt://host:port``; empty when it did not say.
        state: ``gone`` when neither it nor its agent is heard of.
        clients: Connected there.
        load: Publications per second that its clients make and get.
        substitutes: Who would step in for it now, best first.
    """

    id: _Id
    address: Annotated[str, msgspec.Meta(max_length=512)] = ""
    state: State = "up"
    clients: _Natural = 0
    load: _Amount = 0.0
    substitutes: Annotated[tuple[_Id, ...], msgspec.Meta(max_length=SUBSTITUTES_MAX)] = ()


class Takeover(msgspec.Struct, frozen=True):
    """``substitute`` has stepped in for ``broker``: its clients belong there now.

    It stands until the broker is back and its clients may return (``state`` is ``up`` and the
    takeover is no longer listed), which moves nobody by itself.

    Attributes:
        broker: Who is dead, or draining.
        substitute: Who took over.
        epoch: The term of the controller that decided.
        number: Of the decision; grows within a term.
    """

    broker: _Id
    substitute: _Id
    epoch: _Epoch
    number: _Natural


class Guide(msgspec.Struct, frozen=True):
    """What the agent of ``broker`` knows of the federation, retained on that broker.

    Of two guides the newer has the greater (``epoch``, ``number``). Where both differ for longer,
    the federation is split and each holds for its own side. The same takeover under a newer
    number is no new move.

    Attributes:
        version: ``GUIDE_VERSION``.
        federation: Its name.
        broker: On whose broker this stands.
        controller: Whom its agent holds for the controller.
        epoch: The controller's term: grows whenever somebody else becomes the controller.
        number: Of the controller's newest word; 0 before the first.
        brokers: Everyone heard of, ascending by id.
        takeovers: In force, ascending by broker.
    """

    version: _Natural
    federation: str
    broker: _Id
    controller: _Id
    epoch: _Epoch
    number: _Natural
    brokers: Annotated[tuple[GuideBroker, ...], msgspec.Meta(max_length=BROKERS_MAX)] = ()
    takeovers: Annotated[tuple[Takeover, ...], msgspec.Meta(max_length=TAKEOVERS_MAX)] = ()


class Session(msgspec.Struct, frozen=True):
    """One client of a gateway, on the broker that is told.

    Attributes:
        client: Its client id.
        on: It is connected; otherwise only its session lasts.
        clean: Its session ends with its connection.
        publishes: Topics it published on lately.
        subscribes: Its filters, ``$share/`` as given.
    """

    client: _Name
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
        sessions: The page's.
    """

    gateway: _Gateway
    epoch: _Epoch
    seq: _Natural
    page: _Natural
    pages: Annotated[int, msgspec.Meta(ge=1, le=SESSION_PAGES_MAX)]
    sessions: Annotated[tuple[Session, ...], msgspec.Meta(max_length=SESSIONS_PER_PAGE_MAX)] = ()


class Settle(msgspec.Struct, frozen=True):
    """A gateway asks: tell me when everyone in reach knows that ``filters`` are wanted here.

    Attributes:
        gateway: Who asks; the answer goes to ``settled_topic(..., gateway)``.
        token: Returned in the answer.
        filters: As clients subscribed them, without ``$share/...``.
    """

    gateway: _Gateway
    token: _Natural
    filters: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=SETTLE_FILTERS_MAX)]


class Settled(msgspec.Struct, frozen=True):
    """The answer to a ``Settle``; ``known`` is false when the bound passed first."""

    token: _Natural
    known: bool


class Mark(msgspec.Struct, frozen=True):
    """A gateway asks: tell me when all that this broker acknowledged before is in your custody.

    It reaches the agent behind these publications, for it comes by the same connection. The answer,
    ``Taken``, covers everything its broker had handled when it took the mark.
    """

    gateway: _Gateway
    number: _Natural


class Taken(msgspec.Struct, frozen=True):
    """The answer to a ``Mark``."""

    number: _Natural


class Claim(msgspec.Struct, frozen=True):
    """A gateway, to the others: this client is mine now, and its session is on ``broker``.

    Attributes:
        gateway: Who says so.
        number: Grows with every claim of the gateway, restarts included; copies come by several
            brokers.
        client: Its client id.
        broker: To which it is attached.
        came: It connected to the gateway just now; otherwise it was attached elsewhere before.
        lasts: Its session outlives its connection.
    """

    gateway: _Gateway
    number: _Natural
    client: _Name
    broker: _Id
    came: bool
    lasts: bool


class Recall(msgspec.Struct, frozen=True):
    """A gateway, to the others, when a broker died: what did your clients publish just then?

    Attributes:
        gateway: Who asks; answers go to ``recalled_topic(..., gateway)``.
        number: Grows with every question of the gateway; copies come by several brokers.
        filters: What its clients subscribe to.
        oldest_ms: How long ago it was acknowledged, at most,
        newest_ms: and at least.
    """

    gateway: _Gateway
    number: _Natural
    filters: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=RECALL_FILTERS_MAX)]
    oldest_ms: _Natural
    newest_ms: _Natural


class Recalled(msgspec.Struct, frozen=True):
    """The answer to a ``Recall``, or a part of it: publications at QoS 1 and 2.

    Attributes:
        gateway: Who answers.
        number: Of the question.
        packets: PUBLISH packets of MQTT 5, oldest first.
    """

    gateway: _Gateway
    number: _Natural
    packets: tuple[bytes, ...]


class Health(msgspec.Struct, frozen=True):
    """How the agent of ``broker`` is, retained on that broker, which says "down" when it vanishes.

    A broker that died took its agent's Will along: who reads should also see how old this is.

    Attributes:
        version: ``HEALTH_VERSION``.
        federation: Its name.
        broker: Whose agent speaks.
        state: ``ready`` when publications flow, ``down`` when the agent is gone.
        reason: Why it is not ready.
        epoch: Of the agent.
        release: Of our program.
        links: By neighbour's id, whether the link is up.
        at_us: When this was said, the agent's wall clock; 0 in a Will, which cannot know.
        every_s: It is said again so often, changed or not.
    """

    version: _Natural
    federation: str
    broker: _Id
    state: Literal["ready", "not_ready", "down"]
    reason: str
    epoch: _Epoch
    release: str
    links: dict[str, Literal["up", "down"]]
    at_us: _Natural
    every_s: _Natural


class Trace(msgspec.Struct, frozen=True):
    """An operator, to the agent: which way does ``topic`` go from here, and how long does it take?

    Attributes:
        token: Returned with the answers, which go to ``traced_topic(..., token)``.
        topic: As clients of this broker would publish on it.
    """

    token: _Gateway
    topic: _Name


class Traced(msgspec.Struct, frozen=True):
    """One broker's answer to a ``Trace``; the first is the asked agent's own.

    Attributes:
        path: The trace's way there, from the asked broker to the one that tells.
        times_us: When it was at each of them, by their own clocks.
        back_us: When that was known to the asked agent, by its clock.
        first: It had not been there before; otherwise it goes no further.
        delivers: A publication would be delivered there.
        next_hops: Where it goes on to, and the bytes that wait before it.
        why: What the asked agent would do with the topic, or what stops it.
    """

    path: Annotated[tuple[_Id, ...], msgspec.Meta(min_length=1)]
    times_us: tuple[_Natural, ...]
    back_us: _Natural
    first: bool
    delivers: bool
    next_hops: tuple[tuple[_Id, _Natural], ...]
    why: str


class Drain(msgspec.Struct, frozen=True):
    """An operator, to any agent: move the clients of ``broker`` away, or let them come back."""

    broker: _Id
    drain: bool


Word = (
    Guide
    | SessionReport
    | Settle
    | Settled
    | Mark
    | Taken
    | Claim
    | Recall
    | Recalled
    | Health
    | Trace
    | Traced
    | Drain
)
_W = TypeVar(
    "_W",
    Guide,
    SessionReport,
    Settle,
    Settled,
    Mark,
    Taken,
    Claim,
    Recall,
    Recalled,
    Health,
    Trace,
    Traced,
    Drain,
)

_encoder: Final = msgspec.json.Encoder()
_decoders: Final = {kind: msgspec.json.Decoder(kind) for kind in get_args(Word)}


def guide_topic(federation: str) -> str:
    """Where each agent keeps its ``Guide``, retained."""
    return f"$fed/{federation}/guide"


def sessions_topic(federation: str) -> str:
    """Where gateways publish ``SessionReport``."""
    return f"$fed/{federation}/sessions"


def settle_topic(federation: str) -> str:
    """Where gateways publish ``Settle``."""
    return f"$fed/{federation}/settle"


def settled_topic(federation: str, gateway: str) -> str:
    """Where the agent answers ``gateway`` with ``Settled``."""
    return f"$fed/{federation}/settled/{gateway}"


def mark_topic(federation: str) -> str:
    """Where gateways publish ``Mark``, at QoS 1: behind what has QoS 1 and 2."""
    return f"$fed/{federation}/mark"


def taken_topic(federation: str, gateway: str) -> str:
    """Where the agent answers ``gateway`` with ``Taken``."""
    return f"$fed/{federation}/taken/{gateway}"


def claims_topic(federation: str) -> str:
    """Where gateways publish ``Claim``."""
    return f"$fed/{federation}/claims"


def recall_topic(federation: str) -> str:
    """Where gateways publish ``Recall``."""
    return f"$fed/{federation}/recall"


def recalled_topic(federation: str, gateway: str) -> str:
    """Where others answer ``gateway`` with ``Recalled``."""
    return f"$fed/{federation}/recalled/{gateway}"


def health_topic(federation: str) -> str:
    """Where each agent keeps its ``Health``, retained."""
    return f"$fed/{federation}/health"


def trace_topic(federation: str) -> str:
    """Where ``federator trace`` publishes ``Trace``."""
    return f"$fed/{federation}/trace"


def traced_topic(federation: str, token: str) -> str:
    """Where the agent answers with ``Traced``."""
    return f"$fed/{federation}/traced/{token}"


def connection_state_topic(broker: BrokerId) -> str:
    """Where the agent of ``broker`` says, retained on neighbours' brokers, that the link is up (1)
    or not (0): the one topic below ``$SYS`` on which Mosquitto lets clients speak, as bridges do.
    """
    return f"$SYS/broker/connection/federator-{broker}/state"


def drain_topic(federation: str) -> str:
    """Where ``federator drain`` publishes ``Drain``."""
    return f"$fed/{federation}/drain"


def encode(word: Word) -> bytes:
    """The JSON form of ``word``."""
    return _encoder.encode(word)


def decode(kind: type[_W], payload: bytes) -> _W:
    """The word of this ``kind`` in ``payload``.

    Raises:
        DecodeError: When the payload is too long, malformed, out of range or not of ``kind``.
    """
    if len(payload) > GUIDE_BYTES_MAX:
        limit = f"at most {GUIDE_BYTES_MAX} wanted"
        raise DecodeError(f"{kind.__name__}: {len(payload)} bytes, {limit}")
    try:
        word: object = _decoders[kind].decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"{kind.__name__}: {error}") from error
    _check_version(word)
    assert isinstance(word, kind)
    return word


def _check_version(word: object) -> None:
    if isinstance(word, Guide) and word.version != GUIDE_VERSION:
        raise DecodeError(f"Guide: version {word.version}, {GUIDE_VERSION} wanted")
