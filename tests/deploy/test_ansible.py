"""deploy/ansible: what can be said of the role without Ansible and a host (script/test-ansible)."""

import json
import tomllib
from pathlib import Path

import jinja2
import yaml

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "deploy" / "ansible" / "roles" / "federator"
REQUIRED = {"federator_deb", "federator_broker_id"}
SECRETS = {"password", "secrets", "users"}


def read(path):
    return yaml.safe_load((ROLE / path).read_text())


def options():
    return read("meta/argument_specs.yml")["argument_specs"]["main"]["options"]


def as_toml(document):
    """What the template makes of a document, with the filters of Ansible's that it uses."""
    rendering = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
    rendering.filters["to_json"] = json.dumps
    rendering.filters["combine"] = lambda one, other: {**one, **other}
    rendering.tests["match"] = lambda text, _: str(text).replace("_", "").isalnum()
    template = rendering.from_string((ROLE / "templates" / "toml.j2").read_text())
    return tomllib.loads(template.render(federator_document=document, federator_schema="agent"))


def test_every_variable_is_described_and_has_the_default_that_is_told():
    defaults, described = read("defaults/main.yml"), options()

    assert defaults.keys() | REQUIRED == described.keys()
    told = {name: each["default"] for name, each in described.items() if "default" in each}
    assert told == {name: defaults[name] for name in told}


def test_no_variable_with_a_secret_is_logged():
    for name, each in options().items():
        assert each.get("no_log", False) is (name.rpartition("_")[2] in SECRETS), name


def test_a_document_becomes_the_toml_that_means_the_same():
    document = {
        "federation": "fed",
        "neighbours": [{"url": "mqtt://a", "import": ["a/#", 'b"\\ä']}, {"url": "mqtt://b"}],
        "broker": {"id": 1, "name": "hall [3] #4", "priority": -2},
        "routing": {"filters": [{"filter": "alarms/#", "strategy": "shortest-path"}]},
        "rules": {"deny": [], "placed": True},
        "log": {"level": "debug", "a key": 1.5},
    }

    assert as_toml(document) == document


def test_what_is_not_set_is_not_written():
    assert as_toml({"broker": {"id": 1, "name": None}, "hub": None}) == {"broker": {"id": 1}}


def test_the_example_names_only_variables_of_the_role_and_of_the_vault():
    inventory = ROOT / "deploy" / "ansible" / "inventory"
    for path in (inventory / "group_vars").rglob("*.yml"):
        assert yaml.safe_load(path.read_text()).keys() <= options().keys(), path
