"""Values that are wrong are refused before anything is made, and the line says what is wanted."""

import json

import jsonschema
import pytest
import yaml

from tests.helm.chart import CHART, refusal

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
ONE = {"id": 1, "name": "hall-1"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"security": "opne"}, "at '/security': value must be one of 'signed', 'sealed'"),
        ({"links": "star"}, "at '/links': value must be one of 'ring', 'line'"),
        ({"broker": []}, "additional properties 'broker' not allowed"),
        ({"brokers": []}, "at '/brokers': minItems: got 0, want 1"),
        ({"brokers": [{"id": 1}]}, "at '/brokers/0': missing property 'name'"),
        ({"brokers": [{**ONE, "id": "1"}]}, "at '/brokers/0/id': got string, want integer"),
        ({"brokers": [{**ONE, "id": -1}]}, "at '/brokers/0/id': minimum: got -1, want 0"),
        ({"brokers": [{**ONE, "name": "Hall 1"}]}, "at '/brokers/0/name': 'Hall 1' does not match"),
        ({"clients": {"users": ["agent"]}}, "at '/clients/users/0': 'not' failed"),
        ({"storage": {"size": "much"}}, "at '/storage/size': 'much' does not match pattern"),
        ({"gateway": {"names": []}}, "at '/gateway/names': minItems: got 0, want 1"),
        ({"updateStrategy": "Never"}, "at '/updateStrategy': value must be one of 'OnDelete'"),
        (
            {"brokers": [ONE, {"id": 1, "name": "hall-2"}]},
            "brokers: id 1 is that of hall-1 and of hall-2: give each broker its own",
        ),
        (
            {"brokers": [ONE, {"id": 2, "name": "hall-1"}]},
            "brokers: the name hall-1 is there twice: give each broker its own",
        ),
        (
            {"brokers": [{"id": 1, "name": "gateway-a"}]},
            "brokers: the name gateway-a is taken by another object of this chart",
        ),
        (
            {"brokers": [{**ONE, "neighbours": ["mqtt://x"]}]},
            "brokers: hall-1 has neighbours, which need links: named (links is ring)",
        ),
        (
            {"links": "named", "brokers": [{**ONE, "neighbours": ["hall-2"]}]},
            "brokers: the neighbour hall-2 of hall-1 is no broker of this list: correct the name",
        ),
        (
            {"links": "named", "brokers": [{**ONE, "neighbours": ["hall-1"]}]},
            "brokers: hall-1 is named as its own neighbour: name another one",
        ),
        ({"fullnameOverride": "a" * 41}, "at '/fullnameOverride'"),
    ],
)
def test_a_wrong_value_is_refused(values, said):
    assert said in refusal(values)


def test_what_the_chart_comes_with_is_what_its_schema_says():
    jsonschema.validate(yaml.safe_load((CHART / "values.yaml").read_text()), SCHEMA)


def test_every_value_of_the_schema_stands_in_values_yaml():
    def missing(schema, there, at=""):
        for key, below in schema.get("properties", {}).items():
            if key not in there:
                yield f"{at}{key}"
            elif isinstance(there[key], dict):
                yield from missing(below, there[key], f"{at}{key}.")

    found = list(missing(SCHEMA, yaml.safe_load((CHART / "values.yaml").read_text())))

    assert [each for each in found if not each.endswith((".requests", ".limits"))] == ["global"]
