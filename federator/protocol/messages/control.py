"""The messages between agents, decoded. The wire form is in ``codec``.

Every message names its sender: all neighbours of a broker publish on the same few topics there.

Source: docs/protocol.md 3.
"""

from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec

from federator.protocol.messages.destinations import KEY_BYTES
from federator.protocol.messages.fields import EpochField, Id, Natural
from federator.protocol.types import UNREACHABLE, BrokerId, ConnId, Cost

PROTOCOL_VERSION = 1
FILTER_BYTES_MAX = 65_535
FILTERS_PER_MESSAGE_MAX = 8_192
FILTER_LIST_BYTES_MAX = 65_536
"""Limit for all filters of a change or a page."""
NEIGHBOURS_MAX = 1_024
SOLICIT_HOPS_MAX = 255
PATH_MAX = 64
PROOF_BYTES_MAX = 4_096
REVOKED_BYTES_MAX = 65_536
REVOKED_LISTS_MAX = 16
RETAINED_WANTS_MAX = 64
WAVE_FILTERS_MAX = 1_024
RETAINED_ENTRIES_MAX = 512

_Conn = Annotated[ConnId, msgspec.Meta(ge=0, le=2**63 - 1)]
_Cost = Annotated[Cost, msgspec.Meta(ge=0, le=UNREACHABLE)]
_Priority = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
_Digest = Annotated[int, msgspec.Meta(ge=0)]  # MessagePack itself ends at 2**64 - 1
_Filter = Annotated[str, msgspec.Meta(min_length=1, max_length=FILTER_BYTES_MAX)]
_Filters = Annotated[tuple[_Filter, ...], msgspec.Meta(max_length=FILTERS_PER_MESSAGE_MAX)]
_Path = Annotated[tuple[Id, ...], msgspec.Meta(min_length=1, max_length=PATH_MAX)]
_Bucket = Annotated[int, msgspec.Meta(ge=0, lt=64)]
_Address = Annotated[str, msgspec.Meta(max_length=512)]


class HeardNeighbour(msgspec.Struct, frozen=True, array_like=True):
    """One neighbour in a hello: which of its hellos arrived last, and how long ago.

    ``sent_at_ms`` returns to its author, so ``now - sent_at_ms - held_ms`` is a round trip measured
    with one clock. ``ups`` counts how often the sender's end of the link came up, 0 while it is
    down: it shows the other end when to send its whole state (again). ``namesakes``: the addresses
    of two agents that use this id, if there are two; the first is the accepted one.
    """

    id: Id
    epoch: EpochField
    conn: _Conn
    sent_at_ms: Natural
    held_ms: Natural
    ups: Natural
    namesakes: Annotated[tuple[_Address, ...], msgspec.Meta(max_length=2)] = ()


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Reports that its sender is alive, and from which neighbours it receives hellos.

    ``conn`` names the connection that carries this copy; a neighbour returns it in ``hears``, which
    shows the sender which neighbour is at the other end of that connection.

    ``takes_bundles``: the sender accepts several frames in one PUBLISH; older agents do not say so.
    """

    version: Natural
    sender: Id
    epoch: EpochField
    conn: _Conn
    sent_at_ms: Natural
    address: _Address
    hears: Annotated[tuple[HeardNeighbour, ...], msgspec.Meta(max_length=NEIGHBOURS_MAX)]
    takes_bundles: bool = False


class Bye(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Says that the sender is leaving, died (as its Will), or lost its own broker.

    ``given_up``: its operator wants no link with us, so we need not dial back.
    """

    sender: Id
    epoch: EpochField
    conn: _Conn
    given_up: bool = False


class CoreAnn(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Says that the core lives, ``cost`` away from the sender, and announces a set of filters.

    The set travels as the change made by this announcement, with the digest and the size of the
    result; a receiver that ends with another digest asks for the whole list.

    ``cost`` of ``UNREACHABLE`` retracts the sender's route. ``in_mesh`` says that the sender
    belongs to a mesh of this core: a non-member prefers such a parent as the one to relay to.

    ``gave_up``: no broker in the core's meshes wants the removed filters; otherwise they moved
    elsewhere or went out of reach.

    ``path``: the brokers from the sender to the core, both included; empty when longer than
    ``PATH_MAX``. It is for people, and shows whether a way to the core leads back to us.

    ``proof``: the core's signature, forwarded unchanged; empty in an open federation.
    """

    sender: Id
    core: Id
    priority: _Priority
    epoch: EpochField
    seq: Natural
    cost: _Cost
    in_mesh: bool
    added: _Filters
    removed: _Filters
    digest: _Digest
    count: Natural
    gave_up: bool = False
    path: Annotated[tuple[Id, ...], msgspec.Meta(max_length=PATH_MAX)] = ()
    proof: Annotated[bytes, msgspec.Meta(max_length=PROOF_BYTES_MAX)] = b""


class MeshMembAnn(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Says that the sender is our child in the core's meshes for a set of filters.

    The set travels as in ``CoreAnn``.

    ``gave_up``: no broker behind the sender wants the removed filters; otherwise they moved
    elsewhere or went out of reach.
    """

    sender: Id
    core: Id
    epoch: EpochField
    seq: Natural
    added: _Filters
    removed: _Filters
    digest: _Digest
    count: Natural
    gave_up: bool = False


class ListKind(IntEnum):
    """Which filters a list holds."""

    CORE = 0  # announced by the core
    MEMBERSHIP = 1  # wanted by the child


class FilterListRequest(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Asks for the whole list: our digest differs from the sender's."""

    sender: Id
    kind: ListKind
    core: Id


class FilterListPage(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Page ``page`` of ``pages`` of a whole list, which has the digest ``digest``."""

    sender: Id
    kind: ListKind
    core: Id
    epoch: EpochField
    digest: _Digest
    page: Natural
    pages: Natural
    filters: _Filters


class Solicit(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Asks the core, for a broker without a parent, to announce a number above (epoch, seq).

    A solicit with ``hops_left`` of 0 is not forwarded: nothing else would stop it on a slow cycle
    once the core is dead.

    ``shown``: an announcement of the core with its signature, without filters and path, for a core
    that seems to have restarted with a smaller epoch: it renews its epoch only if it sees its own
    signature.
    """

    sender: Id
    core: Id
    epoch: EpochField
    seq: Natural
    hops_left: Annotated[int, msgspec.Meta(ge=0, le=SOLICIT_HOPS_MAX)]
    shown: CoreAnn | None = None


class DrainOrder(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """An operator's order to the agent of ``broker``, forwarded towards it.

    A lost order is not repeated: the operator sees whether it was obeyed.
    """

    sender: Id
    broker: Id
    drain: bool
    hops_left: Annotated[int, msgspec.Meta(ge=0, le=SOLICIT_HOPS_MAX)]


class Revoked(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Names revoked certificates: lists that federation keys signed, forwarded to all agents."""

    sender: Id
    lists: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=REVOKED_BYTES_MAX)], ...],
        msgspec.Meta(max_length=REVOKED_LISTS_MAX),
    ]


CHAINS_PER_REQUEST_MAX = 256
REPAIR_PATH_MAX = 64

_Key = Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]


class AskedChain(NamedTuple):
    """One chain of a request: everything after ``after`` made at ``not_before_us`` or later.

    ``not_before_us`` is in microseconds of the origin's wall clock, 0 for all.
    """

    key: _Key
    after: Natural
    not_before_us: Natural


class RepairRequest(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Asks for what the first broker of ``path`` misses; the others forwarded it, in that order.

    The answer goes back the same way: see ``frames``. ``asked_us`` is 0, or names a question: then
    only the origin's word is wanted on each chain's greatest number up to ``after``.
    """

    origin: Id
    epoch: EpochField
    path: Annotated[tuple[Id, ...], msgspec.Meta(min_length=1, max_length=REPAIR_PATH_MAX)]
    chains: Annotated[
        tuple[AskedChain, ...], msgspec.Meta(min_length=1, max_length=CHAINS_PER_REQUEST_MAX)
    ]
    asked_us: Natural = 0


class RetainedWant(msgspec.Struct, frozen=True, array_like=True):
    """A filter with wanted retained values, and the digest of those that the asker has."""

    filter: _Filter
    digest: _Digest


class RetainedRequest(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Asks for retained values that differ from ours. Every agent forwards it once.

    ``path`` begins with the asker and ends with the sender: answers go back along it. ``rally``
    asks every agent to compare: two parts of the federation may just have met.
    """

    sender: Id
    epoch: EpochField
    number: Natural
    path: _Path
    rally: bool
    wants: Annotated[tuple[RetainedWant, ...], msgspec.Meta(max_length=RETAINED_WANTS_MAX)]


class RetainedOffer(msgspec.Struct, frozen=True, array_like=True, tag="offer"):
    """Says that the sender has other entries below ``filter``: the digests of its buckets."""

    filter: _Filter
    buckets: Annotated[tuple[tuple[_Bucket, _Digest], ...], msgspec.Meta(max_length=64)]


class RetainedPull(msgspec.Struct, frozen=True, array_like=True, tag="pull"):
    """Requests the entries of the buckets in ``mask`` with topics after ``after``."""

    filter: _Filter
    mask: _Digest
    after: str


class RetainedEntry(msgspec.Struct, frozen=True, array_like=True):
    """The newest version that an agent has of one topic."""

    topic: _Filter
    time_us: Natural
    number: Natural
    origin: Id
    digest: _Digest
    deleted: bool


_Entries = Annotated[tuple[RetainedEntry, ...], msgspec.Meta(max_length=RETAINED_ENTRIES_MAX)]


class RetainedPage(msgspec.Struct, frozen=True, array_like=True, tag="page"):
    """Entries, ascending by topic.

    They are all of those behind ``after``, as far as ``upto``; ``last``: there are no more behind
    these. Link policies may have removed some.
    """

    filter: _Filter
    after: str
    upto: str
    last: bool
    entries: _Entries


class RetainedNews(msgspec.Struct, frozen=True, array_like=True, tag="news"):
    """Names entries below ``filter`` of which the receiver has older versions."""

    filter: _Filter
    entries: _Entries


class RetainedAsk(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """Asks for the values of these topics, all below ``filter``.

    ``at``: send the first value from this byte on, if it is longer than a letter; -1: the asker
    accepts no parts.
    """

    filter: _Filter
    topics: Annotated[tuple[_Filter, ...], msgspec.Meta(max_length=RETAINED_ENTRIES_MAX)]
    at: Annotated[int, msgspec.Meta(ge=-1, le=2**32)] = -1


class RetainedValues(msgspec.Struct, frozen=True, array_like=True, tag="values"):
    """Carries as many of the requested values as fit: whole PUBLISH packets; or a part of one,
    which begins at byte ``at`` of ``size`` in all.
    """

    filter: _Filter
    entries: _Entries
    packets: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=RETAINED_ENTRIES_MAX)]
    at: Natural = 0
    size: Natural = 0


RetainedBody = (
    RetainedOffer | RetainedPull | RetainedPage | RetainedNews | RetainedAsk | RetainedValues
)


class RetainedLetter(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Carries ``body`` from one end of ``route`` to the other; the sender is at ``at``."""

    sender: Id
    route: _Path
    at: Annotated[int, msgspec.Meta(ge=0, lt=PATH_MAX)]
    body: RetainedBody


RetainedMessage = RetainedRequest | RetainedLetter


class Wave(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """Asks whether every broker behind the receiver routes what ``origin`` wants.

    An ``Echo`` answers.

    Each filter comes with the broker it leads to: ``origin``, or the core of the filter's mesh.
    With a ``core`` the wave goes up its mesh instead: are you my parent there for ``filters``, and
    is yours, up to the core? Waves of one origin have the number of its question.
    """

    sender: Id
    origin: Id
    epoch: EpochField
    number: Natural
    core: Id | None
    filters: Annotated[
        tuple[tuple[_Filter, Id], ...], msgspec.Meta(min_length=1, max_length=WAVE_FILTERS_MAX)
    ]


class Echo(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """Answers yes to the wave of the same origin, epoch, number and core."""

    sender: Id
    origin: Id
    epoch: EpochField
    number: Natural
    core: Id | None


SettlingMessage = Wave | Echo

TRACE_HOPS_MAX = 64
TRACE_WHY_MAX = 256

TransportName = Annotated[str, msgspec.Meta(max_length=16)]
"""How frames reach a neighbour, as ``links.transport`` says; a later agent may have more values."""


class TraceEcho(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """Reports to the origin of a trace that the trace reached a broker.

    It goes back along ``path``; the sender is at ``at``.
    """

    sender: Id
    epoch: EpochField  # the epoch of the trace's number
    number: Natural  # the number of the trace
    path: _Path  # its way here, from the origin to the reporting broker
    # When the trace was at each of them, by their own clocks.
    times_us: Annotated[tuple[Natural, ...], msgspec.Meta(min_length=1, max_length=PATH_MAX)]
    at: Annotated[int, msgspec.Meta(ge=0, lt=PATH_MAX)]
    first: bool  # whether it had not been here before; otherwise it goes no further
    delivers: bool  # whether a publication would be delivered here
    # The next hops, and the bytes that wait before the trace.
    next_hops: Annotated[tuple[tuple[Id, Natural], ...], msgspec.Meta(max_length=TRACE_HOPS_MAX)]
    # What stops the trace, if anything does.
    why: Annotated[str, msgspec.Meta(max_length=TRACE_WHY_MAX)]
    # How the trace goes to each of ``next_hops``; an older agent does not say.
    transports: Annotated[tuple[TransportName, ...], msgspec.Meta(max_length=TRACE_HOPS_MAX)] = ()


LOSSES_MAX = 256


class LinkLoss(NamedTuple):
    """What a link to the sender loses: datagrams per million, and how many in a row, times 100."""

    neighbour: Id
    plr_ppm: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
    abl_hundredths: Annotated[int, msgspec.Meta(ge=100, le=65_535)]


class DatagramOffer(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """Says that frames for the sender may go to ``address`` in datagrams; empty: no longer."""

    sender: Id
    epoch: EpochField
    address: _Address
    losses: Annotated[tuple[LinkLoss, ...], msgspec.Meta(max_length=LOSSES_MAX)]


TOKEN_BYTES = 16
"""Length of the token that an agent shows when it connects directly to another agent."""


class DirectOffer(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """Says that frames for the sender may go directly to its agent, at ``address``.

    An agent that connects there shows ``token``, which was made for the receiver alone. ``places``:
    whether the sender seals what it sends there for its place (``trust.sealed_connection``); older
    agents do not.
    """

    sender: Id
    epoch: EpochField
    address: _Address
    token: Annotated[bytes, msgspec.Meta(min_length=TOKEN_BYTES, max_length=TOKEN_BYTES)]
    places: bool = False


class TreeTorn(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """Says that a planned tree leads no further from the sender.

    For a while every receiver uses the ordinary routes to what is behind the sender.
    """

    sender: Id
    # The key by which frames name the tree.
    tree: Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]


class OutboxMark(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """Says how much was sent to the receiver's outbox before, since connection ``conn`` was opened.

    It goes the way of data. ``roll``: when this number changes, the receiver is to subscribe again.
    """

    sender: Id
    conn: _Conn
    sent_bytes: Natural
    sent_packets: Natural
    roll: Natural


class OutboxTaken(msgspec.Struct, frozen=True, array_like=True, tag=71):
    """Answers an ``OutboxMark``: everything sent before it was taken."""

    sender: Id
    conn: _Conn
    sent_bytes: Natural
    sent_packets: Natural


NodeMessage = (
    Hello | Bye | CoreAnn | MeshMembAnn | FilterListRequest | FilterListPage | Solicit | DrainOrder
)
"""What the control plane receives and sends."""

Message = (
    NodeMessage
    | Revoked
    | RepairRequest
    | RetainedMessage
    | SettlingMessage
    | TraceEcho
    | DatagramOffer
    | DirectOffer
    | TreeTorn
    | OutboxMark
    | OutboxTaken
)


def sender_of(message: Message) -> BrokerId:
    """The neighbour that sent ``message``: for a repair request, the last one that forwarded it."""
    return message.path[-1] if isinstance(message, RepairRequest) else message.sender
