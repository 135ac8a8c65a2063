"""The keys of a chart's federation, made by the very commands that its notes print."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.certificates import make_keys
from tests.helm.chart import CHART, KUBERNETES, NAMESPACE, RELEASE, helm
from tests.helm.pods import programs


def notes(folder: Path, values: dict[str, Any]) -> str:
    """What ``helm install`` prints; made a manifest, as ``helm template`` does not show it."""
    copy = folder / "chart-with-notes"
    shutil.copytree(CHART, copy)
    templates = copy / "templates"
    text = (templates / "NOTES.txt").read_text()
    (templates / "_notes.tpl").write_text('{{- define "notes" }}' + text + "{{ end -}}")
    (templates / "notes.yaml").write_text('kind: Notes\ntext: {{ include "notes" . | toJson }}\n')
    options = ("--kube-version", KUBERNETES, "--namespace", NAMESPACE)
    only = ("--show-only", "templates/notes.yaml")
    done = helm("template", RELEASE, str(copy), *options, *only, values=values)
    assert done.returncode == 0, done.stderr
    found: str = yaml.safe_load(done.stdout)["text"]
    return found


def made_by_hand(folder: Path, values: dict[str, Any]) -> dict[str, dict[str, bytes]]:
    """The Secrets that notes tell people to make."""
    text = notes(folder, values).replace("\\\n", " ")
    env = programs()
    for line in re.findall(r"^  (federator keys .*)$", text, re.M):
        subprocess.run(line, shell=True, cwd=folder, env=env, check=True, capture_output=True)
    secrets: dict[str, dict[str, bytes]] = {}
    for line in re.findall(r"^  (kubectl .* create secret generic .*)$", text, re.M):
        words = shlex.split(line)
        name = words[words.index("generic") + 1]
        files = (word.removeprefix("--from-file=") for word in words if word.startswith("--from-"))
        pairs = ((key, path or key) for key, _, path in (file.partition("=") for file in files))
        secrets[name] = {Path(key).name: (folder / path).read_bytes() for key, path in pairs}
    return secrets


def certificates(folder: Path) -> dict[str, bytes]:
    """A Secret as cert-manager makes it, for 127.0.0.1, which is every host of a test."""
    here = folder / "certificates"
    here.mkdir()
    make_keys(here)
    own, key = (here / "broker.pem").read_bytes(), (here / "broker.key").read_bytes()
    return {"tls.crt": own, "tls.key": key, "ca.crt": own}
