"""What agents answer, some of whom lie."""

import pytest

from federator.console.answers import (
    FOUND_MAX,
    OF_ONE_MAX,
    Explained,
    Found,
    FoundRow,
    MeshPart,
    read_answer,
    together,
)
from federator.errors import DecodeError


def row(client, topic="a/#"):
    return {"client": client, "action": "sub", "topic": topic, "on": True}


def found(*rows, **more):
    return read_answer(
        Found, {"rows": list(rows), "rows_total": len(rows), "reported": True, **more}
    )


def test_rows_of_all_agents_are_one_list_by_client():
    told = together({2: found(row("b"), row("d")), 1: found(row("c"), filters=["a/#"])})

    assert [(each["client"], each["broker"]) for each in told["rows"]] == [
        ("b", 2), ("c", 1), ("d", 2),
    ]  # fmt: skip
    assert (told["rows_total"], told["filters"], told["asked"]) == (3, ["a/#"], 2)


def test_an_agent_speaks_for_its_own_broker_alone():
    told = together({2: found(row("b") | {"broker": 9})})

    assert told["rows"][0]["broker"] == 2


def test_who_tells_a_million_rows_does_not_hide_another_ones():
    liar = Found(rows=tuple(FoundRow(f"0{n}", "sub", "x") for n in range(100_000)))
    told = together(dict.fromkeys(range(1, 9), liar) | {9: found(row("zebra"))})

    assert len(told["rows"]) == FOUND_MAX
    assert "zebra" in {each["client"] for each in told["rows"]}
    assert len(together({1: liar})["rows"]) == OF_ONE_MAX


def test_who_tells_a_million_topics_does_not_hide_another_ones():
    liars = {
        liar: Found(filters=tuple(f"0/{liar}/{n}" for n in range(100_000))) for liar in range(1, 9)
    }
    told = together(liars | {9: found(filters=["zebra/#"])})

    assert "zebra/#" in told["filters"]
    assert len(told["filters"]) == FOUND_MAX


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Found, {"rows": 7}),
        (Found, {"rows": [{"client": 1}]}),
        (Found, {"rows_total": -1}),
        (MeshPart, {"core": "<b>"}),
        (MeshPart, {"next_hops": list(range(2_000))}),
        (Explained, {"why": ["x"]}),
        (Explained, {}),
    ],
)
def test_what_is_no_answer_is_malformed(kind, body):
    with pytest.raises(DecodeError, match=kind.__name__):
        read_answer(kind, body)
