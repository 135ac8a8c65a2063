"""A gateway's configuration: what it says. Mistakes are in bad_gateways.txt."""

from federator.config.reading import load_gateway

GOOD = """\
name = "gate"
[[brokers]]
id = 1
url = "mqtt://one"
[[brokers]]
id = 2
url = "mqtt://two:2883"
"""


def test_a_name_and_brokers_are_enough(write):
    settings = load_gateway(write(GOOD), {})

    assert [(b.id, b.address.host, b.address.port) for b in settings.brokers] == [
        (1, "one", 1883),
        (2, "two", 2883),
    ]
    assert [(each.host, each.port) for each in settings.listeners] == [("127.0.0.1", 1883)]
    assert settings.attachment.policy == "assigned"


def test_a_page_open_to_others_keeps_the_gateways_port(write):
    assert load_gateway(write(GOOD + "[http]\nallow_remote = true\n"), {}).http.port == 9884


def test_the_environment_wins_over_the_file(write):
    environ = {"FEDERATOR_ATTACHMENT__POLICY": "nearest", "FEDERATOR_FAILOVER__HOLD_MS": "77"}

    settings = load_gateway(write(GOOD), environ)

    assert (settings.attachment.policy, settings.failover.hold_ms) == ("nearest", 77)


def test_assignments_are_read_in_order_and_patterns_may_hold_an_equals_sign(write):
    text = GOOD + '[attachment]\nassign = ["a=b*=2", "*=1"]\n'

    assert load_gateway(write(text), {}).attachment.assignments == (("a=b*", 2), ("*", 1))
