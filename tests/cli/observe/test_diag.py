"""The archive of ``federator diag`` has what a bug report needs, and no secret."""

import json
import os
import re
import stat
import tarfile
from pathlib import Path
from typing import Annotated

import pytest
from click.testing import CliRunner

from federator.cli.observe import diag
from federator.cli.observe.diag import command, secrets_of, strike
from federator.config.section import SecretFile, Section
from federator.errors import ConfigError
from lab.grid.processes.agent import KeyFolder

SECRETS = {
    "in the file": "correct horse",
    "with quotes": 'b"at\\tery/ä ü',
    "in a password file": "st4ple & more",
    "in the environment": "tr0ub4dor",
}
PEM = """\
-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqV
Tm50DFtMDoQikTmiCqir
-----END PRIVATE KEY-----
"""


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """A configuration with a secret in each place where one may be."""
    keys = KeyFolder(tmp_path / "keys", "plant").section(1)
    (tmp_path / "pass").touch(mode=0o600)
    (tmp_path / "pass").write_text(SECRETS["in a password file"] + "\n")
    lines = [
        'federation = "plant"',
        f"state_dir = {json.dumps(str(tmp_path / 'state'))}",
        "[broker]",
        "id = 1",
        'url = "mqtt://127.0.0.1:1"',
        'username = "agent"',
        f"password = {json.dumps(SECRETS['in the file'])}",
        "[[neighbours]]",
        'url = "mqtt://127.0.0.1:2"',
        'username = "agent"',
        f"password = {json.dumps(SECRETS['with quotes'])}",
        "[[neighbours]]",
        'url = "mqtt://127.0.0.1:3"',
        'username = "agent"',
        f"password_file = {json.dumps(str(tmp_path / 'pass'))}",
        "[keys]",
        *(f"{key} = {json.dumps(value)}" for key, value in keys.items()),
    ]
    path = tmp_path / "federator.toml"
    path.touch(mode=0o600)
    path.write_text("\n".join(lines))
    monkeypatch.setenv("FEDERATOR_LINKS__USERNAME", "agent")
    monkeypatch.setenv("FEDERATOR_LINKS__PASSWORD", SECRETS["in the environment"])
    papers = json.loads((tmp_path / "keys" / "agent-1.key").read_text())
    return path, [*SECRETS.values(), papers["signing"], papers["exchange"]]


def ran(tmp_path, *arguments):
    """The output, and the archive's files by name."""
    archive = tmp_path / "diag.tar.gz"
    result = CliRunner().invoke(command, [*map(str, arguments), "-o", str(archive)])
    if result.exception:
        raise result.exception
    with tarfile.open(archive) as tar:
        members = {m.name.partition("/")[2]: tar.extractfile(m).read() for m in tar.getmembers()}
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    return result.output, members


def test_no_secret_of_a_configuration_is_in_the_archive(tmp_path, configured):
    path, secrets = configured
    log = tmp_path / "log"
    log.write_text("".join(f"{s}\n{json.dumps({'event': s})}\n{s!r}\n" for s in secrets))

    output, files = ran(tmp_path, "-c", path, "--log", log)

    assert "config_error.txt" not in files, files["config_error.txt"]
    assert {"about.json", "config.json", "environment.txt", "log.txt", "missing.txt"} <= set(files)
    for secret in secrets:
        for form in (
            secret,
            json.dumps(secret)[1:-1],
            json.dumps(secret, ensure_ascii=False)[1:-1],
        ):
            for name, content in files.items():
                assert form.encode() not in content, name
            assert form not in output
    config = json.loads(files["config.json"])
    assert config["federation"] == "plant"
    assert config["broker"]["username"] == "agent"
    assert b"FEDERATOR_LINKS__PASSWORD\n" in files["environment.txt"]
    assert files["log.txt"].count(b"REDACTED") >= 3 * len(secrets)
    assert b"plant" in files["config.json"]


class Holder(Section):
    key_file: Annotated[Path, SecretFile.KEY]


def test_the_lines_of_a_key_file_are_secrets_as_well(tmp_path):
    (tmp_path / "tls.key").write_text(PEM)
    lines = [line for line in PEM.splitlines() if not line.startswith("-")]

    struck = strike(
        f"before {PEM} {lines[0]} after {lines[1]}".encode(),
        secrets_of(Holder(key_file=tmp_path / "tls.key")),
    )

    assert not any(line.encode() in struck for line in lines)
    assert struck.startswith(b"before ")


def test_short_secrets_are_masked_where_they_stand_and_nowhere_else():
    assert strike(b"aaa", ["a", "aa"]) == b"aaa"


def test_a_refused_configuration_is_told_and_no_log_is_taken(tmp_path):
    path = tmp_path / "federator.toml"
    path.write_text("[broker]\nid = 1\n")
    log = tmp_path / "log"
    log.write_text("who knows what is in here")

    output, files = ran(tmp_path, "-c", path, "--log", log)

    assert b"broker.url" in files["config_error.txt"]
    assert "log.txt" not in files
    assert "without log.txt" in output


def test_an_archive_that_exists_is_not_written_over(tmp_path, configured):
    (tmp_path / "diag.tar.gz").write_text("precious")

    with pytest.raises(ConfigError, match=r"diag\.tar\.gz: file exists: name another") as raised:
        ran(tmp_path, "-c", configured[0])

    assert raised.value.exit_code == os.EX_CANTCREAT
    assert (tmp_path / "diag.tar.gz").read_text() == "precious"


def test_versions_of_what_the_agent_stands_on_are_told(tmp_path, configured):
    _, files = ran(tmp_path, "-c", configured[0])

    packages = json.loads(files["about.json"])["packages"]
    assert {"federator", "mqtt5", "msgspec", "pydantic"} <= packages.keys()
    assert all(re.match(r"\d", number) for number in packages.values())


def test_a_file_that_the_agent_replaces_meanwhile_costs_one_line(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text(name)
    told = diag._state(tmp_path)
    first = next(told)
    (tmp_path / "b").unlink()

    assert [first[-2], *(line[-2] for line in told)] == ["a", "c"]
