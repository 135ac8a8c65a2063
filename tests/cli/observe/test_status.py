from federator.cli.observe.status import as_text

BROKEN = {
    "bridges": ["vm.forgotten from 10.0.0.7"],
    "broken": {"a/b": 3, "c": 1},
    "broken_total": 2,
    "dropped": 4,
}


def test_a_loop_is_told_with_its_bridge_and_what_to_do():
    text = "\n".join(as_text({"ready": True, "loops": BROKEN}))

    assert "bridges beside us: vm.forgotten from 10.0.0.7" in text
    assert "LOOP BROKEN: 2 topics come back, such as a/b, c" in text
    assert "4 copies stopped. Remove the bridge" in text


def test_without_bridges_nothing_is_said_of_them():
    quiet = {"bridges": [], "broken": {}, "broken_total": 0, "dropped": 0}

    assert "bridge" not in "\n".join(as_text({"ready": True, "loops": quiet}))


def test_rules_that_there_are_are_told():
    rules = {"import": ["#"], "export": ["a/#"], "deny": ["b"], "rename": ["x/ -> y/"]}

    text = "\n".join(as_text({"ready": True, "rules": rules}))

    assert "rules: import #, export a/#, deny b, rename x/ -> y/; " in text


def test_an_open_federation_is_told_to_be_open():
    text = "\n".join(as_text({"ready": True, "security": {"mode": "open"}}))

    assert "security: OPEN: whoever may publish on the brokers is believed" in text


def test_the_manner_the_certificates_end_and_what_was_refused_are_told():
    security = {"mode": "signed", "expires_s": 1_800_000_000, "refused": 3}

    text = "\n".join(as_text({"ready": True, "security": security}))

    assert "security: signed, certificate until 2027-01-15, 3 refused: see trust" in text


def test_links_over_datagrams_are_told_with_what_they_lose():
    out, came = {"parts": 100, "repairs": 42, "given_back": 3}, {"rebuilt_parts": 7}
    told = {"used": True, "rtt_ms": 100.2, "lost_ppm_out": 20_000, "lost_ppm_in": 0}
    links = [
        {"neighbour": 2, "state": "up", "datagrams": {**told, "out": out, "in": came}},
        {"neighbour": 3, "state": "up", "datagrams": None},
    ]

    lines = as_text({"ready": True, "links": links, "datagrams": {"port": 18_840}})

    at = lines.index("links over datagrams:")
    assert " ".join(lines[at + 2].split()) == "2 yes 100.2 2.00 % 0.00 % 100 42 3 7"
    assert lines[at + 3] == ""


def test_without_datagrams_nothing_is_said_of_them():
    links = [{"neighbour": 2, "state": "up"}]

    assert "datagrams" not in "\n".join(as_text({"ready": True, "links": links}))


def test_unknown_subscriptions_are_told_with_their_cost_and_what_to_do():
    found = {
        "widened": True,
        "unknown": 3,
        "unknown_clients": 2,
        "unheard_before": "2030-01-01T09:12:03+00:00",
        "asks_for": ["#"],
    }
    cost = {"in_doubt": 812, "in_doubt_bytes": 90_000}

    text = "\n".join(as_text({"discovery": found, "counters": {"data": cost}}))

    assert "UNKNOWN: 3 subscriptions, of clients connected before 2030-01-01T09:12:03" in text
    assert "asks for #: 812 publications in frames of 90000 bytes came for nobody known" in text
    assert "Reconnect those clients" in text


def test_nothing_is_said_of_subscriptions_while_all_are_known():
    assert "UNKNOWN" not in "\n".join(as_text({"discovery": {"unknown": 0}}))


def test_the_fullest_link_comes_first_and_each_says_what_it_carries():
    links = [
        {"neighbour": 2, "state": "up", "rate": 1_250, "capacity": None, "load": None},
        {"neighbour": 3, "state": "up", "rate": 1e6, "capacity": 2e6, "load": 0.5},
        {"neighbour": 4, "state": "up", "rate": 1.9e6, "capacity": 2e6, "load": 0.95},
        {"neighbour": 5, "state": "down", "rate": None, "capacity": 64_000, "load": None},
    ]

    lines = as_text({"ready": True, "links": links})

    at = lines.index("links: 3 of 4 up")
    told = [" ".join(line.split()) for line in lines[at + 2 : at + 6]]
    assert told == [
        "5 - down - - -",
        "4 - up - - 95 % of 2 Mbit/s",
        "3 - up - - 50 % of 2 Mbit/s",
        "2 - up - - 1.25 kbit/s",
    ]


def test_without_a_capacity_nothing_is_said_of_loads():
    links = [{"neighbour": 2, "state": "up", "rate": 1_250, "capacity": None, "load": None}]

    assert "load" not in "\n".join(as_text({"ready": True, "links": links}))


def test_the_heaviest_flows_are_told_in_full_with_brokers_by_name():
    flow = {"filters": ["a/#", "b"], "destinations": [2], "rate": 64_000, "error": 1_500}
    flow |= {"publications": 12.0, "planned": True}
    status = {
        "ready": True,
        "names": {"2": "hall"},
        "flows": {"heaviest": [flow], "rest": 800},
    }

    lines = as_text(status, verbose=True)

    at = lines.index("flows: 1, others together 800 bit/s")
    assert " ".join(lines[at + 2].split()) == "a/# b hall (2) 64 kbit/s 1.5 kbit/s 12.0 yes"


def test_what_a_plan_keeps_or_has_collected_is_told_and_what_hinders_it():
    edge = {"steerer": "s", "keeps": "ns", "collects": [], "why_not": ""}
    hub = {"steerer": "s", "keeps": None, "collects": ["city/#"], "why_not": "[rules] placed"}
    counters = {"data": {"kept": 7}}

    quiet = "\n".join(as_text({"ready": True, "steering": {"keeps": None, "collects": []}}))
    told = "\n".join(as_text({"ready": True, "steering": edge, "counters": counters}))
    said = "\n".join(as_text({"ready": True, "steering": hub}, verbose=True))

    assert "kept at the edge: 7 publications, by policy ns" in told
    assert "collects: city/#, but what is kept at edges" in said
    assert "a steerer may not place topics here: [rules] placed" in said
    assert not any(word in quiet for word in ("kept at", "collects", "may not place"))


def test_a_hub_says_how_much_was_brought_in_vain():
    sides = {
        "mesh": {"publications": 5, "bytes": 1_000, "in_vain": 1, "bytes_in_vain": 25},
        "leaves": {"publications": 0, "bytes": 0, "in_vain": 0, "bytes_in_vain": 0},
    }
    leaves = [{"id": 417, "up": True}, {"id": 418, "up": False}]

    lines = as_text({"ready": True, "hub": {"filters_asked": 3, **sides}, "leaves": leaves})

    at = lines.index("leaves: 1 of 2 up")
    assert lines[at + 1 : at + 3] == [
        "  brought by the mesh: 1000 bytes, 2.5% of them in vain",
        "  brought by leaves: 0 bytes, 0.0% of them in vain",
    ]


def test_links_straight_to_agents_are_told_with_why_one_is_not_used():
    told = {"comes_to_us": True, "unconfirmed": 3, "last_error": None, "address": "10.0.0.2:18840"}
    refused = {"used": False, "last_error": "nobody there", "address": None}
    links = [
        {"neighbour": 2, "state": "up", "direct": {**told, "used": True}},
        {"neighbour": 3, "state": "up", "direct": told | refused},
        {"neighbour": 4, "state": "up", "direct": None},
    ]

    lines = as_text({"ready": True, "links": links, "direct": {"port": 18_840}})

    at = lines.index("links straight to agents:")
    assert " ".join(lines[at + 2].split()) == "2 yes yes 10.0.0.2:18840 3 -"
    assert " ".join(lines[at + 3].split()) == "3 no yes - 3 nobody there"
    assert lines[at + 4] == ""
