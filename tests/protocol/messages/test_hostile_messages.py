"""What a broker may be told by anybody: no message makes a node fail or an outsider heard.

docs/protocol.md 2.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.events import DeadlineReached, LocalFiltersChanged, Received
from federator.protocol.filters import digest_of
from federator.protocol.messages.codec import CONTROL_KINDS, decode, encode, kind_of
from federator.protocol.messages.control import (
    FILTER_LIST_BYTES_MAX,
    FILTERS_PER_MESSAGE_MAX,
    NEIGHBOURS_MAX,
    Bye,
    CoreAnn,
    FilterListPage,
    FilterListRequest,
    HeardNeighbour,
    Hello,
    ListKind,
    MeshMembAnn,
    RetainedLetter,
    RetainedOffer,
    RetainedRequest,
    RetainedWant,
    Solicit,
)
from federator.protocol.routing import filter_lists
from federator.protocol.routing.core_route import CoreRoute, HeardCost
from federator.protocol.routing.filter_lists import RemoteList
from federator.protocol.types import BROKER_ID_MAX, EPOCH_MAX, UNREACHABLE
from tests.protocol.hostile import NEIGHBOUR, OTHER, OURS, UNLINKED, mutated, samples
from tests.protocol.network import Network

MUTATED = 200_000


def settled():
    """Three brokers in a line, with filters of each; the middle one is to be annoyed."""
    network = Network([(NEIGHBOUR, OURS), (OURS, OTHER)])
    for broker in (NEIGHBOUR, OURS, OTHER):
        network.subscribe(broker, "plant/+/temp", f"own/{broker}/#")
    network.run(12_000)
    return network


def picture(node):
    """Everything that decides where publications go."""
    return (
        dict(node.links.up),
        {
            c: (r.number, r.cost, r.parents, set(r.askers))
            for c, r in node.announcements.routes.items()
        },
        {f: (s.core, s.local, s.child_cores, s.route) for f, s in node.meshes.states.items()},
        {c: sorted(children) for c, children in node.meshes.children.items()},
        node.links.epoch,
        node.announcements.own.number,
    )


def test_mutated_messages_raise_nothing():
    network = settled()
    node = network.nodes[OURS]
    rng = random.Random(1)
    payloads = [(kind_of(m), encode(m)) for i in (NEIGHBOUR, UNLINKED) for m in samples(i)]
    now_ms = network.now_ms
    understood = 0
    for number in range(MUTATED):
        kind, payload = rng.choice(payloads)
        if rng.randrange(50) == 0:
            kind = rng.choice(CONTROL_KINDS)
        try:
            message = decode(kind, mutated(rng, payload))
        except DecodeError:
            continue
        understood += 1
        node.handle(Received(message), now_ms=now_ms)
        if number % 64 == 0:
            now_ms += 100
            node.handle(DeadlineReached(), now_ms=now_ms)

    assert MUTATED / 100 < understood < MUTATED
    assert len(node.links.neighbours) <= NEIGHBOURS_MAX


def test_strangers_change_nothing():
    network = settled()
    node = network.nodes[OURS]
    seq = node.announcements.routes[OTHER].number[1] + 1
    unknown = CoreAnn(OTHER, OTHER, 0, 1_000 + OTHER, seq, 0, True, (), (), 12_345, 5)
    node.handle(Received(unknown), now_ms=network.now_ms)  # from now on it asks for the list
    before = picture(node)
    rng = random.Random(2)
    payloads = [(kind_of(m), encode(m)) for m in samples(UNLINKED)]
    heeded = 0
    for number in range(20_000):
        kind, payload = rng.choice(payloads)
        try:
            message = decode(kind, mutated(rng, payload) if number > 1_000 else payload)
        except DecodeError:
            continue
        if message.sender in (NEIGHBOUR, OTHER):
            continue  # what a message may do in a neighbour's name is another matter
        heeded += 1
        node.handle(Received(message), now_ms=network.now_ms)

    assert heeded > 1_000
    assert picture(node) == before


def has_room(message):
    """Whether the filters of ``message`` are no more than what is decoded."""
    filters = getattr(message, "filters", ()) + getattr(message, "added", ())
    filters += getattr(message, "removed", ())
    return sum(map(len, filters)) <= FILTER_LIST_BYTES_MAX


def absurd_steps():
    """What a live neighbour may say, our clients want, or the clock bring."""
    ids = st.sampled_from([0, NEIGHBOUR, OURS, OTHER, UNLINKED, BROKER_ID_MAX])
    big = st.sampled_from([0, 1, 1_001, 1_002, 1_003, 2**31, 2**40, 2**62, EPOCH_MAX])
    conns = st.sampled_from([0, 1, 2, 3, EPOCH_MAX])
    digests = st.sampled_from([0, 1, digest_of({"a"}), 2**64 - 1])
    filters = st.lists(
        st.sampled_from(["a", "plant/+/temp", "#", "+/#", "own/2/#", "x" * 60_000, "/", "ä/+"]),
        max_size=6,
    ).map(tuple)
    priorities = st.sampled_from([-(2**31), -1, 0, 2**31 - 1])
    costs = st.sampled_from([0, 1, 2**30, UNREACHABLE - 1, UNREACHABLE])
    senders = st.sampled_from([NEIGHBOUR, OTHER])
    messages = st.one_of(
        st.builds(
            Hello,
            version=st.sampled_from([0, 1, 1, 1, EPOCH_MAX]),
            sender=ids,
            epoch=big,
            conn=conns,
            sent_at_ms=big,
            address=st.sampled_from(["", "b1", "b2", "b3", "x" * 512]),
            hears=st.lists(
                st.builds(HeardNeighbour, ids, big, conns, big, big), max_size=4
            ).map(tuple),
        ),
        st.builds(Bye, senders, big, conns),
        st.builds(
            CoreAnn, senders, ids, priorities, big, big, costs, st.booleans(), filters, filters,
            digests, big,
        ),
        st.builds(MeshMembAnn, senders, ids, big, big, filters, filters, digests, big),
        st.builds(FilterListRequest, senders, st.sampled_from(ListKind), ids),
        st.builds(FilterListPage, senders, st.sampled_from(ListKind), ids, big, digests, big, big,
                  filters),
        st.builds(Solicit, senders, ids, big, big, st.sampled_from([0, 1, 255])),
    )  # fmt: skip
    return st.one_of(
        messages.filter(has_room).map(Received),
        st.just(DeadlineReached()),
        st.builds(LocalFiltersChanged, filters.map(frozenset), filters.map(frozenset)),
    )


@given(
    st.lists(
        st.tuples(absurd_steps(), st.sampled_from([0, 1, 30, 500, 3_000, 20_000])), max_size=60
    )
)
def test_absurd_messages_of_a_live_neighbour_raise_nothing_and_get_valid_answers(script):
    network = settled()
    node = network.nodes[OURS]
    now_ms = network.now_ms
    for step, pause_ms in script:
        now_ms += pause_ms
        for effect in node.handle(step, now_ms=now_ms):
            message = getattr(effect, "message", None)
            if message is not None:  # what we say in turn is within the bounds of the wire
                assert decode(kind_of(message), encode(message)) == message

    assert len(node.links.neighbours) <= NEIGHBOURS_MAX
    assert len(node.announcements.routes) <= 6
    assert node.next_deadline_ms() is not None


def out_of_range():
    return [
        Bye(2**32, 1, 1),
        Bye(-1, 1, 1),
        Bye(1, 2**63, 1),
        Bye(1, 2**64 - 1, 1),
        Solicit(1, 1, 1, -1, 1),
        Solicit(1, 1, 1, 1, 256),
        CoreAnn(1, 1, 2**31, 1, 1, 0, True, (), (), 0, 0),
        CoreAnn(1, 1, -(2**31) - 1, 1, 1, 0, True, (), (), 0, 0),
        CoreAnn(1, 1, 0, 1, 1, UNREACHABLE + 1, True, (), (), 0, 0),
        CoreAnn(1, 1, 0, 1, 1, 0, True, ("a",) * (FILTERS_PER_MESSAGE_MAX + 1), (), 0, 0),
        MeshMembAnn(1, 1, 1, 1, ("$SYS/#",), (), 0, 1),
        MeshMembAnn(1, 1, 1, 1, ("$share/g/a",), (), 0, 1),
        MeshMembAnn(1, 1, 1, 1, ("a/#/b",), (), 0, 1),
        MeshMembAnn(1, 1, 1, 1, ("a\0b",), (), 0, 1),
        RetainedRequest(1, 1, 1, (1,), False, (RetainedWant("$fed/inbox/7", 0),)),
        RetainedLetter(1, (1, 2), 0, RetainedOffer("$fed/members/7/1/0/g/a", ())),
        Hello(1, 1, 1, 1, 1, "x" * 513, ()),
        Hello(1, 1, 1, 1, 1, "", (HeardNeighbour(1, 1, 1, 1, 1, 1),) * (NEIGHBOURS_MAX + 1)),
    ]


@pytest.mark.parametrize("message", out_of_range(), ids=str)
def test_out_of_range_is_not_decoded(message):
    with pytest.raises(DecodeError):
        decode(kind_of(message), encode(message))


def test_bombs_are_not_decoded():
    for bomb in (
        b"\x91" * 500_000,
        b"\x81\x01" * 200_000,
        b"\xdd\xff\xff\xff\xff",
        b"\x00" * 2**21,
    ):
        for kind in CONTROL_KINDS:
            with pytest.raises(DecodeError):
                decode(kind, bomb)


@pytest.mark.parametrize("filters", [("f" * 65_535, "gg"), ("f/" + "x" * 60,) * 2_000])
def test_more_filters_than_a_page_holds_are_not_looked_at(filters):
    for message in (
        FilterListPage(1, ListKind.CORE, 9, 7, 5, 0, 4_000, filters),
        CoreAnn(1, 9, 0, 7, 1, 0, True, filters, (), 5, 1),
        MeshMembAnn(1, 9, 7, 1, (), filters, 5, 1),
    ):
        with pytest.raises(DecodeError, match=f"at most {FILTER_LIST_BYTES_MAX} wanted"):
            decode(kind_of(message), encode(message))


def test_pages_of_a_list_that_is_never_complete_are_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(filter_lists, "LIST_BYTES_MAX", 1_000)
    list_ = RemoteList()
    list_.offer((), (), digest=5)
    assert list_.may_ask(now_ms=0, gap_ms=1)

    for number in range(1_000):
        filters = (f"{number:0100}",)
        list_.on_page(FilterListPage(1, ListKind.CORE, 9, 7, 5, number, 4_000, filters))

        assert sum(map(len, list_._coming.filters)) <= 1_000


def test_a_list_takes_no_more_than_its_bound():
    list_ = RemoteList(filters_max=3)
    list_.offer(("a", "b", "c"), (), digest=digest_of({"a", "b", "c"}))

    assert list_.offer(("d",), (), digest=1) == frozenset()
    assert list_.may_ask(now_ms=0, gap_ms=1)
    page = FilterListPage(1, ListKind.CORE, 1, 1, digest_of("abcd"), 0, 1, tuple("abcd"))
    assert list_.on_page(page) == frozenset()
    assert len(list_.filters) == 3


def test_a_cost_never_exceeds_what_the_wire_can_say():
    route = CoreRoute(OTHER, priority=0)
    route.offers[NEIGHBOUR] = HeardCost((1, 1), UNREACHABLE - 1, in_mesh=False)

    assert route.cost_via(NEIGHBOUR, lambda neighbour: 1_000_000) == UNREACHABLE
