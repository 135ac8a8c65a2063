"""Names of brokers beside their ids, in all that an operator reads, and hostile ones nowhere."""

import json

import pytest

from federator.cli.agent_pages import Names
from federator.cli.observe import controller, explain, status, topology, trace
from federator.cli.observe.drawing import DRAWINGS, add_announced, merge
from federator.cli.observe.top_samples import Snapshot
from federator.protocol.messages.operators import Traced
from tests.cli.observe.test_top import drawn, link, snapshot, watched

NAMES = {"1": "hall-3", "2": "Kesselhaus S\u00fcd", "3": "evil\x1b[2J"}
MARKUP = {"1": "[red]a[/red]", "2": "[/]"}
STATUS = {
    "id": 1,
    "name": "hall-3",
    "names": NAMES,
    "ready": True,
    "federation": "fed",
    "broker": {"url": "mqtt://b1", "connected": True},
    "links": [{"neighbour": 2, "name": NAMES["2"], "state": "up"}, {"neighbour": 3, "name": ""}],
    "cores": [{"core": 2, "parents": [2], "filters": 4}],
    "meshes": [{"filter": "a/#", "core": 2, "parents": [2], "children": [], "member": True}],
}
GRAPH = {
    "brokers": [{"broker": id, "name": NAMES.get(str(id), "")} for id in (1, 2, 3)],
    "links": [[1, 2], [2, 3]],
    "names": NAMES,
}
ANSWER = {
    "topic": "a/b",
    "next_hops": [2],
    "why": "a mesh",
    "filters": [{"filter": "a/#", "core": 2, "next_hops": [2], "ways": [{"to": 3}]}],
    "groups": [{"group": "g", "filter": "jobs/#", "members": {"1": 2}}],
    "names": NAMES,
}
CONTROLLER = {
    "enabled": True,
    "broker": 1,
    "controller": 2,
    "brokers": [{"broker": 1, "name": "hall-3", "substitutes": [2, 3], "why": []}],
    "takeovers": [{"broker": 3, "substitute": 1}],
    "names": NAMES,
}
TRACED = Traced((1,), (0,), 5, True, False, ((2, 7), (3, 0)), "a mesh", NAMES)


def what_if():
    lost = topology.Loss.parse(["remove=2"])
    return topology.as_lines(topology.judge(GRAPH, lost))


def drawing(form):
    picture = merge([STATUS])
    add_announced(picture, GRAPH)
    return DRAWINGS[form](picture)


TOLD = {
    "status": lambda: "\n".join(status.as_text(STATUS)),
    "explain": lambda: "\n".join(explain.as_text(ANSWER)),
    "controller status": lambda: "\n".join(controller.as_text(CONTROLLER)),
    "trace": lambda: "\n".join(trace.as_text(journey(), "a/b")),
    "topology": lambda: drawing("text"),
    "topology, dot": lambda: drawing("dot"),
    "topology --what-if": lambda: "\n".join(what_if()),
    "top": lambda: drawn(watched(parts(STATUS))),
}


def journey():
    made = trace.Journey()
    made.take(TRACED)
    return made


def parts(told):
    """A snapshot of ``top`` with this status."""
    made = snapshot(1.0, links=[link(2), link(3)])
    return Snapshot(1.0, {**made.status, **told})


@pytest.mark.parametrize("form", TOLD.values(), ids=TOLD)
def test_a_name_stands_beside_its_id_and_what_is_none_nowhere(form):
    text = form()

    assert "Kesselhaus S\u00fcd (2)" in text
    assert "hall-3 (1)" in text
    assert "\x1b" not in text
    assert "evil" not in text


def test_programs_get_ids_as_before_and_names_beside():
    told = json.loads(drawing("json"))["brokers"]

    assert [(each["id"], each["name"]) for each in told] == [
        (1, "hall-3"),
        (2, "Kesselhaus S\u00fcd"),
        (3, ""),
    ]


def test_names_are_quoted_as_each_drawing_wants():
    picture = merge([STATUS | {"names": {"1": 'a"b\\', "2": '<img src=x>"]'}}])

    assert '  1 [label="a\\"b\\\\ (1)"];' in DRAWINGS["dot"](picture)
    mermaid = DRAWINGS["mermaid"](picture)
    assert '  b2(("#60;img src#61;x#62;#34;#93; #40;2#41;"))' in mermaid


def test_no_name_colours_the_picture_of_top():
    text = drawn(watched(parts(STATUS | {"names": MARKUP})))

    assert "[red]a[/red] (1) \u2192 [/] (2)" in text


@pytest.mark.parametrize("told", [None, [], "x", {"1": 7}, {"1": None}, {1: "x"}])
def test_an_answer_that_names_nobody_names_nobody(told):
    assert Names(told).shown(1) == "1"
