"""The JSON Schemas that editors read: current, valid, and of one mind with what judges for us."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from federator.config.reference import DAEMONS
from federator.config.schemas import schema, schema_file

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "agent": ["deploy/systemd/federator.toml"],
    "gateway": ["deploy/systemd/gateway.toml", "deploy/docker/gateway.toml"],
    "collector": ["deploy/systemd/collector.toml", "deploy/docker/collector.toml"],
    "steerer": ["deploy/systemd/steer.toml"],
    "console": ["deploy/systemd/console.toml", "deploy/docker/console.toml"],
}
WELL = "[broker]\nid = 1\nurl = 'mqtt://h'\n"
TAPLO = Path(sys.executable).parent / "taplo"


def errors(daemon, text):
    return [
        each.message
        for each in Draft202012Validator(schema(daemon)).iter_errors(tomllib.loads(text))
    ]


@pytest.mark.parametrize("daemon", DAEMONS)
def test_the_file_for_editors_is_current_and_a_schema(daemon):
    """Write it again with `federator check-config --schema DAEMON`, by way of another file."""
    kept = json.loads(schema_file(daemon).read_text("utf-8"))

    Draft202012Validator.check_schema(kept)
    assert kept == schema(daemon)


@pytest.mark.parametrize("daemon", DAEMONS)
def test_every_key_that_the_reference_tells_of_is_described(daemon):
    made = schema(daemon)
    tables = [made, *made["$defs"].values()]
    keys = [key for table in tables for key in table.get("properties", {}).values()]

    assert len(keys) > 20
    # What is a table, or a list of them, says itself what it is for.
    assert [each for each in keys if "description" not in each and "$ref" not in str(each)] == []


@pytest.mark.parametrize(
    ("daemon", "name"), [(daemon, name) for daemon, names in EXAMPLES.items() for name in names]
)
def test_shipped_configurations_are_valid(daemon, name):
    text = (ROOT / name).read_text("utf-8")
    lacks = [each for each in errors(daemon, text) if "is a required property" not in each]

    assert lacks == []  # what containers lack comes from their environment


@pytest.mark.parametrize("daemon", DAEMONS)
def test_an_installed_configuration_names_the_schema_that_the_package_brings(daemon):
    (name, *_) = EXAMPLES[daemon]
    first = (ROOT / name).read_text("utf-8").splitlines()[0]

    assert first == f"#:schema /usr/lib/federator/federator/config/schemas/{daemon}.json"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (WELL, None),
        (f"{WELL}[[neighbours]]\nurl = 'mqtt://i'\ncapacity = '2 Mbit/s'\n", None),
        (f"{WELL}idd = 2\n", "idd"),
        (WELL.replace("1", "'one'"), "one"),
        (f"security = 'none'\n{WELL}", "none"),
    ],
)
def test_an_editor_finds_what_is_wrong_by_the_first_line_alone(text, wrong, tmp_path):
    """As taplo, which Even Better TOML is made of, reads it."""
    file = tmp_path / "federator.toml"
    file.write_text(f"#:schema {schema_file('agent')}\n{text}")

    judged = subprocess.run(
        [TAPLO, "lint", file], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (judged.returncode == 0) == (wrong is None), judged.stderr
    assert wrong is None or wrong in judged.stderr
