"""The house stays a house: small rooms, no part that takes the whole agent, the field's words."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES_MAX, LINES_MAX, INIT_LINES_MAX = 16, 500, 60
AGENT_ROOM = ROOT / "federator" / "runtime" / "agent"
OLD_WORDS = re.compile(
    r"\b(dealings|attendants?|strands?|lookouts?|breathers?|cohabitants?|rivals?|happenings"
    r"|passports?|lets_out|retained_looks|mesh_?diary|link_?gates?|reach_?neighbour"
    r"|address_?warrant|\w+_desk|\w+keeper)\b"
    r"|\b(Dealings|Neighbourhood|Warrant|House|Front|Strand|Door|Lookout|Wipes|Breather|Alarm"
    r"|Clogged|Repeats|Cohabitants|Rivals|MeshDiary|Border|Office)\b"
    r"|^class (Tail|Tape|Sums|Remembered|Outlet|Around|Surroundings|Guest|Heard)\b",
)
"""Metaphors of ours that the field has terms for."""


def product():
    return sorted((ROOT / "federator").rglob("*.py"))


def tree(path):
    return ast.parse(path.read_text("utf-8"))


def named(path):
    return str(path.relative_to(ROOT))


def test_no_room_of_the_product_has_more_than_sixteen_modules():
    rooms = {path.parent for path in product()}
    sizes = {
        named(room): len([each for each in room.glob("*.py") if each.name != "__init__.py"])
        for room in rooms
    }

    assert {room: size for room, size in sizes.items() if size > MODULES_MAX} == {}


def test_no_module_of_ours_is_over_five_hundred_lines():
    ours = [
        path for top in ("federator", "lab", "analytics") for path in (ROOT / top).rglob("*.py")
    ]
    lines = {named(path): len(path.read_text("utf-8").splitlines()) for path in ours}

    assert {path: size for path, size in lines.items() if size > LINES_MAX} == {}


def test_the_agent_is_a_short_list_of_parts():
    (agent,) = (
        node
        for node in ast.walk(tree(AGENT_ROOM / "agent.py"))
        if isinstance(node, ast.ClassDef) and node.name == "Agent"
    )
    (init,) = (
        node for node in agent.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )

    assert init.end_lineno - init.lineno < INIT_LINES_MAX


def test_nothing_outside_its_room_takes_the_whole_agent():
    takes = [
        named(path)
        for path in product()
        if not path.is_relative_to(AGENT_ROOM)
        for node in ast.walk(tree(path))
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if note is not None and re.search(r"\bAgent\b", ast.unparse(note))
    ]

    assert takes == []


@pytest.mark.parametrize("top", ["federator", "lab", "analytics"])
def test_none_of_the_old_words_is_left(top):
    found = [
        f"{named(path)}:{number}: {hit[0]}"
        for path in sorted((ROOT / top).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (hit := OLD_WORDS.search(line))
    ]

    assert found == []
