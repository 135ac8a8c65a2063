"""docs/cli.md and docs/lab.md are written from the verbs."""

import ast
import os
import re
from pathlib import Path

import click
import pytest
from federator_analytics.cli import federator_analytics

from federator import cli
from federator.cli.reference import EXIT_CODES, reference
from lab.cli import HEAD, federator_lab

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NO_JSON = {
    "federator run": "a daemon: its log is JSON by log.format",
    "federator gateway": "a daemon, and --check tells by its exit code",
    "federator steer": "a daemon, and --write-instance writes what it measured",
    "federator console": "a daemon, and --check tells by its exit code",
    "federator top": "a live screen; federator status --json has the same once",
    "federator completion": "a script for a shell",
    "federator plan generate": "writes an instance, which is JSON",
    "federator plan draw": "draws; federator plan solve --json has the answer",
    "federator-analytics stream": "a daemon; its tables are Parquet",
    "federator-analytics serve": "a daemon, which prints its address",
    "federator-analytics submit": "passes on what the verb prints that it submits",
    "federator-lab paper generate": "writes an instance, which is JSON",
    "federator-lab bench lossy-study": "a table to choose settings by; bench lossy has --json",
}
EXIT_CODE = re.compile(
    r"exit_code$|EXIT_CODE$|^(USAGE|SOFTWARE|INTERRUPTED|CANNOT_CREATE|BAD_DATA|IN_USE)$"
)


def test_the_page_of_the_command_line_is_current():
    """Write it again with `federator --reference > docs/cli.md`."""
    assert (DOCS / "cli.md").read_text("utf-8") == reference(cli.federator)


def test_the_page_of_the_laboratory_is_current():
    """Write it again with `federator-lab --reference > docs/lab.md`."""
    assert (DOCS / "lab.md").read_text("utf-8") == reference(federator_lab, HEAD)


def test_each_verb_has_a_section_with_what_its_help_says():
    page = reference(cli.federator)

    assert "## federator keys issue\n" in page
    assert "Exits 0 when it is ready and stands well in the federation" in page


def verbs(context):
    """Every command that does something, with what it is called."""
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        inner = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from verbs(inner)
        else:
            yield inner.command_path, command


@pytest.mark.parametrize(
    "program", [cli.federator, federator_analytics, federator_lab], ids=lambda each: each.name
)
def test_every_verb_that_prints_can_print_json(program):
    found = dict(verbs(click.Context(program, info_name=program.name)))
    silent = {
        path
        for path, verb in found.items()
        if not any("--json" in option.opts for option in verb.params)
    }

    assert silent == {path for path in NO_JSON if path.startswith(f"{program.name} ")}


def exit_codes():
    """All that a program can end with by what its source names: EX_..., and numbers."""
    for path in (ROOT / "federator").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) if name.startswith("EX_"):
                    yield getattr(os, name)
                case ast.keyword(arg=str(name), value=ast.Constant(value=int(code))) if (
                    EXIT_CODE.search(name)
                ):
                    yield code
                case ast.Assign(targets=[target], value=value):
                    names = target.elts if isinstance(target, ast.Tuple) else [target]
                    values = value.elts if isinstance(value, ast.Tuple) else [value]
                    for each, of in zip(names, values, strict=False):
                        known = isinstance(each, ast.Name) and EXIT_CODE.search(each.id)
                        if known and isinstance(of, ast.Constant):
                            yield of.value


def test_the_table_of_exit_codes_has_all_that_the_source_names_and_no_other():
    assert set(exit_codes()) == set(EXIT_CODES)
