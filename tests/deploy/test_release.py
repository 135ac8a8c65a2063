"""A release: two distributions that anybody builds to the same bytes, and what the forge does."""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "script" / "release"
PROJECTS = ("pyproject.toml", "analytics/pyproject.toml", "lab/pyproject.toml")
CHART = "deploy/helm/federator/Chart.yaml"
ADDON = "deploy/home-assistant-addon/federator/config.yaml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NAMES = {"mqtt_federator": "federator", "mqtt_federator_analytics": "federator_analytics"}
"""Distribution, as files are called, to its one package."""


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def dists(checkout, output, **environment):
    command = (checkout / "script" / "release" / "dists", "--output", output)
    done = run(*command, env=os.environ | {"FEDERATOR_PYTHON": sys.executable} | environment)
    assert done.returncode == 0, done.stderr
    return {file.name: file.read_bytes() for file in output.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dists")
    dists(ROOT, folder)
    return folder


def about(built, name):
    (wheel,) = built.glob(f"{name}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (at,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(at)), archive.namelist()


def project(name):
    return tomllib.loads((ROOT / name).read_text("utf-8"))["project"]


def test_the_same_commit_gives_the_same_bytes_elsewhere_and_later(built, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    run("git", "clone", "--quiet", ROOT, elsewhere)
    before = os.umask(0o077)
    try:
        again = dists(elsewhere, tmp_path / "out", TZ="Asia/Tokyo", LC_ALL="C", HOME=str(tmp_path))
    finally:
        os.umask(before)

    assert len(again) == 4
    assert again == {file.name: file.read_bytes() for file in built.iterdir()}


@pytest.mark.parametrize(("name", "package"), NAMES.items())
def test_a_wheel_has_one_package_its_types_and_its_licence(built, name, package):
    told, files = about(built, name)

    records = f"{name}-{told['Version']}.dist-info"
    assert {file.partition("/")[0] for file in files} == {package, records}
    assert f"{package}/py.typed" in files
    assert any(file.endswith("licenses/LICENSE") for file in files)


@pytest.mark.parametrize("name", NAMES)
def test_no_link_of_the_description_leads_into_a_checkout(built, name):
    told, _ = about(built, name)
    text = told.get_payload()

    assert told["Description-Content-Type"].startswith("text/markdown")
    assert len(text) > 300
    assert re.findall(r"\]\((?!https?://|#)[^)]*\)", text) == []


def test_the_source_archive_has_what_builds_and_tests_it(built):
    (archive,) = built.glob("mqtt_federator-*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}

    wanted = {
        "CONTRIBUTING.md",
        "deploy/locks/requirements.lock",
        "script/setup",
        "docs/release.md",
    }
    assert wanted | {"tests/conftest.py", "analytics/pyproject.toml", "lab/pyproject.toml"} <= names


def test_all_projects_have_one_version_and_one_licence():
    assert len({project(name)["version"] for name in PROJECTS}) == 1
    assert (ROOT / "analytics" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_nothing_is_installed_by_a_name_that_nobody_has_claimed():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "script").rglob("*")]
    pages += [*ROOT.glob("*/**/*.py"), *(ROOT / "deploy").rglob("*")]
    by_name = re.compile(
        r"pip3? install [^\n]*?(?<![\w/.-])(mqtt-)?federator(-analytics|-lab)?(?=[\[\s'\"`;)]|==|$)"
    )
    found = [
        f"{page.relative_to(ROOT)}: {hit[0]}"
        for page in pages
        if page.is_file() and page != Path(__file__) and page.name != "CHANGELOG.md"
        if page.suffix not in (".pyc", ".gz") and ".venv" not in page.parts
        for hit in by_name.finditer(page.read_text("utf-8", errors="replace"))
    ]

    assert found == []
    assert by_name.search("pip install 'mqtt-federator[planner]'")
    assert by_name.search("pip install federator")
    assert not by_name.search("pip install './mqtt_federator-0.1.0-py3-none-any.whl[planner]'")


def test_notes_are_a_chapter_of_the_changelog():
    told = run(SCRIPTS / "notes", "Unreleased")
    unknown = run(SCRIPTS / "notes", "9.9.9")

    assert told.stdout.startswith("### ")
    assert "\n## " not in told.stdout
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "9.9.9" in unknown.stderr


def test_a_tag_waits_for_versions_a_chapter_and_an_address(tmp_path):
    others = ("federator/__init__.py", ADDON, CHART, "CHANGELOG.md", "script/release/check-tag")
    for name in (*PROJECTS, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    check = tmp_path / "script" / "release" / "check-tag"
    version = project("pyproject.toml")["version"]

    early = run(check, "v9.9.9")
    assert early.returncode == 1
    assert all(name in early.stderr for name in (*PROJECTS, *others[:-1]))
    assert run(check, "latest").stderr.count("\n") == 1

    for name in PROJECTS[:2]:
        text = (tmp_path / name).read_text()
        if "urls" not in project(name):
            urls = '[project.urls]\nHomepage = "https://example.org"\n\n[project.scripts]'
            (tmp_path / name).write_text(text.replace("[project.scripts]", urls))
    with (tmp_path / "CHANGELOG.md").open("a") as changelog:
        changelog.write(f"\n## [{version}] - 2026-01-01\n\n- All of it.\n")
    ready = run(check, f"v{version}")
    assert (ready.returncode, ready.stderr) == (0, "")


def test_the_chart_has_the_version_of_the_project():
    chart = yaml.safe_load((ROOT / CHART).read_text())

    assert chart["version"] == chart["appVersion"] == project("pyproject.toml")["version"]


def test_the_chart_is_packed_to_the_same_bytes_and_holds_what_was_committed(tmp_path):
    packed = []
    for zone in ("UTC", "Asia/Tokyo"):
        output = tmp_path / zone
        done = run(SCRIPTS / "chart", "--output", output, env=os.environ | {"TZ": zone})
        assert done.returncode == 0, done.stderr
        (file,) = output.iterdir()
        packed.append(file.read_bytes())

    assert packed[0] == packed[1]
    assert file.name == f"federator-{project('pyproject.toml')['version']}.tgz"
    with tarfile.open(file) as archive:
        names = {member.name for member in archive if member.isfile()}
    listed = run("git", "ls-files", cwd=(ROOT / CHART).parent).stdout.split()
    assert names == {f"federator/{each}" for each in listed}


def test_a_signature_is_good_until_the_sums_change(tmp_path):
    (tmp_path / "a.whl").write_text("wheel")
    key = tmp_path.parent / f"{tmp_path.name}-key"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    assert run(SCRIPTS / "sums", tmp_path).returncode == 0

    signed = run(SCRIPTS / "sign", key, tmp_path)
    assert signed.returncode == 0, signed.stderr
    signers = tmp_path / "signers"
    signers.write_text(f"release@federator {key.with_suffix('.pub').read_text()}")
    verify = ("ssh-keygen", "-Y", "verify", "-f", signers, "-I", "release@federator")
    verify += ("-n", "federator-release", "-s", tmp_path / "SHA256SUMS.sig")
    sums = (tmp_path / "SHA256SUMS").read_text()
    assert sums.endswith("  a.whl\n")
    assert run(*verify, input=sums).returncode == 0
    assert run(*verify, input=sums.replace("a.whl", "b.whl")).returncode != 0


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_steps_of_a_workflow_are_scripts_that_are_here(path):
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    steps = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    called = {name for step in steps for name in re.findall(r"\bscript/[\w/-]+", step)}

    assert len(called) > 3
    assert [name for name in sorted(called) if not os.access(ROOT / name, os.X_OK)] == []


def test_checks_run_on_every_python_that_the_classifiers_name():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text())["jobs"]
    for name in PROJECTS[:2]:
        said = [line.rpartition(" ")[2] for line in project(name)["classifiers"]]
        assert jobs["brokers"]["strategy"]["matrix"]["python"] == [
            each for each in said if re.fullmatch(r"3\.\d+", each)
        ]
    assert jobs["brokers"]["strategy"]["matrix"]["mosquitto"] == ["2.0.11", "2.0.22", "2.1.2"]
