import pytest

from federator.protocol.bounded_cache import BoundedCache
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding.explanation import explain
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.policy.rules import Denied, EdgeRules, LinkRules, conflict, in_text

ELSEWHERE = FilterRoute(local=False, wanted=True, next_hops=(2,))


def test_without_rules_everything_enters_the_federation():
    rules = EdgeRules()

    assert rules.allows_export("a/b")
    assert rules.announces("a/#")
    assert rules.announces("+/x")


@pytest.mark.parametrize(
    ("topic", "leaves"), [("a/b", True), ("a/c", False), ("a/c/d", True), ("b", False)]
)
def test_what_leaves_matches_an_export_and_no_keep(topic, leaves):
    assert EdgeRules(exports=["a/#"], keep=["a/c"]).allows_export(topic) == leaves


@pytest.mark.parametrize(
    ("filter", "announced"), [("a/b", True), ("a/#", True), ("#", False), ("+/b", False)]
)
def test_only_filters_inside_an_import_are_announced(filter, announced):
    assert EdgeRules(imports=["a/#"]).announces(filter) == announced


def test_a_kept_topic_is_routed_nowhere_and_explained_so():
    forwarder = Forwarder(allows_export=EdgeRules(keep=["a/c"]).allows_export)
    forwarder.set_route("a/+", ELSEWHERE)

    assert forwarder.route_topic("a/c") is None
    assert forwarder.route_topic("a/b") is not None
    assert explain(forwarder, "a/c").next_hops == ()
    assert "[rules]" in explain(forwarder, "a/c").why
    assert explain(forwarder, "a/b").next_hops == (2,)


def test_what_passes_through_from_others_is_not_kept():
    forwarder = Forwarder(allows_export=EdgeRules(exports=[]).allows_export)
    forwarder.set_route("a/c", ELSEWHERE)
    keys = Forwarder()
    keys.set_route("a/c", ELSEWHERE)
    key = keys.route_topic("a/c").keys

    assert forwarder.route_frame(key, 1, sender=3, origin=3).sends == ((2, b"\x01"),)


@pytest.mark.parametrize(
    ("topic", "enters", "leaves"),
    [
        ("a/b", True, False),
        ("b/c", False, True),
        ("a/secret", False, False),
        ("b/secret", False, False),
    ],
)
def test_a_link_has_a_rule_for_each_direction_and_deny_for_both(topic, enters, leaves):
    rules = LinkRules(imports=["a/#"], exports=["b/#"], deny=["+/secret"])

    assert (rules.allows_import(topic), rules.allows_export(topic)) == (enters, leaves)
    assert not rules.stops_nothing


def test_a_link_without_rules_stops_nothing():
    assert LinkRules().stops_nothing
    assert LinkRules(imports=["a", "#"]).stops_nothing
    assert not LinkRules(deny=["a"]).stops_nothing


def test_what_is_denied_is_neither_routed_nor_asked_for():
    denied = Denied(["secret/#"])

    assert denied.topic("secret/x")
    assert not denied.topic("public/x")
    assert denied.filter("secret/+")
    assert not denied.filter("+/x"), "part of it is allowed"


def test_answers_about_topics_are_remembered_within_a_bound():
    asked = []
    remembered = BoundedCache(in_text(lambda topic: asked.append(topic) is None), answers_max=2)

    answers = [remembered(topic) for topic in (b"a", b"a", b"b", b"c", b"a")]

    assert all(answers)
    assert asked == ["a", "b", "c", "a"]
    assert len(remembered._answers) <= 2
    assert not remembered(b"\xff"), "no topic at all"


@pytest.mark.parametrize(
    ("imports", "exports", "found"),
    [
        (["#"], ["b/#", "+/b"], None),
        (["a/b"], ["#"], ("import", 0, "a/#")),
        (["#"], ["c", "a/+"], ("export", 1, "a/#")),
        (["a"], ["#"], ("import", 0, "a/#")),
    ],
)
def test_a_rule_that_can_never_apply_is_found(imports, exports, found):
    assert conflict(imports=imports, exports=exports, against=["a/#"]) == found
