from federator.protocol.filters.renames import Renames
from federator.protocol.policy.broker_policy import BrokerPolicy
from federator.protocol.policy.rules import Denied, EdgeRules

RENAMES = Renames([("plant7/", "eu/plant7/")])


def policy():
    return BrokerPolicy(
        EdgeRules(imports=["plant7/#", "all/#"], keep=["plant7/raw/#"]),
        Denied(["eu/+/secret", "all/secret"]),
        RENAMES,
    )


def test_edge_rules_speak_of_local_names_and_deny_of_the_federations():
    edge = policy()

    assert edge.allows_export("eu/plant7/x")
    assert not edge.allows_export("eu/plant7/raw/x")
    assert not edge.allows_export("eu/plant7/secret")
    assert not edge.allows_export("plant7/x"), "nothing of ours is called that there"


def test_what_is_asked_for_passes_import_then_renames_then_deny():
    edge = policy()

    assert edge.exported_filters("plant7/+") == ("eu/plant7/+",)
    assert edge.exported_filters("plant7/secret") == ()
    assert edge.exported_filters("all/secret") == ()
    assert edge.exported_filters("elsewhere/#") == ()


def test_a_filter_two_clients_filters_ask_for_stays_until_both_are_gone():
    edge = BrokerPolicy(renames=RENAMES)

    assert edge.change(["plant7/x"], []) == ({"eu/plant7/x"}, frozenset())
    assert edge.change(["+/x"], []) == ({"+/x"}, frozenset())
    assert edge.change([], ["plant7/x"]) == (frozenset(), frozenset())
    assert edge.change([], ["+/x"]) == (frozenset(), {"+/x", "eu/plant7/x"})


def test_other_rules_change_what_the_federation_hears_of_all_that_clients_want():
    edge = BrokerPolicy(EdgeRules(imports=["a/#"]), Denied(["a/no"]), RENAMES)
    wanted = {"a/b", "a/no", "c", "plant7/x", "+/x"}
    edge.change(wanted, [])

    change = edge.follow(EdgeRules(imports=["plant7/#", "+/x"], keep=["k"]), Denied(), wanted)

    assert change == ({"eu/plant7/x", "+/x"}, {"a/b"})
    assert edge.not_imported == 3
    assert (edge.allows_export("k"), edge.allows_export("a/no")) == (False, True)
    assert edge.change([], ["plant7/x"]) == (frozenset(), frozenset()), "another asks for it, too"
    assert edge.follow(edge.edge, edge.denied, wanted - {"plant7/x"}) == (frozenset(), frozenset())


def test_why_a_topic_stays_is_told_by_the_rule_that_keeps_it():
    edge = policy()

    assert edge.why_not("plant7/x") is None
    assert "rename" in (edge.why_not("eu/plant7/x") or "")
    assert "deny" in (edge.why_not("plant7/secret") or "")
    assert "[rules]" in (edge.why_not("plant7/raw/x") or "")
    assert edge.why_not("$SYS/x") is None
