"""Route tables, against brute force over all filters."""

from collections.abc import Sequence
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.effects import FilterRoute
from federator.protocol.filters import Cover, filter_key, matches
from federator.protocol.forwarding import forwarding
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.messages.destinations import destination_key
from federator.protocol.types import BrokerId

FILTERS = ["a", "a/b", "a/+", "a/#", "+/b", "#", "+", "b/+/c", "b/#", "/+", "+/+/c"]
TOPICS = ["a", "a/b", "a/b/c", "b", "b/x/c", "/", "/a", "c", "$x/b", "x/b"]
HOPS = [BrokerId(n) for n in (2, 3, 4)]
WAYS = {BrokerId(5): HOPS[0], BrokerId(6): HOPS[0], BrokerId(7): HOPS[2], BrokerId(8): None}


def keys_of(*filters: str) -> bytes:
    return b"".join(key.to_bytes(8, "big") for key in sorted(map(filter_key, filters)))


routes = st.builds(
    FilterRoute,
    local=st.booleans(),
    wanted=st.booleans(),
    next_hops=st.sets(st.sampled_from(HOPS)).map(lambda hops: tuple(sorted(hops))),
    destinations=st.sets(st.sampled_from([*WAYS])).map(lambda ends: tuple(sorted(ends))),
)
changes = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(FILTERS), st.one_of(st.none(), routes)),
        st.sampled_from(TOPICS),
    ),
    max_size=60,
)


def expected_sends(
    table: dict[str, FilterRoute],
    filters: list[str],
    mask: int,
    without: tuple[int, ...] = (),
    ends: Sequence[BrokerId] = (),
) -> dict[BrokerId, int]:
    sends: dict[BrokerId, int] = {}
    for index, end in enumerate(ends, len(filters)):
        hop = WAYS[end]
        if hop is not None and mask >> index & 1 and hop not in without:
            sends[hop] = sends.get(hop, 0) | 1 << index
    for index, filter in enumerate(sorted(filters, key=filter_key)):
        for hop in table[filter].next_hops if filter in table else ():
            if mask >> index & 1 and hop not in without:
                sends[hop] = sends.get(hop, 0) | 1 << index
    return sends


def keys_to(ends: Sequence[BrokerId]) -> bytes:
    return b"".join(map(destination_key, ends))


def with_ways(forwarder: Forwarder) -> None:
    for end, hop in WAYS.items():
        forwarder.set_destination(end, hop)


def sends_of(sends: forwarding.Sends) -> dict[BrokerId, int]:
    assert list(sends) == sorted(sends)
    return {hop: int.from_bytes(mask, "little") for hop, mask in sends}


@given(changes)
def test_topics_are_routed_as_by_brute_force_whatever_changed_before(
    changes: list[tuple[str, FilterRoute | None] | str],
) -> None:
    forwarder = Forwarder()
    table: dict[str, FilterRoute] = {}
    with_ways(forwarder)

    for change in changes:
        if isinstance(change, tuple):
            filter, route = change
            forwarder.set_route(filter, route)
            table.pop(filter, None)
            if route is not None:
                table[filter] = route
            continue
        found = [
            filter
            for filter, route in table.items()
            if matches(filter, change) and (route.wanted or route.next_hops)
        ]

        answer = forwarder.route_topic(change)

        assert (answer is None) == (not found)
        if answer is not None:
            ends = sorted({end for filter in found for end in table[filter].destinations})
            assert answer.keys == keys_of(*found) + keys_to(ends)
            assert sends_of(answer.sends) == expected_sends(table, found, -1, ends=ends)
            assert forwarder.route_chains(keys_of(*found)) == (answer.keys, answer.sends)


@given(
    table=st.dictionaries(st.sampled_from(FILTERS), routes),
    named=st.sets(st.sampled_from(FILTERS), min_size=1),
    ends=st.sets(st.sampled_from([*WAYS])).map(sorted),
    sender=st.sampled_from(HOPS),
    origin=st.sampled_from(HOPS),
    widened=st.booleans(),
    data=st.data(),
)
def test_frames_are_routed_as_by_brute_force(
    table: dict[str, FilterRoute],
    named: set[str],
    ends: list[BrokerId],
    sender: BrokerId,
    origin: BrokerId,
    widened: bool,
    data: st.DataObject,
) -> None:
    forwarder = Forwarder()
    with_ways(forwarder)
    for filter, route in table.items():
        forwarder.set_route(filter, route)
    mask = data.draw(st.integers(0, 2 ** (len(named) + len(ends)) - 1))
    keys = keys_of(*named) + keys_to(ends)
    forwarder.route_frame(keys, mask, sender=sender, origin=origin)
    forwarder.widen(widened)

    for _ in ("computed", "remembered"):
        answer = forwarder.route_frame(keys, mask, sender=sender, origin=origin)

        local = any(filter in table and table[filter].local for filter in named)
        assert answer.deliver == (local or widened)
        assert answer.unknown == len(named - table.keys())
        assert sends_of(answer.sends) == expected_sends(
            table, list(named), mask, without=(sender, origin), ends=ends
        )


@given(changes)
def test_the_cover_follows_the_wanted_filters(
    changes: list[tuple[str, FilterRoute | None] | str],
) -> None:
    forwarder = Forwarder()
    table: dict[str, FilterRoute] = {}
    subscribed = set[str]()

    for change in [*changes, "end"]:
        if isinstance(change, tuple):
            filter, route = change
            forwarder.set_route(filter, route)
            table.pop(filter, None)
            if route is not None:
                table[filter] = route
            continue
        altered = forwarder.cover_change()
        assert subscribed.isdisjoint(altered.subscribe)
        assert subscribed.issuperset(altered.unsubscribe)
        subscribed = subscribed.union(altered.subscribe).difference(altered.unsubscribe)

    wanted = [filter for filter, route in table.items() if route.wanted]
    for topic in TOPICS:
        covering = sum(matches(filter, topic) for filter in subscribed)
        assert covering <= 1
        assert covering == 1 or not any(matches(filter, topic) for filter in wanted)
    assert set(forwarder.cover) == subscribed == set(Cover().update(wanted).subscribe)


def test_a_change_elsewhere_leaves_remembered_topics_alone() -> None:
    forwarder = Forwarder()
    forwarder.set_route("hot/#", FilterRoute(local=False, wanted=True, next_hops=(HOPS[0],)))
    before = forwarder.route_topic("hot/topic")
    searches = forwarder.searches
    for client in range(10_000):
        forwarder.set_route(
            f"client/{client}/+", FilterRoute(local=True, wanted=False, next_hops=())
        )
        assert forwarder.route_topic("hot/topic") is before

    assert forwarder.searches == searches
    forwarder.set_route("+/topic", FilterRoute(local=False, wanted=True, next_hops=(HOPS[1],)))
    after = forwarder.route_topic("hot/topic")
    assert after is not before
    assert forwarder.searches == searches + 1


def test_a_turn_takes_fewer_topics_the_more_filters_they_match() -> None:
    forwarder = Forwarder()
    for levels in product("f+", repeat=8):
        filter = "/".join(levels) + "/#"
        forwarder.set_route(filter, FilterRoute(local=False, wanted=True, next_hops=(HOPS[0],)))
    new = ["f/" * 8 + str(number) for number in range(100)]

    share = forwarder.share_of_turn(new)

    assert (share - 1) * 256 < forwarding.MATCHES_PER_TURN_MAX <= (share + 1) * 256
    assert forwarder.searches == share
    assert forwarder.share_of_turn(new[:share]) == share
    assert forwarder.share_of_turn(["elsewhere"] * 1_000) == 1_000


def test_topics_with_one_route_share_one_object() -> None:
    forwarder = Forwarder()
    forwarder.set_route("a/#", FilterRoute(local=False, wanted=True, next_hops=(HOPS[0],)))

    assert forwarder.route_topic("a/1") is forwarder.route_topic("a/2")


def test_remembered_topics_stay_within_their_bound(monkeypatch) -> None:
    monkeypatch.setattr(forwarding, "FRAME_CACHE_MAX", 10)
    forwarder = Forwarder(topic_cache_max=100)
    forwarder.set_route("a/+", FilterRoute(local=True, wanted=True, next_hops=(HOPS[0],)))

    for n in range(1_000):
        forwarder.route_topic(f"a/{n}")
        forwarder.route_topic("a/" + "x" * 300 + str(n))
        forwarder.route_frame(keys_of("a/+"), 1, sender=BrokerId(n), origin=BrokerId(n))

    assert len(forwarder._topics) <= 100
    assert len(forwarder._frames) <= 10
    assert max(map(len, forwarder._topics)) <= forwarding.CACHED_TOPIC_CHARS_MAX


def test_filters_with_one_key_are_noticed_and_share_their_frames(monkeypatch) -> None:
    monkeypatch.setattr(forwarding, "frame_key", lambda filter: 7)
    forwarder = Forwarder()
    a = FilterRoute(local=False, wanted=True, next_hops=(HOPS[0],))
    plus = FilterRoute(local=True, wanted=True, next_hops=(HOPS[1],))
    assert forwarder.set_route("a", a) == ()
    assert forwarder.set_route("+", plus) == ("a",)
    assert forwarder.set_route("+", plus) == ()
    key = (7).to_bytes(8, "big")

    topic = forwarder.route_topic("a")
    frame = forwarder.route_frame(key, 1, sender=BrokerId(9), origin=BrokerId(9))

    assert topic is not None
    assert topic.keys == key
    assert topic.sends == frame.sends == ((HOPS[0], b"\x01"), (HOPS[1], b"\x01"))
    assert frame.deliver
    forwarder.set_route("+", None)
    assert not forwarder.route_frame(key, 1, sender=BrokerId(9), origin=BrokerId(9)).deliver


@settings(max_examples=25)
@given(st.permutations(FILTERS))
def test_a_route_that_was_forgotten_leaves_nothing_behind(order: list[str]) -> None:
    forwarder = Forwarder()
    for filter in order:
        forwarder.set_route(filter, FilterRoute(local=True, wanted=True, next_hops=(HOPS[0],)))
    for filter in reversed(order):
        forwarder.set_route(filter, None)

    assert len(forwarder) == 0
    assert not forwarder.cover_change()
    assert [forwarder.route_topic(topic) for topic in TOPICS] == [None] * len(TOPICS)
    route = forwarder.route_frame(keys_of(*order), -1, sender=HOPS[0], origin=HOPS[0])
    assert (route.deliver, route.sends, route.unknown) == (False, (), len(FILTERS))
