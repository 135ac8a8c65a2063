import pytest

from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding import Forwarder
from federator.protocol.rules import EdgeRules

ELSEWHERE = FilterRoute(local=False, wanted=True, next_hops=(2,))


def test_without_rules_everything_enters_the_federation():
    rules = EdgeRules()

    assert rules.lets_out("a/b")
    assert rules.announces("a/#")
    assert rules.announces("+/x")


@pytest.mark.parametrize(
    ("topic", "leaves"), [("a/b", True), ("a/c", False), ("a/c/d", True), ("b", False)]
)
def test_what_leaves_matches_an_export_and_no_keep(topic, leaves):
    assert EdgeRules(exports=["a/#"], keep=["a/c"]).lets_out(topic) == leaves


@pytest.mark.parametrize(
    ("filter", "announced"), [("a/b", True), ("a/#", True), ("#", False), ("+/b", False)]
)
def test_only_filters_inside_an_import_are_announced(filter, announced):
    assert EdgeRules(imports=["a/#"]).announces(filter) == announced


def test_a_kept_topic_is_routed_nowhere_and_explained_so():
    forwarder = Forwarder(lets_out=EdgeRules(keep=["a/c"]).lets_out)
    forwarder.set_route("a/+", ELSEWHERE)

    assert forwarder.route_topic("a/c") is None
    assert forwarder.route_topic("a/b") is not None
    assert forwarder.explain("a/c").next_hops == ()
    assert "[rules]" in forwarder.explain("a/c").why
    assert forwarder.explain("a/b").next_hops == (2,)


def test_what_passes_through_from_others_is_not_kept():
    forwarder = Forwarder(lets_out=EdgeRules(exports=[]).lets_out)
    forwarder.set_route("a/c", ELSEWHERE)
    keys = Forwarder()
    keys.set_route("a/c", ELSEWHERE)
    key = keys.route_topic("a/c").keys

    assert forwarder.route_frame(key, 1, sender=3, origin=3).sends == ((2, b"\x01"),)
