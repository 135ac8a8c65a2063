import pytest

from federator.protocol.bounded_cache import BoundedCache
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding.explanation import explain
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.policy.rules import EdgeRules, conflict, in_text

ELSEWHERE = FilterRoute(local=False, wanted=True, next_hops=(2,))


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
