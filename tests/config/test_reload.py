"""What differs between two configurations, and what of it a reload takes up."""

import pytest

from federator.config.all_brokers.collector import CollectorSettings
from federator.config.gateway import GatewaySettings
from federator.config.reload import differences, merged, taken_by_reload
from federator.config.section import Takes
from federator.config.settings import Settings
from federator.config.validation import validated
from federator.errors import ConfigError

ONE, TWO = "mqtt://one:1883", "mqtt://two:1883"


def settings(*neighbours, **sections):
    broker = {"id": 1, "url": "mqtt://127.0.0.1"}
    values = {"security": "open", "broker": broker, "neighbours": neighbours} | sections
    return validated(Settings, values)


def told(old, new):
    return {str(each): each.takes is Takes.RELOAD for each in differences(old, new)}


def test_keys_that_differ_are_named_with_both_values_and_what_they_take():
    old = settings(rules={"deny": ["a/#"]})
    new = settings(
        rules={"deny": [], "import": ["b/#", "c"]},
        links={"cost": "delay", "dial_back": False},
        log={"level": "debug", "format": "json"},
        mesh={"redundancy": 3},
    )

    assert told(old, new) == {
        "links.cost: hops -> delay": True,
        "links.dial_back: true -> false": False,
        "mesh.redundancy: 2 -> 3": False,
        "rules.import: [#] -> [b/#, c]": True,
        "rules.deny: [a/#] -> none": True,
        "log.format: console -> json": False,
        "log.level: info -> debug": True,
    }


def test_neighbours_are_told_apart_by_their_urls():
    old = settings({"url": ONE, "id": 2, "cost": 5}, {"url": TWO})
    new = settings({"url": "mqtt://three"}, {"url": ONE, "id": 2, "export": ["a/#"]})

    assert told(old, new) == {
        f"neighbours[{TWO}]: named -> not named": True,
        "neighbours[mqtt://three]: not named -> named": True,
        f"neighbours[{ONE}].cost: 5 -> none": True,
        f"neighbours[{ONE}].export: [#] -> [a/#]": True,
    }
    assert merged(old, new) == new
    assert told(old, settings({"url": TWO}, {"url": ONE, "id": 2, "cost": 5})) == {}


def test_rules_of_a_leaf_change_at_once_and_leaves_come_and_go_by_a_restart():
    old = settings(leaves=[{"id": 11}, {"id": 12, "deny": ["a"]}, {"id": 13}])
    new = settings(leaves=[{"id": 14, "deny": ["b"]}, {"id": 12, "url": ONE}, {"id": 11}])

    followed = merged(old, new)

    assert told(old, new) == {
        "leaves[13]: named -> not named": False,
        "leaves[14]: not named -> named": False,
        f"leaves[12].url: none -> {ONE}": False,
        "leaves[12].deny: [a] -> none": True,
    }
    assert [(leaf.id, leaf.url, leaf.deny) for leaf in followed.leaves] == [
        (11, None, ()),
        (12, None, ()),
        (13, None, ()),
    ]
    assert set(told(followed, new).values()) == {False}
    assert merged(settings(), new).leaves == ()


def test_a_secret_is_never_shown():
    old = settings({"url": ONE, "username": "u", "password": "old secret"})
    new = settings({"url": ONE, "username": "u", "password": "new secret"})

    assert list(told(old, new)) == [f"neighbours[{ONE}].password: a secret -> a secret"]


def test_what_takes_a_restart_stays_as_it_was_and_is_told_until_then():
    old = settings({"url": ONE, "id": 2})
    new = settings(
        {"url": ONE, "id": 2, "cost": 4, "transport": "tcp"},
        {"url": TWO, "id": 3, "transport": "tcp"},
        mesh={"redundancy": 3},
        rules={"keep": ["a"], "rename": [{"local": "a/", "federation": "b/"}]},
    )

    followed = merged(old, new)

    assert [(each.cost, each.transport) for each in followed.neighbours] == [
        (4, None),
        (None, None),
    ]
    assert (followed.mesh, followed.rules.keep, followed.rules.rename) == (old.mesh, ("a",), ())
    assert told(followed, new) == {
        f"neighbours[{ONE}].transport: none -> tcp": False,
        f"neighbours[{TWO}].transport: none -> tcp": False,
        "mesh.redundancy: 2 -> 3": False,
        "rules.rename: none -> [a table]": False,
    }


def test_what_agrees_only_after_a_restart_is_refused():
    old = settings(links={"allow_plaintext": False})
    new = settings({"url": ONE})

    with pytest.raises(ConfigError, match=r"wait for a restart.*mqtt://one:1883 is plaintext"):
        merged(old, new)


def test_a_long_list_is_told_in_short():
    (change,) = differences(
        settings(), settings(rules={"keep": [f"topic/{i}" for i in range(999)]})
    )

    assert len(str(change)) < 120


def test_every_daemon_says_what_a_reload_takes_up():
    assert list(taken_by_reload(Settings)) == [
        "neighbours but proxy, proxy_username, proxy_password_file, transport, dial",
        "leaves.import",
        "leaves.export",
        "leaves.deny",
        "links.cost",
        "rules but rename",
        "log.level",
    ]
    assert list(taken_by_reload(GatewaySettings)) == ["log.level"]
    assert list(taken_by_reload(CollectorSettings)) == ["log.level"]
