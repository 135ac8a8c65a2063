import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.filters import FilterTrie, contains, overlaps
from tests.protocol.filters.small_world import FILTERS, TOPICS, filters, matches_stupidly, traced

changes = st.lists(st.tuples(st.sampled_from(["add", "discard"]), filters), max_size=60)

# One shape of 100,000 filters each: what gateways see, and what a tree of levels likes least.
SHAPES: dict[str, Callable[[int], str]] = {
    "devices": lambda i: f"site/{i % 100}/dev{i // 2}/{'temp' if i % 2 else 'hum'}",
    "flat": lambda i: f"sensor{i:06d}",
    "deep": lambda i: "/".join(f"l{i // 20**k % 20}" for k in range(6)),
    "wildcards": lambda i: f"+/w{i % 40}/+/x{i // 40}/#" if i % 8 == 0 else f"w{i}/+/x{i % 9}",
}


def built(names):
    trie = FilterTrie()
    for name in names:
        trie.add(name)
    return trie


@given(changes, st.sampled_from(TOPICS), filters)
def test_the_trie_agrees_with_a_scan_of_a_set(steps, topic, probe):
    trie, plain = FilterTrie(), set()

    for what, filter in steps:
        if what == "add":
            assert trie.add(filter) == (filter not in plain)
            plain.add(filter)
        else:
            assert trie.discard(filter) == (filter in plain)
            plain.discard(filter)

    assert len(trie) == len(plain)
    assert sorted(trie) == sorted(plain)
    assert (probe in trie) == (probe in plain)
    assert trie.match(topic) == sorted(f for f in plain if matches_stupidly(f, topic))
    assert trie.overlapping(probe) == sorted(f for f in plain if overlaps(f, probe))
    around = {f for f in plain if contains(f, probe)}
    assert trie.containing(probe) in (around or {None})


def test_a_trie_of_the_whole_small_world_finds_every_match_and_every_overlap():
    trie = built(FILTERS)

    for topic in TOPICS:
        assert trie.match(topic) == sorted(f for f in FILTERS if matches_stupidly(f, topic))
    for probe in FILTERS:
        assert trie.overlapping(probe) == sorted(f for f in FILTERS if overlaps(f, probe))
        assert probe in trie
    for wide in FILTERS:
        alone = built([wide])
        for probe in FILTERS:
            assert (alone.containing(probe) == wide) == contains(wide, probe)


def test_thousands_of_levels_do_not_exhaust_the_stack():
    deep = "a/" * 30_000
    trie = built([deep + "b", deep + "c", "a/#"])

    assert trie.match(deep + "b") == ["a/#", deep + "b"]
    assert trie.overlapping(deep + "+") == ["a/#", deep + "b", deep + "c"]
    assert trie.discard(deep + "b")
    assert trie.match(deep + "b") == ["a/#"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_filter_costs_at_most_700_bytes_and_nothing_once_discarded(shape):
    count = 20_000
    with traced() as held_bytes:
        empty = held_bytes()
        trie = built(SHAPES[shape](i) for i in range(count))
        full = held_bytes()
        assert len(trie) == count
        for i in range(count):
            trie.discard(SHAPES[shape](i))
        discarded = held_bytes()

    assert (full - empty) / count <= 700
    assert len(trie) == 0
    assert discarded - empty < (full - empty) / 50


def test_a_trie_that_shrank_gives_back_the_room_of_a_wide_level():
    names = [f"a/{i}" for i in range(50_000)]
    trie = built(names)
    with traced() as held_bytes:
        before = held_bytes()
        small = built(names[:100])
        small_bytes = held_bytes() - before
        wide = built(names)
        for name in names[100:]:
            wide.discard(name)
        shrunk_bytes = held_bytes() - before - small_bytes

    assert len(wide) == len(small) == 100
    assert len(trie) == len(names)
    assert shrunk_bytes < 10 * small_bytes


@pytest.mark.parametrize("shape", SHAPES)
def test_a_topic_is_found_among_100_000_filters_without_a_scan(shape):
    names = [SHAPES[shape](i) for i in range(100_000)]
    trie = built(names)
    asked = [
        name.replace("+", "any").replace("#", "rest/of/it")
        for name in random.Random(1).sample(names, 1_000)
    ]

    started = time.process_time()
    found = [trie.match(topic) for topic in asked]
    each_us = (time.process_time() - started) / len(asked) * 1e6

    assert all(found)
    assert each_us < 1_000  # 3 us on an idle machine; a scan takes 50,000


def test_tries_that_are_given_a_filter_one_after_the_other_share_the_strings_of_its_levels():
    tries = [built(["a/" + name for name in ("unlike", "others")]) for _ in range(2)]

    first, second = ({level: level for level in trie._root["a"]} for trie in tries)

    assert all(first[level] is second[level] for level in ("unlike", "others"))
