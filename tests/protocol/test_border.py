from federator.protocol.border import Border
from federator.protocol.renames import Renames
from federator.protocol.rules import Denied, EdgeRules

RENAMES = Renames([("plant7/", "eu/plant7/")])


def border():
    return Border(
        EdgeRules(imports=["plant7/#", "all/#"], keep=["plant7/raw/#"]),
        Denied(["eu/+/secret", "all/secret"]),
        RENAMES,
    )


def test_edge_rules_speak_of_local_names_and_deny_of_the_federations():
    edge = border()

    assert edge.lets_out("eu/plant7/x")
    assert not edge.lets_out("eu/plant7/raw/x")
    assert not edge.lets_out("eu/plant7/secret")
    assert not edge.lets_out("plant7/x"), "nothing of ours is called that there"


def test_what_is_asked_for_passes_import_then_renames_then_deny():
    edge = border()

    assert edge.asked_for("plant7/+") == ("eu/plant7/+",)
    assert edge.asked_for("plant7/secret") == ()
    assert edge.asked_for("all/secret") == ()
    assert edge.asked_for("elsewhere/#") == ()


def test_a_filter_two_clients_filters_ask_for_stays_until_both_are_gone():
    edge = Border(renames=RENAMES)

    assert edge.change(["plant7/x"], []) == ({"eu/plant7/x"}, frozenset())
    assert edge.change(["+/x"], []) == ({"+/x"}, frozenset())
    assert edge.change([], ["plant7/x"]) == (frozenset(), frozenset())
    assert edge.change([], ["+/x"]) == (frozenset(), {"+/x", "eu/plant7/x"})


def test_why_a_topic_stays_is_told_by_the_rule_that_keeps_it():
    edge = border()

    assert edge.why_not("plant7/x") is None
    assert "rename" in (edge.why_not("eu/plant7/x") or "")
    assert "deny" in (edge.why_not("plant7/secret") or "")
    assert "[rules]" in (edge.why_not("plant7/raw/x") or "")
    assert edge.why_not("$SYS/x") is None
