"""deploy/systemd: what can be said of units and scripts without a systemd that runs."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from configparser import RawConfigParser
from pathlib import Path

import pytest

from federator.config.reading import (
    load,
    load_collector,
    load_console,
    load_gateway,
    load_steerer,
)

ROOT = Path(__file__).parent.parent
HERE = ROOT / "deploy" / "systemd"
UNITS = sorted(path.name for path in HERE.glob("*.service"))
ITS_OWN = {
    "execstart",
    "execreload",
    "statedirectory",
    "statedirectorymode",
    "environment",
    "loadcredential",
    "timeoutstopsec",
}
EXPOSURE_MAX = 25


class Lists(dict[str, object]):
    """Keys may stand in a unit several times: all values count."""

    def __setitem__(self, key, value):
        if key in self and isinstance(value, list):
            value = [*self[key], *value]
        super().__setitem__(key, value)


def read(unit):
    parser = RawConfigParser(strict=False, dict_type=Lists, comment_prefixes=("#",))
    parser.read(HERE / unit)
    return {name: dict(parser[name]) for name in parser.sections()}


def run(script, *arguments, code=0):
    done = subprocess.run(
        [str(HERE / script), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def analyzed(*arguments):
    command = ["systemd-analyze", "--no-pager", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def files(root):
    return {
        str(path.relative_to(root)): (path.stat().st_mode & 0o777, path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if not path.is_dir() or not any(path.iterdir())
    }


def test_all_units_are_watched_hardened_and_restarted_alike():
    shared = [
        {key: value for key, value in read(unit)["Service"].items() if key not in ITS_OWN}
        for unit in UNITS
    ]

    assert len(shared) == 6
    assert all(each == shared[0] for each in shared)
    assert shared[0]["type"] == "notify"
    assert int(shared[0]["watchdogsec"]) > 0


def test_what_cannot_be_mended_by_trying_again_is_not_tried_again():
    codes = read("federator.service")["Service"]["restartpreventexitstatus"].split()
    told = (ROOT / "docs" / "cli.md").read_text()

    for code in codes:  # 243 is systemd's own: it could not give us the secrets
        assert code == "243" or f"| {code} |" in told
    assert not {"69", "70", "75"} & set(codes)


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_parses_and_is_hardened(unit, tmp_path):
    """By systemd itself, where it is installed."""
    assert read(unit).keys() == {"Unit", "Service", "Install"}
    if shutil.which("systemd-analyze") is None:
        return
    copy = tmp_path / unit.replace("@.", "@press.")
    copy.write_text((HERE / unit).read_text().replace("/usr/bin/federator", shutil.which("true")))

    verified = analyzed("verify", "--man=no", copy)
    judged = analyzed("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", copy)

    assert [line for line in verified.stderr.splitlines() if copy.name in line] == []
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_the_example_can_be_used_once_its_secrets_are_there(tmp_path):
    agent_key, public = tmp_path / "agent.key", tmp_path / "federation.pub"
    text = (HERE / "federator.toml").read_text()
    uncommented = re.sub(r"^#(?=\[|\w+ *= )", "", text, flags=re.MULTILINE)
    for name in ("agent.key", "broker.password", "links.password"):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text("secret\n")
        run_time = f"/run/credentials/federator.service/secrets_{name}"
        assert run_time in text
        uncommented = uncommented.replace(run_time, str(tmp_path / name))
    config = tmp_path / "federator.toml"
    config.write_text(uncommented.replace("/etc/federator/federation.pub", str(public)))

    settings = load(config, {"FEDERATOR_STATE_DIR": "/var/lib/federator"})

    assert settings.state_dir == Path("/var/lib/federator")
    assert settings.keys.agent_file == agent_key
    assert (settings.links.username, settings.broker.secret()) == ("federator-peer", b"secret")
    assert tomllib.loads(text)["broker"]["id"] == 1


@pytest.mark.parametrize("uncomment", [False, True])
@pytest.mark.parametrize(
    ("name", "unit", "read_it"),
    [
        ("gateway.toml", "federator-gateway", load_gateway),
        ("collector.toml", "federator-collect", load_collector),
        ("steer.toml", "federator-steer", load_steerer),
        ("console.toml", "federator-console", load_console),
    ],
)
def test_the_examples_of_the_other_daemons_can_be_used(name, unit, read_it, uncomment, tmp_path):
    text = (HERE / name).read_text().replace("/etc/federator", str(tmp_path))
    text = text.replace(f"/run/credentials/{unit}.service/secrets_", f"{tmp_path}/")
    for secret in ("password", "operators"):
        (tmp_path / secret).touch(mode=0o600)
        (tmp_path / secret).write_text("secret\n")
    role = {"steer.toml": "steerer", "console.toml": "operator"}.get(
        name, name.removesuffix(".toml")
    )
    issue = f"--role {role} --name one --dir {tmp_path}/office --out {tmp_path}/{role}.key"
    for arguments in (f"init {tmp_path}/office", f"issue {issue}"):
        subprocess.run(
            [sys.executable, "-m", "federator", "keys", *arguments.split()],
            check=True, capture_output=True,
        )  # fmt: skip
    shutil.copyfile(tmp_path / "office/federation.pub", tmp_path / "federation.pub")
    words = (
        "openssl req -x509 -newkey ed25519 -nodes -subj /CN=gate -keyout tls.key -out gateway.crt"
    )
    subprocess.run(words.split(), cwd=tmp_path, check=True, capture_output=True)
    config = tmp_path / name
    config.write_text(re.sub(r"^#(?=\[|\w+ *= )", "", text, flags=re.M) if uncomment else text)

    settings = read_it(config, {"FEDERATOR_LANDING": "/var/lib"} if "coll" in name else {})

    assert settings.brokers
    assert bool(settings.keys.federation_files) == uncomment


def test_installing_again_changes_nothing_and_uninstalling_keeps_what_is_the_operators(tmp_path):
    root = tmp_path / "root"
    options = ("--root", root, "--instance", "press", "--mosquitto", "--steerer", "--console")
    run("install", *options, "--program", "/opt/federator/bin/federator")
    config = root / "etc/federator/federator.toml"
    config.write_text("ours")
    for state in ("federator", "federator@press", "private/federator", "other"):
        (root / "var/lib" / state).mkdir(parents=True)
    before = files(root)

    said = run("install", *options, "--program", "/opt/federator/bin/federator")

    assert (said, files(root)) == ("", before)
    unit = (root / "etc/systemd/system/federator@.service").read_text()
    assert "ExecStart=/opt/federator/bin/federator run" in unit
    assert (root / "etc/federator/press/secrets").stat().st_mode & 0o777 == 0o700
    assert "\nlog_dest stderr\n" in (root / "etc/mosquitto/conf.d/federator.conf").read_text()

    for _ in range(2):
        run("uninstall", "--root", root)
        assert config.read_text() == "ours"
        assert sorted(os.listdir(root / "var/lib")) == [
            "federator", "federator@press", "other", "private",
        ]  # fmt: skip
        assert list((root / "etc/systemd/system").iterdir()) == []
        assert list((root / "etc/mosquitto/conf.d").iterdir()) == []

    for _ in range(2):
        run("uninstall", "--root", root, "--purge")
        assert sorted(os.listdir(root / "var/lib")) == ["other", "private"]
        assert not (root / "etc/federator").exists()


def test_a_broker_that_logs_somewhere_gets_no_second_log(tmp_path):
    conf = tmp_path / "etc/mosquitto/mosquitto.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text("log_dest file /var/log/mosquitto/mosquitto.log\n")

    run("install", "--root", tmp_path, "--mosquitto")

    drop_in = (conf.parent / "conf.d/federator.conf").read_text()
    assert "\n#log_dest stderr\n" in drop_in
    assert "\nlog_dest topic\n" in drop_in


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--instance"], "a value is missing"),
        (["--instance", "a/b"], "--instance a/b"),
        (["--instance", "../x"], "--instance ../x"),
        (["--program", "bin/federator"], "an absolute path wanted"),
        (["--program", "/home/me/federator"], "cannot see home folders"),
        (["--program", "/opt/my program"], "can stand in a unit"),
        (["--purge"], "--purge: unknown"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_done(arguments, complaint, tmp_path):
    said = run("install", "--root", tmp_path, *arguments, code=64)

    assert complaint in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_grant_of_credentials_is_as_documented():
    told = (ROOT / "docs" / "systemd.md").read_text()

    for unit in UNITS:
        service = read(unit)["Service"]
        secrets = service["loadcredential"].removeprefix("secrets:").replace("%i", "NAME")
        name = unit.replace("@.", "@NAME.")
        assert f"| `{secrets}/" in told, unit
        assert f"| `/run/credentials/{name}/secrets_" in told, unit
        assert f"| `{service['execstart'].rpartition(' ')[2]}` |".replace("%i", "NAME") in told
