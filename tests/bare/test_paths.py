"""What a stranger does first, on a system that has nothing installed."""

import os
import sys
import time
from pathlib import Path

import pytest

from tests.bare.machine import Container, Machine
from tests.docs.readme import follow_readme

TAR = Path(os.environ.get("FEDERATOR_TEST_BARE", ""))
SITES = {"site-1": "10.79.0.1", "site-2": "10.79.0.2"}
FIRST_PICTURE_S = 60
MET_BY_USERS = (
    *("tests/console", "tests/cli", "tests/config/test_schemas.py"),
    *("tests/deploy/test_home_assistant_addon.py", "tests/real/agent/test_home_assistant_addon.py"),
    *("tests/real/doctor", "tests/real/opentelemetry"),
)
"""The console's pages, the verbs and what they write, and what is there for other programs."""


@pytest.fixture
def container(tmp_path):
    def made(name):
        return Container(TAR, tmp_path / name)

    return made


@pytest.fixture
def say(capsys):
    def said(line):
        with capsys.disabled():
            sys.stdout.write(f"\n{line}\n")

    return said


def test_by_the_readme_alone_two_own_brokers_federate_with_keys(container, say):
    with (
        Machine("site-1", container("site-1"), SITES) as one,
        Machine("site-2", container("site-2"), SITES) as two,
    ):
        one.connect(two)
        took_s = follow_readme(one, two)
    say(f"README, on your own brokers: {took_s:.0f} s")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A container with what the demo takes, and the seconds that installing it took."""
    bare = Container(TAR, tmp_path_factory.mktemp("demo") / "root")
    began_s = time.monotonic()
    bare.done("script/setup demo")
    return bare, time.monotonic() - began_s


def test_the_demo_shows_its_first_picture_soon_after_it_has_installed_what_it_needs(installed, say):
    bare, setup_s = installed
    assert not [*bare.root.glob("usr/bin/chrom*")]
    began_s = time.monotonic()
    with bare.start("script/demo") as demo:
        first = demo.stdout.readline()
        pictured_s = time.monotonic() - began_s
        rest = demo.stdout.read()

    assert first == "The mesh, redundancy 2\n"
    assert pictured_s < FIRST_PICTURE_S
    assert demo.returncode == 0, rest
    assert "Nothing lost, nothing twice, in order; the mesh is the expected one" in rest
    assert "report: 3,000 of 3,000 deliveries in all" in rest
    say(
        f"script/setup demo: {setup_s:.0f} s; script/demo: first picture {pictured_s:.0f} s later,"
        f" all {time.monotonic() - began_s:.0f} s"
    )


def test_the_site_and_what_meets_users_are_the_same_there(installed, say):
    bare, _ = installed
    assert ", none leads nowhere\nbuild/site/index.html\n" in bare.done("script/site")
    tested = bare.done(f".venv/bin/pytest -q --timeout 600 {' '.join(MET_BY_USERS)}")
    say(next(line for line in reversed(tested.splitlines()) if " passed in " in line))


def test_the_tutorial_takes_neither_java_nor_a_browser(container, say):
    bare = container("tutorial")
    began_s = time.monotonic()
    bare.done("script/setup tutorial")
    say(f"script/setup tutorial: {time.monotonic() - began_s:.0f} s")
    assert not [*bare.root.glob("usr/bin/java"), *bare.root.glob("usr/bin/chrom*")]
    follow = (
        "from tests.docs.page import follow; follow(Path('docs/tutorial.md'), Path('/tmp'), {})"
    )
    bare.done(f'.venv/bin/python -c "from pathlib import Path; {follow}"')
