"""The app for Home Assistant: a manifest as documented, and options that become a configuration."""

import json
import os
import re
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from federator import __version__
from tests.home_assistant_apps import (
    ELEMENT,
    SERVICE,
    Manifest,
    Repository,
    Translations,
    supervisor,
)

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "deploy" / "home-assistant-addon"
APP = SOURCE / "federator"
PACK = ROOT / "script" / "release" / "home-assistant-addon"
EXAMPLE = {
    "broker_id": 7,
    "broker_name": "home 🏠",
    "federation": "fed",
    "neighbours": ["mqtts://site-1.example", "mqtt://10.0.0.2:1884"],
    "security": "signed",
    "links_username": "home",
    "links_password": "secret",
    "keep": ["homeassistant/status"],
    "deny": ["cellar/#"],
    "discovery": True,
    "log_level": "info",
}


def read(name):
    return yaml.safe_load((SOURCE / name).read_text("utf-8"))


DOCS = (APP / "DOCS.md").read_text("utf-8")
MANIFEST = Manifest.model_validate(read("federator/config.yaml"))


class Home:
    """The folders that the Supervisor gives the app, and the app, started to be checked."""

    def __init__(self, folder, office):
        self.folder, self.office = folder, office
        for name in ("data", "config", "ssl"):
            (folder / name).mkdir()

    def put_keys(self):
        for name in ("agent-7.key", "federation.pub"):
            text = (self.office / name).read_text()
            (self.folder / "config" / name).write_text(text)  # open to others, as Samba leaves it

    def check(self, options, url="http://127.0.0.1:1", token="t"):
        text = options if isinstance(options, str) else json.dumps(options)
        (self.folder / "data" / "options.json").write_text(text)
        folders = [f"--{name}={self.folder / name}" for name in ("data", "config", "ssl")]
        own = ("--check", f"--user={os.geteuid()}", f"--supervisor={url}", "--wait=0")
        return subprocess.run(
            [sys.executable, str(APP / "start_agent.py"), *own, *folders],
            env=os.environ | {"SUPERVISOR_TOKEN": token, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    def written(self):
        return tomllib.loads((self.folder / "data/agent/federator.toml").read_text("utf-8"))


@pytest.fixture(scope="session")
def office(tmp_path_factory):
    """Where the keys of brokers 7 and 8 were made."""
    folder = tmp_path_factory.mktemp("keys") / "office"
    federator = [sys.executable, "-m", "federator", "keys"]
    subprocess.run([*federator, "init", folder], cwd=ROOT, check=True)
    for id_ in ("7", "8"):
        issue = [*federator, "issue", "--dir", folder, "--broker", id_]
        subprocess.run(issue, cwd=ROOT, check=True)
    return folder


@pytest.fixture
def home(tmp_path, office):
    return Home(tmp_path, office)


def can_be_used(made):
    """Whether there was nothing to complain of, but what is told of every plain connection."""
    lines = made.stderr.splitlines()
    return made.returncode == 0 and all("config.credentials_in_clear" in line for line in lines)


def test_the_manifest_is_as_home_assistant_documents_it():
    Repository.model_validate(read("repository.yaml"))

    assert MANIFEST.version == __version__
    assert MANIFEST.slug == APP.name
    assert MANIFEST.image is None  # then the Supervisor builds it, and needs
    assert (APP / "Dockerfile").is_file()


def test_it_is_for_the_processors_that_the_release_has_images_for():
    (platforms,) = re.findall(
        r"^PLATFORMS=(.+)$", (ROOT / "script/release/images").read_text(), re.M
    )
    names = {"linux/amd64": "amd64", "linux/arm64": "aarch64"}
    labels = (APP / "Dockerfile").read_text()

    assert sorted(MANIFEST.arch) == sorted(names[each] for each in platforms.split(","))
    assert f'io.hass.arch="{"|".join(MANIFEST.arch)}"' in labels


def test_every_option_has_a_type_a_name_and_a_description():
    told = Translations.model_validate(read("federator/translations/en.yaml"))
    required = {
        name
        for name, kind in MANIFEST.options_schema.items()
        if not (isinstance(kind, str) and kind.endswith("?"))
    }

    assert told.configuration.keys() == MANIFEST.options_schema.keys()
    assert told.network.keys() == MANIFEST.ports.keys()
    assert MANIFEST.options.keys() == required  # an optional one has no default, by the documents


def test_types_of_options_are_those_that_are_documented():
    for good in ("str", "str?", "int(0,9)", "list(a|b)", "match(^a$)", "password?"):
        assert ELEMENT.fullmatch(good)
    for bad in ("text", "int(0)", "list()", "password??", "str(1)"):
        assert not ELEMENT.fullmatch(bad)


def test_options_become_a_configuration_that_can_be_used(home):
    home.put_keys()

    with supervisor() as url:
        made = home.check(EXAMPLE, url)

    assert can_be_used(made), made.stderr
    assert made.stdout.startswith("broker 7 at mqtt://core-mosquitto:1883, federation fed, 2 nei")
    told = home.written()
    assert told["broker"]["name"] == "home 🏠"
    assert told["broker"]["username"] == "addons"
    password = Path(told["broker"]["password_file"])
    assert password.read_text() == SERVICE["password"] + "\n"
    assert stat.S_IMODE(password.stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(told["keys"]["agent_file"]).stat().st_mode) == 0o600
    assert told["links"]["dial"] == "out"  # nobody is told how to reach this broker
    assert told["rules"] == {"keep": EXAMPLE["keep"], "deny": EXAMPLE["deny"]}


def test_the_example_of_its_documentation_can_be_used(home):
    home.put_keys()
    blocks = re.findall(r"^ *```yaml\n(.*?)```$", DOCS, re.M | re.S)
    (example,) = (yaml.safe_load(each) for each in blocks if "broker_id" in each)

    with supervisor() as url:
        made = home.check(MANIFEST.options | example, url)

    assert can_be_used(made), made.stderr
    table = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.+?) \|", DOCS, re.M))))
    assert table == MANIFEST.options_schema.keys()


def test_defaults_and_an_id_are_enough_where_all_are_trusted(home):
    given = MANIFEST.options | {"broker_id": 7, "security": "open"}

    with supervisor() as url:
        made = home.check(given, url)

    assert can_be_used(made), made.stderr
    assert home.written()["home_assistant"] == {"discovery": True}


def test_keys_may_be_pasted_as_one_line(home):
    keys = {
        "agent_key": (home.office / "agent-7.key").read_text().replace("\n", " "),
        "federation_key": (home.office / "federation.pub").read_text().replace("\n", " "),
    }

    with supervisor() as url:
        made = home.check(EXAMPLE | keys, url)

    assert can_be_used(made), made.stderr


def test_another_broker_needs_no_supervisor(home):
    own = {
        "broker_url": "mqtt://192.168.1.5:1883", "broker_username": "f", "broker_password": "p",
        "reachable_at": "mqtt://home.example:1883", "security": "open",
    }  # fmt: skip

    made = home.check(EXAMPLE | own, token="")

    assert can_be_used(made), made.stderr
    assert "dial" not in home.written()["links"]
    assert home.written()["broker"]["advertise"] == own["reachable_at"]


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"broker_id": None}, "options: broker_id is missing"),
        ({"broker_id": "seven"}, "options: broker_id = 'seven': it should be a whole number"),
        ({"neighbours": ["site-1"]}, "options: neighbours[0] = 'site-1' has no scheme we know"),
        ({"neighbours": "site-1"}, "options: neighbours = 'site-1': it should be a list"),
        ({"neighbour": []}, "options: unknown key 'neighbour': did you mean neighbours"),
        ({"federation": "a/b"}, "options: federation = 'a/b': it should match"),
        ({"security": "closed"}, "options: security = 'closed': it should be 'signed'"),
        ({"links_password": "a\nb"}, "options: links_password holds a line break"),
        ({"broker_name": "\ud800"}, "options: broker_name = "),
        ({"federation": "other"}, "is of broker 7 in 'fed', this is broker 7 in 'other'"),
        ({"ca_file": "ca.pem"}, "options: ca_file = 'ca.pem': no "),
        ({"keep": ["a/#/b"]}, "options: keep[0] = "),
        ({"broker_username": "me"}, "options: broker_username without broker_url"),
        ({"links_username": None}, "a password without a username: add username"),
        ({"broker_url": "mqtt://b", "neighbours": ["mqtt://b"]}, "mqtt://b is already broker.url"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(home, changed, line):
    home.put_keys()

    with supervisor() as url:
        refused = home.check(EXAMPLE | changed, url)

    assert refused.returncode == 78
    assert refused.stderr.count("\n") == 1
    assert line in refused.stderr
    assert EXAMPLE["links_password"] not in refused.stderr


def test_a_key_that_is_missing_is_told_with_its_place(home):
    with supervisor() as url:
        refused = home.check(EXAMPLE, url)

    assert refused.returncode == 78
    assert refused.stderr.count("\n") == 1
    assert "agent-7.key, made by federator keys issue --broker 7, into the app's" in refused.stderr


def test_a_key_of_another_broker_is_refused(home):
    key = (home.office / "agent-8.key").read_text()
    home.put_keys()

    with supervisor() as url:
        refused = home.check(EXAMPLE | {"agent_key": key}, url)

    assert refused.returncode != 0
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"status": 400, "body": {"result": "error"}}, "status 400"),
        ({"body": {"result": "ok", "data": []}}, "no answer that can be read"),
    ],
)
def test_without_a_broker_the_line_says_which_app_to_install(home, answer, why):
    home.put_keys()

    with supervisor(**answer) as url:
        refused = home.check(EXAMPLE, url)

    assert refused.returncode == 78
    assert refused.stderr.count("\n") == 1
    assert f"knows of no MQTT broker ({why}): install and start the app Mosq" in refused.stderr


def test_options_that_are_no_json_and_a_supervisor_that_is_not_there_are_one_line_each(home):
    home.put_keys()

    for refused in (home.check("{"), home.check(EXAMPLE), home.check(EXAMPLE, token="")):
        assert refused.returncode == 78
        assert refused.stderr.count("\n") == 1


def test_what_is_packed_is_the_same_each_time_and_holds_what_the_dockerfile_copies(tmp_path):
    wheel = tmp_path / f"mqtt_federator-{__version__}-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    packed = []
    for folder in ("one", "two"):
        done = subprocess.run([PACK, wheel, tmp_path / folder], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        packed.append(Path(done.stdout.strip()))
    other = subprocess.run([PACK, tmp_path / "x.whl"], capture_output=True, text=True, check=False)

    assert packed[0].read_bytes() == packed[1].read_bytes()
    with zipfile.ZipFile(packed[0]) as archive:
        names = set(archive.namelist())
    copied = re.findall(r"^COPY (.+) \S+$", (APP / "Dockerfile").read_text(), re.M)
    wanted = " ".join(copied).replace("*", f"{__version__}-py3-none-any").split()
    assert {"repository.yaml", *(f"federator/{each}" for each in wanted)} <= names
    assert {"federator/config.yaml", "federator/DOCS.md", "federator/translations/en.yaml"} <= names
    assert other.returncode == 1
    assert other.stderr.count("\n") == 1
