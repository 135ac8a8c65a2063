"""What pages name is there: other pages, headings, files, verbs and options."""

import re
import shlex

import click
import pytest
from federator_analytics.cli import federator_analytics

from federator import cli
from lab.cli import federator_lab
from tests.docs.markdown import (
    ROOT,
    anchors,
    chart_values,
    code,
    events,
    links,
    pages,
    settings,
)

PROGRAMS = {
    "federator": cli.federator,
    "federator-analytics": federator_analytics,
    "federator-lab": federator_lab,
}
DOTTED = re.compile(r"([a-z]+\.(?!py$)[a-z_]+)( = .*)?$")
NO_SETTINGS = {
    "agent.key",  # a file; and attributes of OpenTelemetry:
    *("service.instance", "service.name", "service.namespace", "service.version"),
}
NO_COMMANDS = {"federator ring", "federator-analytics simulate"}
"""A label in a hash, and what the changelog says is called otherwise now."""
ENDS = re.compile(r"\s(\||>>?|&|&&|2>|#|;|\.\.\.)(\s|$)|[;|&>].*")


def named(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(), ids=named)
def test_every_link_within_the_repository_leads_somewhere(page):
    lost = []
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            lost.append(target)

    assert lost == []


def test_every_page_can_be_found_from_the_index():
    seen, waiting = set(), [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        paths = (target.partition("#")[0] for target in links(page) if ":" not in target)
        waiting += [(page.parent / path).resolve() for path in paths if path]

    assert {page for page in pages() if page.is_relative_to(ROOT / "docs")} <= seen


@pytest.mark.parametrize("page", pages(), ids=named)
def test_every_verb_and_option_that_a_page_names_exists(page):
    wrong = {line: why for line in code(page) if (why := complaint(line))}

    assert wrong == {}


def complaint(line):
    """What is wrong with the command that a piece of code gives, if it is one of ours."""
    found = re.match(
        r"\s*(?:\$ |sudo )*(?:\S*/)?(federator|federator-analytics|federator-lab) ([a-z-].*)", line
    )
    if found is None or line in NO_COMMANDS:
        return None
    line = found[2].removesuffix("\\")  # it goes on, and what follows is not looked at
    words = shlex.split(ENDS.split(line, maxsplit=1)[0].replace("'", ""))
    words = words[: words.index("--")] if "--" in words else words
    command = PROGRAMS[found[1]]
    context = click.Context(command, info_name=found[1])
    while words and isinstance(command, click.Group):
        word = words.pop(0)
        if word.startswith("-"):
            if word not in options(command, context):
                return f"{context.command_path} has no {word}"
            continue
        inner = command.get_command(context, word)
        if inner is None:
            return None if command.invoke_without_command else f"no verb {word}"
        command, context = inner, click.Context(inner, info_name=word, parent=context)
    known = options(command, context)
    unknown = [word for word in words if word.startswith("-") and word.split("=")[0] not in known]
    return f"{context.command_path} has no {unknown}" if unknown else None


@pytest.mark.parametrize("page", pages(), ids=named)
def test_every_setting_and_event_that_a_page_names_exists(page):
    known = settings() | events()
    if page.name == "kubernetes.md":
        known |= chart_values()
    sections = {name.partition(".")[0] for name in known}
    names = {found[1] for span in code(page) if (found := DOTTED.match(span))}

    assert sorted(n for n in names - known - NO_SETTINGS if n.partition(".")[0] in sections) == []


def options(command, context):
    return {name for each in command.get_params(context) for name in each.opts}


@pytest.mark.parametrize(
    "line",
    [
        "federator stauts",
        "$ federator status --jsn | jq .",
        "federator keys make",
        "/opt/federator/bin/federator run --config=x --verbose",
        "federator-analytics reprot landing --out there",
    ],
)
def test_a_wrong_command_is_noticed(line):
    assert complaint(line)


@pytest.mark.parametrize(
    "line",
    [
        "federator keys init | issue | revoke | show",
        "federator-lab bench --systems broker,gateway --clients 100",
        "federator run -c site.toml > agent.log 2>&1 &",
        "federator.service",
        "federator explain TOPIC  # where it goes",
    ],
)
def test_a_right_command_is_let_pass(line):
    assert complaint(line) is None
