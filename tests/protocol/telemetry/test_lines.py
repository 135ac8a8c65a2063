"""Records as lines: what is written is read, and what is not ours is refused."""

from random import Random

import msgspec
import pytest

from federator.errors import DecodeError
from federator.protocol.telemetry.reader import read_again
from federator.protocol.telemetry.records import (
    FLOW_CHARS_MAX,
    TABLES,
    Events,
    Hops,
    decode,
    encode,
    flow_name,
)
from federator.protocol.telemetry.replay import (
    Again,
    Ask,
    Head,
    decode_again,
    decode_ask,
    decode_head,
    digest_of,
)
from tests.protocol.hostile import mutated

OF = {"federation": "f", "broker": 3, "epoch": 5, "spool": "0123456789abcdef", "batch": 7}
LINK_UP = Events(**OF, row=0, at_us=1, kind="link_up")


def test_records_come_back_as_they_were() -> None:
    rows = [
        Events(**OF, row=0, at_us=1, kind="link_up", neighbour=4),
        Hops(**OF, row=1, at_us=2, origin=3, origin_epoch=5, seq=9, custody=0, hop=0,
             origin_time_us=2, qos=0),
    ]  # fmt: skip

    lines = [encode(row) for row in rows]

    assert [decode(line) for line in lines] == rows
    assert msgspec.json.decode(lines[0]) == {
        "table": "events", "v": 1, "federation": "f", "broker": 3, "epoch": 5,
        "spool": "0123456789abcdef", "batch": 7, "row": 0, "at_us": 1, "window_ms": 0,
        "kind": "link_up", "neighbour": 4, "filter": None, "subject": None, "detail": None,
        "value": None,
    }  # fmt: skip


def test_every_table_is_named_by_its_tag() -> None:
    assert {name: kind.__struct_config__.tag for name, kind in TABLES.items()} == {
        name: name for name in TABLES
    }


def test_a_field_of_a_later_version_is_passed_over_and_a_later_version_is_not() -> None:
    known = msgspec.json.decode(encode(LINK_UP))

    assert decode(msgspec.json.encode(known | {"colour": "red"})) == LINK_UP
    with pytest.raises(DecodeError, match="Invalid enum value 2"):
        decode(msgspec.json.encode(known | {"v": 2}))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b'{"v":1,"spool":"0123456789abcdef","first":3,"last":2,"to":"x"}',
        b'{"v":1,"spool":"0123456789abcdef","first":0,"last":2,"to":"x"}',
        b'{"v":1,"spool":"0123456789abcdef","first":1,"last":2,"to":"a/b"}',
        b'{"v":1,"spool":"../../../etc/pass","first":1,"last":2,"to":"x"}',
        b'{"v":1,"spool":"0123456789abcdef","first":1,"last":9223372036854775808,"to":"x"}',
        b" " * 2_000,
    ],
)
def test_an_ask_that_means_nothing_is_refused_with_the_reason(text: bytes) -> None:
    with pytest.raises(DecodeError, match=r"^ask: "):
        decode_ask(text)


def test_an_answer_whose_lines_are_not_those_of_its_first_line_is_none() -> None:
    held = {"batch_first": 1, "batch_last": 1, "held_first": 1, "held_last": 1}
    told = Again(spool="0123456789abcdef", **held, digest=digest_of(b"{}\n"))

    assert read_again(encode(told) + b"\n{}\n") == (told, b"{}\n")
    for others in (b"", b"{}", b"{}\n{}\n"):
        with pytest.raises(DecodeError, match="again: the lines are not those"):
            read_again(encode(told) + b"\n" + others)
    earlier = Again(spool="0123456789abcdef", **held)
    assert b"digest" not in encode(earlier)
    assert read_again(encode(earlier) + b"\n{}\n") == (earlier, b"{}\n")


def test_mutated_asks_heads_and_lines_are_read_or_refused_and_nothing_else() -> None:
    spool = "0123456789abcdef"
    asked = encode(Ask(spool=spool, first=1, last=2, to="x"))
    again = encode(Again(spool=spool, batch_first=1, batch_last=2, held_first=1, held_last=2))
    head = encode(Head(broker=1, spool=spool, first=1, last=2, at_us=3))
    refused, rng = 0, Random(5)

    for _ in range(2_500):
        for read, text in (
            (decode_ask, asked),
            (decode_again, again),
            (decode_head, head),
            (decode, encode(LINK_UP)),
        ):
            try:
                read(mutated(rng, text))
            except DecodeError:
                refused += 1

    assert 5_000 < refused < 10_000


def test_a_flow_is_called_by_its_filters_and_long_ones_that_begin_alike_stay_apart() -> None:
    fits = "a" * FLOW_CHARS_MAX
    long = [flow_name([fits + end, "b"]) for end in "xy"]

    assert flow_name(["b/+", "a/#"]) == flow_name(["a/#", "b/+"]) == "a/# b/+"
    assert flow_name([fits]) == fits
    assert [len(name) for name in long] == [FLOW_CHARS_MAX] * 2
    assert len(set(long)) == 2
