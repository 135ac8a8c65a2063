"""The house stays a house: small rooms, no part that takes the whole agent, the field's words."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FUNCTION_LINES_MAX, INIT_LINES_MAX = 60, 60
LONG_FUNCTIONS = {
    "analytics/federator_analytics/dashboard/app.py:application",
    "analytics/federator_analytics/report/traffic.py:traffic_section",
    "federator/gateway/gateway.py:__init__",
    "federator/protocol/data/plane.py:on_publishes",
    "federator/protocol/node.py:_on_event",
    "federator/protocol/opentelemetry/hop_spans.py:hop_span",
}
"""Those from before there was a bound; none is to be added."""

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


PERSONS = re.compile(r"\b(who|whom|whose|whoever|(some|any|every|no)body|someone)\b", re.I)
PERSONS_MAX = 50
"""In docstrings and comments of the product; what is left is mostly "whose", and people."""

VAGUE_NAMES, VAGUE_NAMES_MAX = {"told", "heard", "each", "known"}, 1


def product():
    return sorted((ROOT / "federator").rglob("*.py"))


def tree(path):
    return ast.parse(path.read_text("utf-8"))


def named(path):
    return str(path.relative_to(ROOT))


def test_functions_are_at_most_sixty_lines_long():
    ours = [
        path for top in ("federator", "lab", "analytics") for path in (ROOT / top).rglob("*.py")
    ]
    too_long = {
        f"{named(path)}:{node.name}"
        for path in ours
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    }

    assert too_long <= LONG_FUNCTIONS


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


def test_no_class_takes_the_whole_agent():
    takes = [
        f"{named(path)}: {taker.name}"
        for path in product()
        for taker in ast.walk(tree(path))
        if isinstance(taker, ast.ClassDef)
        for node in ast.walk(taker)
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if note is not None and re.search(r"\bAgent\b", ast.unparse(note))
    ]

    assert takes == []


def test_no_part_sets_what_another_one_calls():
    """``other.part.on_change = self._on_change``: it is given when the part is made."""
    sets = [
        f"{named(path)}: {ast.unparse(node)}"
        for path in product()
        if path.is_relative_to(AGENT_ROOM) or path.is_relative_to(AGENT_ROOM.parent / "leaves")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Attribute) and ast.unparse(target).count(".") > 1
    ]

    assert sets == []


def test_nothing_reaches_past_the_data_planes_interface():
    rooms = [ROOT / "federator" / room for room in ("protocol/data", "runtime/data")]
    inner = re.compile(r"(path|plane)\.(_\w+|intake|outgoing|moves|senders)$")
    past = [
        f"{named(path)}: {ast.unparse(node)}"
        for path in product()
        if not any(path.is_relative_to(room) for room in rooms)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and inner.search(ast.unparse(node))
    ]

    assert past == []


@pytest.mark.parametrize("top", ["federator", "lab", "analytics"])
def test_none_of_the_old_words_is_left(top):
    found = [
        f"{named(path)}:{number}: {hit[0]}"
        for path in sorted((ROOT / top).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (hit := OLD_WORDS.search(line))
    ]

    assert found == []


def prose(path):
    """Docstrings and comments."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def test_machines_are_named_and_no_persons():
    count = sum(len(PERSONS.findall(text)) for path in product() for text in prose(path))

    assert count <= PERSONS_MAX, "name the broker, the agent, the client"


def test_names_say_what_they_hold():
    count = sum(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE_NAMES
        for path in product()
        for node in ast.walk(tree(path))
    )

    assert count <= VAGUE_NAMES_MAX, f"none of {sorted(VAGUE_NAMES)}: name the thing"
