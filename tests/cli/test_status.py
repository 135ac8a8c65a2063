from federator.cli.status import as_text

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
