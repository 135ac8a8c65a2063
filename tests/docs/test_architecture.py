"""docs/ARCHITECTURE.md and the other pages name code that exists."""

import ast
import re
from importlib import import_module

import pytest

from federator.protocol.custody.custodian import Custodian
from federator.protocol.data.delivery import Delivery
from federator.protocol.data.plane import DataPlane
from tests.docs.markdown import ROOT, pages

ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
NAMED = re.compile(
    r"`((?:federator\.)?(?:protocol|runtime)\.[a-z_.]+(?:\.\w+)*|lab\.\w+(?:\.\w+)*)`"
)
STEP = re.compile(r"^\d+\. `([\w.]+)`")
STEPS_MIN = 5


def resolve(name):
    """The module, class or function of that dotted name; raises when there is none."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def full(name):
    return name if name.startswith(("federator.", "lab.")) else f"federator.{name}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_module_that_a_page_names_exists(page):
    lost = []
    for name in NAMED.findall(page.read_text("utf-8")):
        try:
            resolve(full(name))
        except (ModuleNotFoundError, AttributeError):
            lost.append(name)

    assert lost == []


def walks():
    """Title to the steps of each of the ways through the house."""
    text = ARCHITECTURE.read_text("utf-8")
    _, _, rest = text.partition("## Four ways through the house")
    chapter, _, _ = rest.partition("\n## ")
    found = {}
    for block in chapter.split("\n### ")[1:]:
        title, *lines = block.splitlines()
        found[title] = [step[1] for line in lines if (step := STEP.match(line))]
    return found


def test_there_are_four_ways_and_none_is_short():
    ways = walks()

    assert len(ways) == 4
    assert all(len(steps) >= STEPS_MIN for steps in ways.values())


@pytest.mark.parametrize(
    ("way", "step"), [(way, step) for way, steps in walks().items() for step in steps]
)
def test_every_step_of_a_way_is_a_function_that_exists(way, step):
    found = resolve(step if step.startswith(("lab.", "federator_analytics.")) else full(step))

    assert callable(found)


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
