"""The Grafana dashboard: every key is one of Grafana's schema, every query asks for what there is.

Grafana Labs generates Python types from the schema of each release; what they do not know they
leave out, and a value that is none of an enumeration they refuse.
"""

import json
from itertools import combinations
from pathlib import Path

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.test_alerts import check

FILE = Path(__file__).parents[1] / "deploy" / "grafana" / "dashboards" / "federator.json"
BOARD = json.loads(FILE.read_text("utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
OF_THE_SOURCE = {"titleFormat"}
"""Keys that the Prometheus data source reads in an annotation, and the schema leaves to it."""


def lost(written, understood, at=""):
    """Where ``understood`` lacks or changes something of ``written``."""
    if isinstance(written, dict) and isinstance(understood, dict):
        for key in written.keys() - OF_THE_SOURCE:
            if key not in understood:
                yield f"{at}.{key}"
            else:
                yield from lost(written[key], understood[key], f"{at}.{key}")
    elif isinstance(written, list) and isinstance(understood, list):
        if len(written) != len(understood):
            yield at
        for index, pair in enumerate(zip(written, understood, strict=False)):
            yield from lost(*pair, f"{at}[{index}]")
    elif written != understood:
        yield f"{at}: {written!r} is understood as {understood!r}"


def understood(board):
    """What Grafana's types make of ``board``."""
    plugins.register_default_plugins()
    return json.loads(JSONEncoder().encode(Dashboard.from_json(board)))


def test_grafana_knows_every_key_and_value():
    assert list(lost(BOARD, understood(BOARD))) == []


def test_a_key_that_grafana_does_not_know_would_be_found():
    for change in ({"titel": "x"}, {"panels": [{**PANELS[0], "options": {"colourMode": "value"}}]}):
        wrong = BOARD | change
        assert list(lost(wrong, understood(wrong)))


def test_queries_ask_for_metrics_and_labels_that_exist():
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    queries += [annotation["expr"] for annotation in BOARD["annotations"]["list"]]
    assert len(queries) > 40
    for query in queries:
        check(query)


def test_variables_ask_for_labels_that_exist():
    for variable in BOARD["templating"]["list"][1:]:
        check(variable["query"]["query"].removeprefix("label_values(").rpartition(",")[0])


def test_panels_stand_side_by_side_and_say_what_they_show():
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    for one, other in combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(places)
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
