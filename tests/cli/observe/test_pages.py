"""What verbs print of agents' pages, some of which lie."""

import json
from pathlib import Path

import click
import pytest

from federator.cli.agent_pages import Names
from federator.cli.observe import controller, explain, status, topology, trace
from federator.cli.observe.drawing import DRAWINGS, add_announced, merge
from federator.cli.observe.status_page import status_page
from federator.errors import LinkError
from federator.protocol.messages.operators import Traced
from tests.cli.observe.test_top import drawn, snapshot, watched
from tests.transcripts import play, scenes


class Stage:
    """Agents' pages, and what verbs make of them.

    ``page JSON`` adds keys to the page; ``agent ID NEIGHBOUR:STATE ... JSON`` is the status of one
    more agent, with links and perhaps more keys. ``graph A-B ...`` is what agents announce.

    Behind ``status``, ``verbose``, ``explain``, ``controller``, ``trace`` and ``top`` stand words:
    the lines with one of these are printed, without words all lines. ``draw FORM FILTER`` and
    ``what-if LOSS ...`` print all. Runs of spaces are printed as one.
    """

    def __init__(self):
        self.page, self.agents, self.graph = {}, [], {}

    def do(self, command, *words):
        try:
            yield from (" ".join(line.split()) for line in self._printed(command, *words))
        except click.UsageError as error:
            yield f"usage: {error.message}"
        except LinkError as error:
            yield f"error: {error}"

    def _printed(self, command, *words):
        match command:
            case "page":
                self.page |= json.loads(words[0])
            case "agent":
                self._add_agent(*words)
            case "graph":
                links = [[int(end) for end in word.split("-")] for word in words]
                brokers = sorted({end for link in links for end in link})
                self.graph = {"brokers": [{"broker": id} for id in brokers], "links": links}
            case "draw":
                picture = merge(
                    [status_page(page) for page in self.agents or [self.page]], *words[1:]
                )
                add_announced(picture, self.graph | {"names": self.page.get("names")})
                drawing = DRAWINGS[words[0]](picture)
                if words[0] == "json":
                    return [json.dumps(json.loads(drawing), ensure_ascii=False)]
                return drawing.splitlines()
            case "what-if":
                page = self.graph | {"names": self.page.get("names")}
                outcome = topology.judge(page, topology.Loss.parse(words))
                return [*topology.as_lines(outcome), json.dumps(topology.as_document(outcome))]
            case _:
                lines = VERBS[command](self.page)
                return [line for line in lines if not words or any(word in line for word in words)]
        return ()

    def _add_agent(self, id, *words):
        more = json.loads(words[-1]) if words[-1:] and words[-1].startswith("{") else {}
        pairs = [word.split(":") for word in words if ":" in word and not word.startswith("{")]
        links = [{"neighbour": int(n), "state": s, "cost": 1, "rtt_ms": 2} for n, s in pairs]
        own = {"id": int(id), "ready": True, "broker": {"url": f"mqtt://b{id}"}, "links": links}
        self.agents.append(own | more)


def traced(page):
    journey = trace.Journey()
    journey.take(Traced((1,), (0,), 5, True, False, ((2, 7), (3, 0)), "a mesh", page["names"]))
    return trace.as_text(journey, "a/b")


def seen(page):
    return drawn(watched(snapshot(1.0, more=page))).splitlines()


VERBS = {
    "status": status.as_text,
    "verbose": lambda page: status.as_text(page, verbose=True),
    "explain": explain.as_text,
    "controller": controller.as_text,
    "trace": traced,
    "top": seen,
}


@scenes(Path(__file__).with_name("pages.txt"))
def test_a_page_is_told_to_people(path, number):
    play(path, number, Stage())


def test_names_are_quoted_as_each_drawing_wants():
    links = [{"neighbour": 2, "state": "up"}]
    page = status_page({"id": 1, "links": links, "names": {"1": 'a"b\\', "2": '<i>"]'}})
    picture = merge([page])

    assert '  1 [label="a\\"b\\\\ (1)"];' in DRAWINGS["dot"](picture)
    assert '  b2["#60;i#62;#34;#93; #40;2#41;"]' in DRAWINGS["mermaid"](picture)


@pytest.mark.parametrize("names", [None, [], "x", {"1": 7}, {"1": None}, {1: "x"}])
def test_an_answer_that_names_nobody_names_nobody(names):
    assert Names(names).shown(1) == "1"
