"""What a trace of a walk notes: files of calls between its steps."""

import sys
from pathlib import Path

import pytest

from lab.walks.steps import place, walks
from lab.walks.traced import TOGETHER, traced

PRODUCT = {
    "first.py": "def arrive(then):\n    then()\n\ndef tick():\n    pass\n",
    "between.py": "def pass_on(then):\n    then()\n",
    "second.py": "def leave():\n    pass\n",
}


@pytest.fixture
def product(tmp_path, monkeypatch):
    """Modules of a product of three files, by name."""
    folder = tmp_path / "federator"
    folder.mkdir()
    for name, text in PRODUCT.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    yield {name: __import__(name) for name in ("first", "between", "second")}
    for name in ("first", "between", "second"):
        del sys.modules[name]


def at(function):
    return function.__code__.co_filename, function.__code__.co_qualname


def names(files):
    return {Path(file).name for file in files}


def test_what_is_called_between_two_steps_is_passed(product):
    first, between, second = product.values()

    noted = traced(
        [at(first.arrive), at(second.leave)],
        lambda: first.arrive(lambda: between.pass_on(second.leave)),
    )

    assert {step: names(files) for step, files in noted.items()} == {TOGETHER: set(PRODUCT)}


def test_a_step_that_leads_to_no_other_is_noted_by_itself(product):
    first, between, second = product.values()

    noted = traced(
        [at(first.arrive), at(second.leave)],
        lambda: first.arrive(lambda: between.pass_on(first.tick)),
    )

    assert [(TOGETHER in step, names(files)) for step, files in noted.items()] == [
        (False, {"first.py", "between.py"})
    ]


def test_what_no_step_calls_is_not_noted(product):
    first, between, _ = product.values()

    assert traced([at(first.arrive)], lambda: between.pass_on(first.tick)) == {}


def test_a_step_that_fails_has_ended(product):
    first, between, _ = product.values()

    def fails():
        with pytest.raises(TypeError):
            first.arrive(None)
        between.pass_on(first.tick)

    (files,) = traced([at(first.arrive)], fails).values()
    assert names(files) == {"first.py"}


def test_each_step_of_the_four_walks_has_a_place():
    steps = [step for walk in walks().values() for step in walk]

    assert all(Path(file).exists() for file, _ in map(place, steps))
