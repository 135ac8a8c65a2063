"""What a page of an agent costs is bounded by what it lists, not by what there is."""

from types import SimpleNamespace

import pytest

from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding.trees import TreeTable
from federator.protocol.parameters import Strategy
from federator.protocol.routing_table import TableRow
from federator.runtime.observability import routes_view

MANY = 3 * routes_view.LISTED_MAX


@pytest.fixture
def asked(monkeypatch):
    """The filters whose rows were made; each has a row for each of many brokers."""
    filters = []

    def table_of(node, filter):
        filters.append(filter)
        return [TableRow(filter, Strategy.SHORTEST_PATH, to, None, None) for to in range(MANY)]

    monkeypatch.setattr(routes_view, "table_of", table_of)
    return filters


@pytest.fixture
def view():
    states = {f"f/{number}": SimpleNamespace(brokers=range(MANY)) for number in range(MANY)}
    meshes = SimpleNamespace(states={})
    own = SimpleNamespace(seq=1, filters=(), priority=0)
    node = SimpleNamespace(
        meshes=meshes,
        topic_routing=SimpleNamespace(states=states),
        announcements=SimpleNamespace(routes={}, own=own),
    )
    forwarder = SimpleNamespace(
        matching=lambda topic: dict.fromkeys(states, FilterRoute(True, True, ())),
        allows_export=lambda topic: True,
        next_hop_to=None,
        route_topic=lambda topic: None,
        trees=TreeTable(),
    )
    return routes_view.RoutesView(
        node,
        policy=SimpleNamespace(
            renames=SimpleNamespace(outward=lambda topic: topic), why_not=lambda topic: None
        ),
        link_policies=SimpleNamespace(rules_of=None),
        forwarder=forwarder,
        sharing=SimpleNamespace(explain=lambda topic: []),
    )


def test_no_more_rows_are_made_than_a_page_lists(view, asked):
    assert len(view.routes()) == routes_view.LISTED_MAX
    assert len(asked) == 1
    status = view.status()
    assert len(status["destinations"]) == routes_view.LISTED_MAX
    assert status["destinations_total"] == MANY * MANY
    assert len(asked) == 2


def test_of_a_topic_that_very_many_filters_match_some_are_explained(view, asked):
    explained = view.explain("t")["filters"]

    assert len(explained) == len(asked) == routes_view.EXPLAINED_MAX
    assert all(len(each["ways"]) == routes_view.EXPLAINED_MAX for each in explained)
