"""What the sides of a hub are told of each other: all of it, within a bound, and not themselves."""

import tracemalloc
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.filters import CoverChange, canonical, contains, matches
from federator.protocol.leaves.switch import CLIENTS, Asked, Switch
from federator.protocol.types import BrokerId, Millis
from tests.protocol.leaves.test_bounded_cover import FILTERS
from tests.transcripts import play, scenes

LEAVES = (BrokerId(10), BrokerId(11), BrokerId(12))
MESH = None
SOURCES = (CLIENTS, MESH, *LEAVES)
LINGER_MS = 1_000
STEPS = st.lists(
    st.tuples(
        st.sampled_from(SOURCES),
        st.booleans(),
        st.one_of(FILTERS, st.just("#")),
        st.integers(0, 700),
    ),
    max_size=40,
)


class Hub:
    """A switch, and what each side was told and wants."""

    def __init__(self, most):
        self.switch = Switch(LEAVES, filters_max=most, linger_ms=LINGER_MS)
        self.told = {side: set() for side in (MESH, *LEAVES)}
        self.wants = {source: set() for source in SOURCES}
        self.now_ms = Millis(0)

    def step(self, source, adds, filter_):
        wants = self.wants[source]
        if adds == (filter_ in wants):
            return
        (wants.add if adds else wants.discard)(filter_)
        change = CoverChange((filter_,), ()) if adds else CoverChange((), (filter_,))
        self.take(self.switch.change(source, change, self.now_ms))

    def wait(self, ms):
        self.now_ms = Millis(self.now_ms + ms)
        due_ms = self.switch.next_deadline_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            self.take(self.switch.on_deadline(self.now_ms))

    def take(self, advertising):
        for changes in filter(None, advertising):
            for side, change in changes.items():
                assert not self.told[side] & set(change.subscribe)
                assert self.told[side] >= set(change.unsubscribe)
                self.told[side] |= set(change.subscribe)
                self.told[side] -= set(change.unsubscribe)

    def wanted_of(self, side):
        """What all others want of ``side``."""
        return set().union(*(self.wants[s] for s in SOURCES if s != side))


@given(STEPS, st.integers(3, 24))
@settings(max_examples=300)
def test_each_side_is_asked_for_what_the_others_want_and_for_no_more_filters_than_allowed(
    steps, most
):
    hub = Hub(most)
    for source, adds, filter_, wait_ms in steps:
        hub.step(source, adds, filter_)
        hub.wait(wait_ms)

        for side, told in hub.told.items():
            wanted = hub.wanted_of(side)
            assert all(any(contains(wide, f) for wide in told) for f in wanted)
            assert len(told) <= most
            assert hub.switch.advertised_to(side) == told
            count = (
                len(hub.switch.mesh)
                if side is MESH
                else hub.switch.leaves.count_advertised_to(side)
            )
            assert count == len(told)

    hub.wait(2 * LINGER_MS)
    hub.wait(2 * LINGER_MS)
    for side, told in hub.told.items():
        assert len(told) <= max(2, most // 3)
        assert bool(told) == bool(hub.wanted_of(side))


@given(STEPS, st.integers(3, 24))
@settings(max_examples=300)
def test_nothing_is_taken_back_at_once_but_what_somebody_gave_up(steps, most):
    hub = Hub(most)
    for source, adds, filter_, wait_ms in steps:
        hub.wait(wait_ms)
        before = {side: set(told) for side, told in hub.told.items()}

        hub.step(source, adds, filter_)

        gone = {f for side, told in hub.told.items() for f in before[side] - told}
        if len(hub.switch.mesh.filters) <= most // 2:  # else the oldest of those that linger may go
            assert all(contains(f, filter_) and not adds for f in gone)


class Stage:
    """A hub; ``hub 24`` has room for so many filters to each side.

    ``mesh wants a/b c`` and ``10 drops a/b`` change the demand of a side or of ``clients``, and
    ``wait`` passes the time in ms. Prints the changes that each side is told; ``leaves``: all.
    """

    def do(self, command, *words):
        if command == "hub":
            self.hub = Hub(int(words[0]))
            return
        before = {side: set(told) for side, told in self.hub.told.items()}
        if command == "wait":
            self.hub.wait(int(words[0]))
        else:
            source = {"mesh": MESH, "clients": CLIENTS}.get(command) or int(command)
            for filter_ in words[1:]:
                self.hub.step(source, words[0] == "wants", filter_)
        told = {side: changed(before[side], now) for side, now in self.hub.told.items()}
        alike = len({told[leaf] for leaf in LEAVES}) == 1
        named = {"mesh": told[MESH]} | ({"leaves": told[10]} if alike else {})
        named |= {} if alike else {str(leaf): told[leaf] for leaf in LEAVES}
        yield from (f"{side} {change}" for side, change in named.items() if change)


def changed(before, now):
    return " ".join(
        [*(f"+{f}" for f in sorted(now - before)), *(f"-{f}" for f in sorted(before - now))]
    )


@scenes(Path(__file__).with_name("switch.txt"))
def test_transcript(path, number):
    play(path, number, Stage())


def test_what_leaves_want_is_kept_once_and_not_once_for_each_leaf():
    def kept(leaves):
        tracemalloc.start()
        switch = Switch(map(BrokerId, range(leaves)), filters_max=60, linger_ms=0)
        for leaf in range(leaves):
            said = CoverChange(tuple(f"site/{leaf}/{each}" for each in range(50)), ())
            _ = [*switch.change(BrokerId(leaf), said, Millis(0))]
            _ = [*switch.on_deadline(Millis(0))]
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size

    assert kept(64) < 6 * kept(16)


def test_a_filter_that_is_advertised_for_two_reasons_counts_once():
    asked = Asked(6, LINGER_MS)
    asked.update(["a", "b/c"], [], Millis(0))
    asked.update([], ["b/c"], Millis(0))
    asked.update(["#"], [], Millis(0))

    assert asked.filters == {"#", "a"}
    assert len(asked) == 2


@given(st.sets(FILTERS, max_size=12), st.sets(FILTERS, max_size=12))
def test_what_was_told_before_a_restart_lingers_and_bounds_hold(before, after):
    asked = Asked(12, LINGER_MS)

    recalled = asked.recall(before, Millis(0))
    asked.update(sorted(after), [], Millis(1))

    assert set(recalled.subscribe) <= before
    assert asked.filters >= set(recalled.subscribe)
    assert all(any(contains(wide, f) for wide in asked.filters) for f in after)
    asked.on_deadline(Millis(2 * LINGER_MS))
    assert len(asked.filters) <= 4


@given(STEPS, st.sampled_from(["a", "a/b", "b/c", "c/a/b"]))
def test_what_clients_and_leaves_want_is_found_by_topic(steps, topic):
    hub = Hub(24)
    for source, adds, filter_, _ in steps:
        hub.step(source, adds, filter_)

    wanting = Counter(
        canonical(f) for s in SOURCES if s != MESH for f in hub.wants[s] if matches(f, topic)
    )
    found = dict(hub.switch.wishes(topic))
    assert set(found) == set(wanting)
    assert all(1 <= found[f] <= wanting[f] for f in found)
