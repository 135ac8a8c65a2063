"""What the Debian package has beside the program: pages whose links lead somewhere, and more."""

import gzip
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from federator.cli import VERBS
from tests.docs.markdown import links

ROOT = Path(__file__).parents[2]
MADE_BY = ROOT / "deploy" / "systemd" / "debian" / "share.py"


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    """Folder ``/usr/share`` of the package."""
    root = tmp_path_factory.mktemp("root")
    command = [sys.executable, MADE_BY, root, "0.1.0", "Somebody <somebody@example.org>"]
    subprocess.run(command, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": "1790000000"})
    return root / "usr" / "share"


def test_every_link_of_an_installed_page_leads_to_something_installed(share):
    home = share / "doc" / "federator"
    pages = [page for page in home.rglob("*.md") if "deploy" not in page.parts]
    lost = [
        f"{page.name}: {target}"
        for page in pages
        for target in links(page)
        if not re.match(r"[a-z]+:|#", target)
        and not (page.parent / target.partition("#")[0]).exists()
    ]

    assert lost == []
    assert len(pages) > 30


def test_alerts_the_dashboard_and_an_example_of_each_configuration_are_there(share):
    here = share / "federator"
    names = ["prometheus/alerts.yml", "grafana/dashboards/federator.json", "mosquitto.conf", "acl"]
    names += ["federator.toml", "gateway.toml", "collector.toml"]

    assert [name for name in names if not (here / name).is_file()] == []


def test_there_is_a_manual_page_for_the_program_and_for_each_verb(share):
    for name in ("federator", *(f"federator-{verb}" for verb in VERBS)):
        page = gzip.decompress((share / "man" / "man1" / f"{name}.1.gz").read_bytes()).decode()
        told = re.search(
            rf"^{name} \\- (.+)$", page.replace(r"\-", "-").replace(" - ", r" \- "), re.M
        )
        assert told, name
        assert not told[1].endswith("..."), name


def test_tab_completes_verbs_and_options_in_bash(share, tmp_path):
    program = tmp_path / "federator"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m federator "$@"\n')
    program.chmod(0o755)
    script = share / "bash-completion" / "completions" / "federator"

    def completed(*words):
        said = f"""
            source {shlex.quote(str(script))}
            COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}
            _federator_completion {shlex.quote(str(program))}
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        done = subprocess.run(["bash", "-euc", said], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert completed("federator", "che") == ["check-config"]
    assert "--json" in completed("federator", "status", "--")
