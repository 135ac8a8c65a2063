"""Files that describe instances, good ones and bad ones."""

import json
from typing import Any

import numpy as np
import pytest

from federator.errors import InstanceError
from federator.planner.flow.instance_file import decode, encode
from lab.papers.flow import generators

GOOD: dict[str, Any] = {
    "version": 1,
    "capacity": "edge",
    "nodes": [
        {"name": "a"},
        {"name": "b"},
        {"name": "p", "role": "publisher"},
        {"name": "s", "role": "subscriber"},
        {"name": "far"},
    ],
    "links": [
        {"a": "p", "b": "a", "capacity": 5, "both": False},
        {"a": "a", "b": "b", "capacity": 5, "cost": 2},
        {"a": "b", "b": "s", "capacity": 5},
    ],
    "topics": [{"name": "t", "rate": 1, "publisher": "p", "subscribers": ["s"]}],
}


def with_change(*path, value):
    """``GOOD`` with one value replaced."""
    changed = json.loads(json.dumps(GOOD))
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(changed).encode()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (with_change("version", value=2), ["version: 2", "1 wanted"]),
        (with_change("version", value=None), ["version: None", "1 wanted"]),
        (b"{}", ["version: None", "1 wanted"]),
        (b"[1]", ["Expected `object`"]),
        (b"{", ["truncated"]),
        (b"\xff", ["malformed"]),
        (b"[" * 100_000, [""]),
        (with_change("capacity", value="node"), ["capacity", "node"]),
        (with_change("colour", value=1), ["unknown field `colour`"]),
        (with_change("nodes", 0, "role", value="cook"), ["nodes[0].role", "cook"]),
        (with_change("nodes", 0, "role", value=7), ["nodes[0].role", "`str`"]),
        (with_change("nodes", 1, "name", value="a"), ["nodes[1].name", "'a'", "once"]),
        (with_change("nodes", value=[]), ["nodes: 0", "1 to"]),
        (with_change("links", 1, "capacity", value=0), ["links[1].capacity: 0", "above 0"]),
        (with_change("links", 1, "capacity", value=-3), ["links[1].capacity: -3", "above 0"]),
        (with_change("links", 1, "capacity", value=1e300), ["links[1].capacity", "at most"]),
        (with_change("links", 1, "cost", value=-1), ["links[1].cost: -1", "0 or more"]),
        (with_change("links", 1, "capacity_back", value=3), ["links[1].capacity_back", "edge"]),
        (with_change("links", 1, "b", value="nobody"), ["links[1].b: 'nobody'", "listed in nodes"]),
        (with_change("links", 1, "b", value="a"), ["links[1]", "itself"]),
        (with_change("links", 2, value=GOOD["links"][1]), ["links[2]", "again"]),
        (with_change("topics", 0, "rate", value=0), ["topics[0].rate: 0", "above 0"]),
        (with_change("topics", 0, "publisher", value="x"), ["topics[0].publisher: 'x'"]),
        (with_change("topics", 0, "publisher", value="s"), ["topics[0].publisher", "broker"]),
        (with_change("topics", 0, "subscribers", value=[]), ["topics[0].subscribers", "one"]),
        (with_change("topics", 0, "subscribers", value=["p"]), ["topics[0].subscribers[0]: 'p'"]),
        (with_change("topics", 0, "subscribers", value=["s", "s"]), ["subscribers", "twice"]),
        (with_change("topics", 0, "subscribers", value=["far"]), ["'p' to 'far'", "connected"]),
        (with_change("unmet_penalty", value=0), ["unmet_penalty: 0", "above 0"]),
        (with_change("links", 2, "a", value="x" * 10_000), ["links[2].a"]),
    ],
)
def test_a_bad_file_costs_one_line_that_names_key_value_and_what_is_wanted(data, told):
    with pytest.raises(InstanceError) as raised:
        decode(data)

    text = str(raised.value)
    assert all(each in text for each in told), text
    assert "\n" not in text
    assert len(text) < 250
    assert raised.value.exit_code == 65


def test_a_good_file_is_read():
    instance = decode(json.dumps(GOOD).encode())

    assert (instance.nodes, instance.arcs, instance.topics, instance.requests) == (5, 4, 1, 1)
    assert instance.unmet_penalty > 4


@pytest.mark.parametrize("kind", ["edge", "arc"])
def test_what_is_written_is_read_again(kind):
    made = generators.table1(generators.TABLE_1[2], seed=3)
    data = encode(made).replace(b'"edge"', f'"{kind}"'.encode())

    instance = decode(data)

    assert encode(instance) == data
    assert np.array_equal(instance.tail, made.tail)
    channels = made.capacity if kind == "edge" else made.tail
    assert len(instance.capacity) == len(channels)


def test_a_link_that_only_ends_at_clients_has_no_arc_that_invents_traffic():
    data = with_change("links", 0, "both", value=True)

    instance = decode(data)

    assert 2 not in instance.head  # nothing enters the publisher
    assert 3 not in instance.tail  # nothing leaves the subscriber


def test_mutated_files_are_read_or_refused_and_nothing_else():
    rng = np.random.default_rng(5)
    good = json.dumps(GOOD).encode()
    refused = 0
    for _ in range(2_000):
        data = bytearray(good)
        for place in rng.integers(0, len(data), size=int(rng.integers(1, 6))):
            data[place] = int(rng.integers(256))
        try:
            decode(bytes(data))
        except InstanceError as error:
            refused += "\n" not in str(error)
    assert refused > 1_000


def test_every_number_that_json_can_write_is_checked():
    for text in (b"1e999", b"-1e999", b"NaN", b'"5"', b"null", b"true"):
        data = with_change("links", 1, "capacity", value=5).replace(
            b'"capacity": 5', b'"capacity": ' + text
        )
        with pytest.raises(InstanceError):
            decode(data)
