"""Destination records and keys: nothing that clients can say looks like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.messages.codec import decode, encode, kind_of
from federator.protocol.messages.control import CoreAnn
from federator.protocol.messages.destinations import (
    TREE_NUMBERS,
    destination_filter,
    destination_key,
    destination_of,
    destination_record,
    destinations_in,
    filter_part,
    is_destination_record,
    is_tree_key,
    outside_reserved,
    positions_of,
    tree_key,
)
from federator.protocol.messages.group_records import frame_key, inbox_key, is_inbox_key
from federator.protocol.types import BROKER_ID_MAX, BrokerId, Cost, Epoch

ids = st.integers(0, BROKER_ID_MAX).map(BrokerId)
filters = st.text("ab/+#", min_size=1).filter(lambda text: _is_filter(text))


def _is_filter(text):
    try:
        return destination_filter(f"$fed/to/{text}") == text
    except ValueError:
        return False


def announcement(filter_):
    return CoreAnn(
        sender=BrokerId(2),
        core=BrokerId(1),
        priority=0,
        epoch=Epoch(1),
        seq=1,
        cost=Cost(1),
        in_mesh=False,
        added=(filter_,),
        removed=(),
        digest=0,
        count=1,
        path=(BrokerId(2), BrokerId(1)),
    )


@given(filters)
def test_a_record_travels_and_says_which_filter_is_wanted(filter_):
    record = destination_record(filter_)
    message = announcement(record)

    assert is_destination_record(record)
    assert destination_filter(record) == filter_
    assert decode(kind_of(message), encode(message)) == message


@pytest.mark.parametrize("record", ["$fed/to/", "$fed/to/a/#/b", "$fed/to/$SYS/#", "$fed/too/a"])
def test_a_record_of_what_no_client_can_want_is_malformed(record):
    message = announcement(record)

    with pytest.raises(DecodeError):
        decode(kind_of(message), encode(message))


def test_a_filter_whose_record_would_be_too_long_has_none():
    assert destination_record("a" * 65_527) is not None
    assert destination_record("a" * 65_528) is None


@given(st.integers(0, 2**64 - 1), ids)
def test_no_filter_has_a_key_that_names_a_broker(key, broker):
    plain = outside_reserved(key).to_bytes(8, "big")

    assert destination_of(plain) is None
    assert not is_inbox_key(plain)
    assert plain < destination_key(broker) < inbox_key(BrokerId(0))
    assert destination_of(destination_key(broker)) == broker


@pytest.mark.parametrize("upper", [0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD, 0xFFFFFFFC])
def test_a_filter_whose_key_would_name_something_else_gets_another_one(upper):
    for number in (0, 7, 2**32 - 1):
        key = upper << 32 | number
        assert outside_reserved(key) == key - 2**63
    assert outside_reserved(0xFFFFFFFB << 32) == 0xFFFFFFFB << 32


@given(st.integers(0, TREE_NUMBERS - 1), ids)
def test_trees_have_keys_of_their_own_between_filters_and_destinations(number, broker):
    key = tree_key(number)

    assert is_tree_key(key)
    assert destination_of(key) is None
    assert key < destination_key(broker)
    assert not any(map(is_tree_key, (destination_key(broker), inbox_key(broker))))
    assert outside_reserved(int.from_bytes(key, "big")) < 2**63


@given(st.sets(filters), st.sets(ids), st.sets(st.integers(0, TREE_NUMBERS - 1), max_size=1))
def test_keys_of_trees_and_destinations_come_last_and_can_be_cut_off(names, brokers, numbers):
    of_filters = b"".join(sorted(frame_key(name).to_bytes(8, "big") for name in names))
    of_brokers = b"".join(destination_key(broker) for broker in sorted(brokers))
    of_trees = b"".join(map(tree_key, numbers))

    keys = of_filters + of_trees + of_brokers
    assert filter_part(keys) == of_filters
    assert destinations_in(keys) == brokers
    for broker in brokers:
        place = (len(of_filters) + len(of_trees)) // 8 + sorted(brokers).index(broker)
        assert positions_of({broker}, keys) == 1 << place
