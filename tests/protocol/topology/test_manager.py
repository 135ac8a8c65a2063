"""Whom an agent links with, whom it lets in, and what it does not believe."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.effects import Dial, DialSeed, Notice, Send
from federator.protocol.events import DeadlineReached, LocalBrokerUp, NeighbourConnected, Received
from federator.protocol.filters import DigestedSet
from federator.protocol.messages.codec import decode, encode
from federator.protocol.messages.control import CoreAnn, HeardNeighbour, Hello
from federator.protocol.messages.places import Place, encode_place, parse_place
from federator.protocol.node import Identity, Node
from federator.protocol.parameters import Parameters
from federator.protocol.topology.graph import parts_of
from federator.protocol.topology.parameters import TopologyParameters
from lab.sim.campaign import run
from lab.sim.joining.part import Joining, plan_of
from lab.sim.story import Blow, Kind, Story
from lab.sim.world import World

ONE, TWO = 1, 2


class Suspicious:
    """Believes nobody but 2."""

    def sign(self, address, epoch):
        return b"ours"

    def objection(self, id, place):
        return "" if id == TWO else "forged"


def node(verifier=None, **parameters):
    made = Node(
        Identity(ONE, 1, "mqtt://one"),
        Parameters(dial_back=False),
        topology=TopologyParameters(**parameters),
        verifier=verifier,
    )
    return made, made.handle(LocalBrokerUp(), now_ms=0)


def later(made, *, until_ms, since_ms=0):
    """All effects until then."""
    effects, now_ms = [], since_ms
    while (now_ms := made.next_deadline_ms()) is not None and now_ms <= until_ms:
        effects += made.handle(DeadlineReached(), now_ms=now_ms)
    return effects


def hello(sender, *, conn=1, hears=()):
    return Received(Hello(1, sender, 5, conn, 0, f"mqtt://b{sender}", hears))


def place(id, **changes):
    return encode_place(Place(**{"address": f"mqtt://b{id}", "epoch": 5, **changes}))


def announce(made, id, *, seq=1, now_ms, places=None):
    """``id``, linked with us, says where it is."""
    return made.handle(Received(announcement(id, id, places or [place(id)], seq)), now_ms=now_ms)


def announcement(sender, core, places, seq=1):
    """What ``sender`` passes on of ``core``."""
    held = DigestedSet(places)
    cost = int(sender != core)
    return CoreAnn(sender, core, 0, 5, seq, cost, True, tuple(places), (), held.digest, len(held))


def link(made, id, *, conn, now_ms):
    """A link with ``id`` comes up."""
    heard = HeardNeighbour(ONE, 1, conn, now_ms, 0, 1)
    steps = made.handle(NeighbourConnected(conn, f"mqtt://b{id}", id), now_ms=now_ms)
    return steps + made.handle(hello(id, hears=(heard,)), now_ms=now_ms)


def test_it_joins_by_its_seeds_and_not_by_itself():
    _, effects = node(seeds=("mqtt://one", "mqtt://b2"))

    assert [e for e in effects if isinstance(e, DialSeed)] == [DialSeed("mqtt://b2")]


def test_it_looks_for_whom_it_knew_before():
    made, _ = node(addresses_before=((TWO, "mqtt://b2"),))

    assert Dial(TWO, "mqtt://b2") in later(made, until_ms=5_000)


def test_a_newcomer_is_dialled_back_and_a_crowd_is_not():
    made, _ = node(neighbours=4, guests_max=2)

    effects = [e for id in range(2, 20) for e in made.handle(hello(id), now_ms=id)]

    assert [e.id for e in effects if isinstance(e, Dial)] == [2, 3, 4, 5, 6, 7]


def test_in_static_mode_it_arranges_nothing():
    made = Node(Identity(ONE, 1, "mqtt://one"), Parameters())
    made.handle(LocalBrokerUp(), now_ms=0)
    link(made, TWO, conn=1, now_ms=10)

    announce(made, TWO, now_ms=20, places=[place(TWO), place(3)])

    assert not any(isinstance(e, Dial | DialSeed) for e in later(made, until_ms=60_000))
    assert made.topology.directory.present() == []


@pytest.mark.parametrize("hidden", [False, True])
def test_whom_nobody_can_dial_announces_no_place_and_dials_as_others_do(hidden):
    made, _ = node(hidden=hidden, neighbours=4)
    link(made, TWO, conn=1, now_ms=10)
    announce(made, TWO, now_ms=20, places=[place(TWO)])
    made.handle(Received(announcement(TWO, 3, [place(3)])), now_ms=30)

    effects = later(made, until_ms=60_000)

    assert Dial(3, "mqtt://b3") in effects
    announced = {f for e in effects if isinstance(e, Send) for f in getattr(e.message, "added", ())}
    assert any(parse_place(filter) is not None for filter in announced) == (not hidden)


def test_nobody_connects_to_an_address_that_is_not_vouched_for():
    made, _ = node(Suspicious())
    link(made, TWO, conn=1, now_ms=10)
    announce(made, TWO, now_ms=20)
    forged = announcement(TWO, 3, [place(3, address="mqtt://evil")])

    effects = made.handle(Received(forged), now_ms=30) + later(made, until_ms=60_000)

    assert not any(isinstance(e, Dial) and e.id == 3 for e in effects)
    refused = [e for e in effects if isinstance(e, Notice) and e.name == "topology.place_refused"]
    assert [e.details for e in refused] == [{"broker": 3, "reason": "forged"}]


def test_an_older_address_does_not_replace_a_newer_one():
    made, _ = node()
    directory = made.topology.directory

    directory.come(3, Place("mqtt://new", 6), now_ms=0)
    directory.come(3, Place("mqtt://old", 5), now_ms=1)

    assert directory.address_of(3) == "mqtt://new"


def test_it_says_where_it_is_with_proof():
    made, _ = node(Suspicious())

    effects = link(made, TWO, conn=1, now_ms=10)

    said = [
        parse_place(text)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, CoreAnn)
        for text in e.message.added
    ]
    assert [(p.address, p.proof) for p in said if p] == [("mqtt://one", b"ours")]


def test_places_held_are_bounded():
    made, _ = node(members_max=3)
    directory = made.topology.directory

    for id in range(2, 100):
        directory.come(id, Place(f"mqtt://b{id}", 5), now_ms=0)

    assert [id for id, _ in directory.present()] == [2, 3, 4]


@given(st.text(max_size=200) | st.binary(max_size=100).map(repr))
def test_no_text_is_a_place_by_accident_and_none_raises(text):
    known = parse_place("$fed/topology/place/" + text)

    assert known is None or isinstance(known, Place)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '["",5]',
        '["mqtt://b",-1]',
        '["mqtt://b",5,["x"]]',
        f'["{"b" * 513}",5]',
        '["mqtt://b",5,[],0,"' + "A" * 8_000 + '"]',
        "[" * 5_000,
    ],
)
def test_places_out_of_range_are_none(text):
    assert parse_place("$fed/topology/place/" + text) is None


def test_places_travel():
    ann = CoreAnn(2, 3, 0, 5, 1, 1, False, (place(3, proof=b"\x00\xff" * 50),), (), 0, 0)

    assert decode("core_ann", encode(ann)) == ann


def test_two_halves_find_each_other_without_a_seed():
    story = Story(
        kind=Kind.JOINING,
        seed=7,
        topology="joining",
        plan=replace(plan_of(range(12), 7), arranging=TopologyParameters()),
        acts=(
            tuple(Blow(1_000 * id, id, (0,) if id else ()) for id in range(12)),
            (Blow(0, apart=frozenset({0, 3, 5, 8, 9})), Blow(90_000)),
        ),
    )

    result = run(story)

    assert result.violation is None, result.violation


def test_who_restarts_without_its_seed_comes_back():
    plan = replace(plan_of(range(6), 3), arranging=TopologyParameters())
    world = World(plan, seed=3, parts=(Joining,))
    joining = world.part(Joining)
    for id in range(6):
        joining.start(id, [0] if id else [])
    world.run_until(60_000)
    joining.kill(0)
    joining.kill(4)
    world.run_until(90_000)

    joining.start(4, [])
    world.run_until(150_000)

    assert parts_of(joining.graph()) == [{1, 2, 3, 4, 5}]


def test_what_a_core_signed_is_passed_on_together_while_a_newer_number_is_held():
    made, _ = node()
    for id, conn in ((2, 1), (3, 2)):
        link(made, id, conn=conn, now_ms=10)
    cheap = CoreAnn(2, 9, 0, 5, 1, 1, True, ("a",), (), 11, 1, proof=b"first")
    dear = CoreAnn(3, 9, 0, 5, 2, 4, True, ("b",), (), 22, 1, proof=b"second")
    made.handle(Received(cheap), now_ms=20)
    made.handle(Received(dear), now_ms=21)

    effects = link(made, 4, conn=3, now_ms=22)

    told = [
        e.message
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, CoreAnn) and e.message.core == 9
    ]
    assert [(ann.seq, ann.digest, ann.proof) for ann in told] == [(1, 11, b"first")]
