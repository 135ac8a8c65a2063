"""What agents say to each other, decoded. The wire form is in ``codec``.

Every message names its sender: all neighbours of a broker publish on the same few topics there.

Source: docs/protocol.md section 3.
"""

from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec

from federator.protocol.types import (
    BROKER_ID_MAX,
    EPOCH_MAX,
    UNREACHABLE,
    BrokerId,
    ConnId,
    Cost,
    Epoch,
)

PROTOCOL_VERSION = 1
FILTER_BYTES_MAX = 65_535
FILTERS_PER_MESSAGE_MAX = 8_192
NEIGHBOURS_MAX = 1_024
SOLICIT_HOPS_MAX = 255
PATH_MAX = 64
PROOF_BYTES_MAX = 4_096
REVOKED_BYTES_MAX = 65_536
REVOKED_LISTS_MAX = 16
RETAINED_WANTS_MAX = 64
WAVE_FILTERS_MAX = 1_024
RETAINED_ENTRIES_MAX = 512

_Id = Annotated[BrokerId, msgspec.Meta(ge=0, le=BROKER_ID_MAX)]
_Epoch = Annotated[Epoch, msgspec.Meta(ge=0, le=EPOCH_MAX)]
_Conn = Annotated[ConnId, msgspec.Meta(ge=0, le=2**63 - 1)]
_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Cost = Annotated[Cost, msgspec.Meta(ge=0, le=UNREACHABLE)]
_Priority = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
_Digest = Annotated[int, msgspec.Meta(ge=0)]  # MessagePack itself ends at 2**64 - 1
_Filter = Annotated[str, msgspec.Meta(min_length=1, max_length=FILTER_BYTES_MAX)]
_Filters = Annotated[tuple[_Filter, ...], msgspec.Meta(max_length=FILTERS_PER_MESSAGE_MAX)]
_Path = Annotated[tuple[_Id, ...], msgspec.Meta(min_length=1, max_length=PATH_MAX)]
_Bucket = Annotated[int, msgspec.Meta(ge=0, lt=64)]
_Address = Annotated[str, msgspec.Meta(max_length=512)]


class Heard(msgspec.Struct, frozen=True, array_like=True):
    """One neighbour in a hello: which of its hellos was heard last, and how long ago.

    ``sent_at_ms`` comes back to its author, so ``now - sent_at_ms - held_ms`` is a round trip
    measured with one clock. ``ups`` counts how often the sender's end of the link came up, 0 while
    it is down: the other end learns when to tell everything (again).
    """

    id: _Id
    epoch: _Epoch
    conn: _Conn
    sent_at_ms: _Natural
    held_ms: _Natural
    ups: _Natural


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """I am alive, and these are the neighbours I hear.

    ``conn`` names the connection that carries this copy; a neighbour returns it in ``hears``, which
    tells the sender who is at the other end of that connection.
    """

    version: _Natural
    sender: _Id
    epoch: _Epoch
    conn: _Conn
    sent_at_ms: _Natural
    address: _Address
    hears: Annotated[tuple[Heard, ...], msgspec.Meta(max_length=NEIGHBOURS_MAX)]


class Bye(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The sender is leaving, died (as its Will), or lost its own broker."""

    sender: _Id
    epoch: _Epoch
    conn: _Conn


class CoreAnn(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The core lives, ``cost`` away from the sender, and announces a set of filters.

    The set travels as the change made by this announcement, with the digest and the size of the
    result; a receiver that ends with another digest asks for the whole list.

    ``cost`` of ``UNREACHABLE`` takes the sender's route back. ``in_mesh`` says that the sender
    belongs to a mesh of this core: a non-member prefers it as the one parent it relays to.
    ``gave_up``: nobody in the core's meshes wants what is removed; otherwise it moved elsewhere or
    went out of reach.
    ``path``: the brokers from the sender to the core, both included; empty when it is longer than
    ``PATH_MAX``. For people, and to tell whether a way to the core leads back to us.
    ``proof``: the core's signature, passed on as it is; empty in an open federation.
    """

    sender: _Id
    core: _Id
    priority: _Priority
    epoch: _Epoch
    seq: _Natural
    cost: _Cost
    in_mesh: bool
    added: _Filters
    removed: _Filters
    digest: _Digest
    count: _Natural
    gave_up: bool = False
    path: Annotated[tuple[_Id, ...], msgspec.Meta(max_length=PATH_MAX)] = ()
    proof: Annotated[bytes, msgspec.Meta(max_length=PROOF_BYTES_MAX)] = b""


class MeshMembAnn(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The sender is our child in the core's meshes for a set of filters (as in ``CoreAnn``).

    ``gave_up``: nobody behind the sender wants what is removed; otherwise it moved elsewhere or
    went out of reach.
    """

    sender: _Id
    core: _Id
    epoch: _Epoch
    seq: _Natural
    added: _Filters
    removed: _Filters
    digest: _Digest
    count: _Natural
    gave_up: bool = False


class ListKind(IntEnum):
    """Whose filters a list holds."""

    CORE = 0  # announced by the core
    MEMBERSHIP = 1  # wanted by the child


class FilterListRequest(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Send me the whole list: my digest differs from yours."""

    sender: _Id
    kind: ListKind
    core: _Id


class FilterListPage(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Page ``page`` of ``pages`` of a whole list, whose digest is ``digest``."""

    sender: _Id
    kind: ListKind
    core: _Id
    epoch: _Epoch
    digest: _Digest
    page: _Natural
    pages: _Natural
    filters: _Filters


class Solicit(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """From a broker without a parent: core, announce with more than (epoch, seq).

    ``hops_left`` of 0 is not passed on: on a cycle that is slower than the core is dead, nothing
    else would end it.
    """

    sender: _Id
    core: _Id
    epoch: _Epoch
    seq: _Natural
    hops_left: Annotated[int, msgspec.Meta(ge=0, le=SOLICIT_HOPS_MAX)]


class DrainOrder(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """An operator's word for the agent of ``broker``, passed on towards it.

    One that is lost is not repeated here: the operator sees whether it was obeyed.
    """

    sender: _Id
    broker: _Id
    drain: bool
    hops_left: Annotated[int, msgspec.Meta(ge=0, le=SOLICIT_HOPS_MAX)]


class Revoked(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Certificates that hold no more: lists that federation keys signed, passed on to everyone."""

    sender: _Id
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
    after: _Natural
    not_before_us: _Natural


class RepairRequest(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The first broker of ``path`` missed something; the others brought this here, in that order.

    The answer goes back the same way: see ``frames``.
    """

    origin: _Id
    epoch: _Epoch
    path: Annotated[tuple[_Id, ...], msgspec.Meta(min_length=1, max_length=REPAIR_PATH_MAX)]
    chains: Annotated[
        tuple[AskedChain, ...], msgspec.Meta(min_length=1, max_length=CHAINS_PER_REQUEST_MAX)
    ]


class RetainedWant(msgspec.Struct, frozen=True, array_like=True):
    """A filter whose retained values are wanted, and the digest of those known."""

    filter: _Filter
    digest: _Digest


class RetainedRequest(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Who knows other retained values than we? Passed on to everyone, once.

    ``path`` begins with who asks and ends with the sender: answers go back along it. ``rally`` asks
    everyone to compare: two parts of the federation may just have met.
    """

    sender: _Id
    epoch: _Epoch
    number: _Natural
    path: _Path
    rally: bool
    wants: Annotated[tuple[RetainedWant, ...], msgspec.Meta(max_length=RETAINED_WANTS_MAX)]


class RetainedOffer(msgspec.Struct, frozen=True, array_like=True, tag="offer"):
    """What I know below ``filter`` differs; these are the digests of my buckets."""

    filter: _Filter
    buckets: Annotated[tuple[tuple[_Bucket, _Digest], ...], msgspec.Meta(max_length=64)]


class RetainedPull(msgspec.Struct, frozen=True, array_like=True, tag="pull"):
    """Send me the entries of the buckets in ``mask`` whose topics come after ``after``."""

    filter: _Filter
    mask: _Digest
    after: str


class RetainedEntry(msgspec.Struct, frozen=True, array_like=True):
    """The version of one topic."""

    topic: _Filter
    time_us: _Natural
    number: _Natural
    origin: _Id
    digest: _Digest
    deleted: bool


_Entries = Annotated[tuple[RetainedEntry, ...], msgspec.Meta(max_length=RETAINED_ENTRIES_MAX)]


class RetainedPage(msgspec.Struct, frozen=True, array_like=True, tag="page"):
    """Entries, ascending by topic.

    They are all of those behind ``after``, as far as ``upto``; ``last``: no more are behind these.
    Rules of links may have taken some out.
    """

    filter: _Filter
    after: str
    upto: str
    last: bool
    entries: _Entries


class RetainedNews(msgspec.Struct, frozen=True, array_like=True, tag="news"):
    """Of these, below ``filter``, you have older versions."""

    filter: _Filter
    entries: _Entries


class RetainedAsk(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """Send me the values of these topics, all below ``filter``."""

    filter: _Filter
    topics: Annotated[tuple[_Filter, ...], msgspec.Meta(max_length=RETAINED_ENTRIES_MAX)]


class RetainedValues(msgspec.Struct, frozen=True, array_like=True, tag="values"):
    """As many of the values asked for as fit: whole PUBLISH packets."""

    filter: _Filter
    entries: _Entries
    packets: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=RETAINED_ENTRIES_MAX)]


RetainedBody = (
    RetainedOffer | RetainedPull | RetainedPage | RetainedNews | RetainedAsk | RetainedValues
)


class RetainedLetter(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """One agent to another along ``route``, which both are ends of; the sender is at ``at``."""

    sender: _Id
    route: _Path
    at: Annotated[int, msgspec.Meta(ge=0, lt=PATH_MAX)]
    body: RetainedBody


RetainedMessage = RetainedRequest | RetainedLetter


class Wave(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """Does everybody behind you route what ``origin`` wants? An ``Echo`` answers.

    Each filter stands with the broker it leads to: ``origin``, or the core of the filter's mesh.
    With a ``core`` it goes up its mesh instead: are you my parent there for ``filters``, and is
    yours, up to the core? Waves of one origin have the number of its question.
    """

    sender: _Id
    origin: _Id
    epoch: _Epoch
    number: _Natural
    core: _Id | None
    filters: Annotated[
        tuple[tuple[_Filter, _Id], ...], msgspec.Meta(min_length=1, max_length=WAVE_FILTERS_MAX)
    ]


class Echo(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """The answer to the wave of the same origin, epoch, number and core: yes, they do."""

    sender: _Id
    origin: _Id
    epoch: _Epoch
    number: _Natural
    core: _Id | None


SettlingMessage = Wave | Echo

TRACE_HOPS_MAX = 64
TRACE_WHY_MAX = 256


class TraceEcho(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """To the origin of a trace: it came by here. Goes back along ``path``; the sender is at ``at``.

    Attributes:
        epoch: Of the trace's number.
        number: Of the trace.
        path: Its way here, from the origin to who tells.
        times_us: When it was at each of them, by their own clocks.
        first: It had not been here before; otherwise it goes no further.
        delivers: A publication would be delivered here.
        next_hops: Where it goes on to, and the bytes that wait before it.
        why: What stops it, if anything does.
    """

    sender: _Id
    epoch: _Epoch
    number: _Natural
    path: _Path
    times_us: Annotated[tuple[_Natural, ...], msgspec.Meta(min_length=1, max_length=PATH_MAX)]
    at: Annotated[int, msgspec.Meta(ge=0, lt=PATH_MAX)]
    first: bool
    delivers: bool
    next_hops: Annotated[tuple[tuple[_Id, _Natural], ...], msgspec.Meta(max_length=TRACE_HOPS_MAX)]
    why: Annotated[str, msgspec.Meta(max_length=TRACE_WHY_MAX)]


LOSSES_MAX = 256


class LinkLoss(NamedTuple):
    """What a link to us loses: datagrams of a million, and how many in a row, times 100."""

    neighbour: _Id
    plr_ppm: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
    abl_hundredths: Annotated[int, msgspec.Meta(ge=100, le=65_535)]


class DatagramOffer(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """Frames for the sender may come to ``address`` in datagrams; empty: no more."""

    sender: _Id
    epoch: _Epoch
    address: _Address
    losses: Annotated[tuple[LinkLoss, ...], msgspec.Meta(max_length=LOSSES_MAX)]


NodeMessage = (
    Hello | Bye | CoreAnn | MeshMembAnn | FilterListRequest | FilterListPage | Solicit | DrainOrder
)
"""What the control plane hears and says."""

Message = (
    NodeMessage
    | Revoked
    | RepairRequest
    | RetainedMessage
    | SettlingMessage
    | TraceEcho
    | DatagramOffer
)


def sender_of(message: Message) -> BrokerId:
    """Which neighbour says ``message``: of a repair request, the last who brought it on."""
    return message.path[-1] if isinstance(message, RepairRequest) else message.sender
