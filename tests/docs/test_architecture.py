"""docs/ARCHITECTURE.md and the other pages name code that exists."""

import ast
import re

import pytest

from federator.protocol.custody.custodian import Custodian
from federator.protocol.data.delivery import Delivery
from federator.protocol.data.plane import DataPlane
from lab.walks.steps import resolve, walks
from tests.docs.markdown import ROOT, pages

ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
NAMED = re.compile(
    r"`((?:federator\.)?(?:protocol|runtime)\.[a-z_.]+(?:\.\w+)*|lab\.\w+(?:\.\w+)*)`"
)
STEPS_MIN = 5


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_module_that_a_page_names_exists(page):
    lost = []
    for name in NAMED.findall(page.read_text("utf-8")):
        try:
            resolve(name)
        except (ModuleNotFoundError, AttributeError):
            lost.append(name)

    assert lost == []


def test_there_are_four_ways_and_none_is_short():
    ways = walks()

    assert len(ways) == 4
    assert all(len(steps) >= STEPS_MIN for steps in ways.values())


@pytest.mark.parametrize(
    ("way", "step"), [(way, step) for way, steps in walks().items() for step in steps]
)
def test_every_step_of_a_way_is_a_function_that_exists(way, step):
    assert callable(resolve(step))


def public_names():
    """What ``DataPath`` offers: its methods, and what its ``__post_init__`` sets."""
    path = ROOT / "federator" / "runtime" / "data" / "data_path.py"
    (made,) = (
        node
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == "DataPath"
    )
    for node in ast.walk(made):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def test_the_table_of_the_data_planes_interface_is_whole():
    _, _, rest = ARCHITECTURE.read_text("utf-8").partition("### The data plane's interface")
    table = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    rows = [line.split("|")[2] for line in table]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    offered = {name for name in public_names() if not name.startswith("_")} - {"wall_clock_us"}

    assert offered <= listed
    rooms = (DataPlane, Custodian, Delivery)
    assert [n for n in listed - offered if not any(hasattr(room, n) for room in rooms)] == []
