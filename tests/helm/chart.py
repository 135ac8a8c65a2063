"""What helm makes of the chart and some values: manifests, or the line in which it refuses them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "federator"
HELM = os.environ.get("FEDERATOR_HELM", "helm")
KUBERNETES = "1.33.0"
"""A helm that was built from source alone takes clusters to be far older."""

RELEASE, NAMESPACE = "fed", "plant"

Manifest = dict[str, Any]

ALL_ON: dict[str, Any] = {
    "gateway": {"enabled": True},
    "collector": {"enabled": True},
    "console": {"enabled": True},
}


def helm(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """What ``helm`` says, with ``values`` in place of some of the chart's."""
    return subprocess.run(
        [HELM, *arguments, *(["--values", "-"] if values is not None else [])],
        input=yaml.safe_dump(values) if values is not None else None,
        capture_output=True,
        text=True,
        check=False,
    )


def template(values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """``helm template`` with these values."""
    options = ("--kube-version", KUBERNETES, "--namespace", NAMESPACE)
    return helm("template", RELEASE, str(CHART), *options, values=values)


def render(values: dict[str, Any]) -> list[Manifest]:
    """All manifests of the chart with these values."""
    done = template(values)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def refusal(values: dict[str, Any]) -> str:
    """What helm says of values that it has to refuse."""
    done = template(values)
    assert done.returncode != 0, "it was not refused"
    assert done.stdout == ""
    return done.stderr


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    """Those of one kind, by their names."""
    return {each["metadata"]["name"]: each for each in manifests if each["kind"] == kind}


def workloads(manifests: list[Manifest]) -> Iterator[Manifest]:
    """Whatever makes pods."""
    for kind in ("StatefulSet", "Deployment"):
        yield from of_kind(manifests, kind).values()
