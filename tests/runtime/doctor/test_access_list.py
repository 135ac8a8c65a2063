"""What an acl_file says, line by line."""

import re
from pathlib import Path

from federator.config.reading import load
from federator.runtime.doctor.access_list import access_list

ROOT = Path(__file__).parents[3]
NAMES = {
    "peers": ["federator-peer"],
    "outbound": {},
    "gateways": ["g"],
    "collectors": ["c"],
    "steerers": ["s"],
    "consoles": ["co"],
}


def lines_for(folder, *toml, agent="federator", **names):
    path = folder / "federator.toml"
    path.write_text("\n".join(['[broker]\nid = 1\nurl = "mqtt://b"', *toml, ""]))
    return access_list(load(path, {}), agent=agent, **{**NAMES, **names})


def of(lines, user):
    at = lines.index(f"user {user}") + 1
    end = lines.index("", at) if "" in lines[at:] else len(lines)
    return lines[at:end]


def test_the_shipped_file_is_what_the_verb_prints(tmp_path):
    others = ("gateway", "collector", "steerer", "console")
    lines = lines_for(tmp_path, **{f"{each}s": [f"federator-{each}"] for each in others})

    assert (ROOT / "deploy/systemd/acl").read_text() == "\n".join(lines) + "\n"


def test_an_outbound_agent_hears_its_own_outbox_and_no_other(tmp_path):
    lines = lines_for(tmp_path, outbound={"site-7": 7, "site-8": 8})

    seven, peer = of(lines, "site-7"), of(lines, "federator-peer")
    assert set(seven) - set(peer) == {
        "topic read $fed/fed/outbox/7/+",
        "topic write $fed/fed/outbox/7/doctor",
    }
    assert set(peer) < set(seven)
    assert [line for line in peer if " read" in line] == []
    assert "topic write $fed/fed/outbox/+/+" in of(lines, "federator")


def test_an_agent_marks_what_its_own_clients_said_as_gateways_do(tmp_path):
    assert "topic readwrite $fed/fed/mark" in of(lines_for(tmp_path), "federator")


def test_a_steerer_hears_loads_and_tells_plans_and_the_agent_hears_these(tmp_path):
    lines = lines_for(tmp_path)

    assert of(lines, "s") == [
        "topic read $fed/fed/guide",
        "topic read $fed/fed/load",
        "topic readwrite $fed/fed/plan",
    ]
    assert "topic read $fed/fed/plan" in of(lines, "federator")
    assert "topic write $fed/fed/load" in of(lines, "federator")


def test_a_console_asks_and_orders_and_the_agent_hears_and_answers(tmp_path):
    lines = lines_for(tmp_path)

    asked = {"page": "paged/+", "trace": "traced/+"}
    for question, answer in asked.items():
        assert f"topic write $fed/fed/{question}" in of(lines, "co")
        assert f"topic read $fed/fed/{answer}" in of(lines, "co")
    assert "topic read $fed/fed/page" in of(lines, "federator")
    assert "topic write $fed/fed/paged/+" in of(lines, "federator")
    assert "topic read #" not in of(lines, "co")


def test_every_topic_of_ours_is_named_in_one_place():
    """Else a new one would be forgotten in ACLs."""
    named = {"protocol/messages/topics.py"}
    shown = {"cli/observe/tap.py"}
    makes = re.compile(r'f"\$fed/\{')
    found = {
        str(path.relative_to(ROOT / "federator"))
        for path in (ROOT / "federator").rglob("*.py")
        if makes.search(path.read_text())
    }

    assert found == named | shown


def test_peers_only_speak_and_nobody_but_the_agent_reads_the_log(tmp_path):
    lines = lines_for(tmp_path)

    peers = of(lines, "federator-peer")
    peers.remove("topic write $SYS/broker/connection/+/state")
    assert all(line.startswith("topic write $fed/fed/") for line in peers)
    for allowed in (peers, of(lines, "g"), of(lines, "c")):
        assert not [line for line in allowed if "$SYS" in line or line.endswith("#")]
    assert "topic read $SYS/broker/log/M/subscribe" in of(lines, "federator")


def test_nobody_may_do_anything_below_fed_by_a_pattern_or_without_a_name(tmp_path):
    lines = lines_for(tmp_path)

    before_users = lines[: lines.index("user federator")]
    rules = [line for line in before_users if line and not line.startswith("#")]
    assert rules == ["pattern readwrite #"]


def test_one_user_with_two_parts_has_the_rights_of_both(tmp_path):
    lines = lines_for(tmp_path, peers=["federator"])

    assert lines.count("user federator") == 1
    assert "topic readwrite $fed/fed/hello" in of(lines, "federator")
    assert "# For the agent of this broker and agents of neighbours:" in lines


def test_what_may_not_cross_the_edge_is_not_the_agents(tmp_path):
    lines = lines_for(tmp_path, '[rules]\nimport = ["a/#", "c"]\nexport = ["a/b", "d/+"]')

    clients = [line for line in of(lines, "federator") if "$" not in line]
    assert clients == [
        "topic readwrite a/#",
        "topic readwrite c",
        "topic readwrite d/+",
        "topic readwrite federator-doctor/+",
    ]


def test_other_federations_and_ids_have_other_topics(tmp_path):
    path = tmp_path / "other.toml"
    path.write_text('federation = "plant"\n[broker]\nid = 7\nurl = "mqtt://b"\n')

    lines = access_list(load(path, {}), agent="a", **NAMES)

    assert "topic readwrite $fed/plant/delivered/7" in lines
    assert not [line for line in lines if "$fed/fed/" in line]
