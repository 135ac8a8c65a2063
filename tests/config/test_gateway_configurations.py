"""A gateway's configuration: what it says, and one line for each mistake."""

import pytest

from federator.config.reading import load_gateway
from federator.errors import ConfigError

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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('name = "gate"\n', "brokers is missing: add [[brokers]] with id and url"),
        (GOOD.replace('name = "gate"\n', ""), "name is missing: add name = ..."),
        (GOOD.replace("gate", "two words"), "name = 'two words': it should match"),
        ('name = "gate"\nbrokers = []\n', "brokers is empty: add [[brokers]]"),
        (GOOD.replace("id = 2", "id = 1"), ":6: broker id 1 appears twice: remove one"),
        (GOOD.replace("two:2883", "one"), ":7: mqtt://one is already brokers[0]: name each"),
        (GOOD + "[attachment]\nassign = ['x']\n", "attachment.assign[0] = 'x': write PATTERN=ID"),
        (GOOD + "[attachment]\nassign = ['x=3']\n", "broker 3 is not in [[brokers]]: add it"),
        (GOOD + "[[upstreams]]\nbroker = 3\nfilters = ['a']\n", "broker 3 is not in [[brokers]]"),
        (
            GOOD + "[[upstreams]]\nbroker = 2\nfilters = ['a']\n" * 2,
            "broker 2 has two upstreams: put their filters into one",
        ),
        (
            GOOD + "[[upstreams]]\nbroker = 2\nfilters = ['a/#/b']\n",
            "upstreams.filters[0] = 'a/#/b': ",
        ),
        (
            GOOD + "[[upstreams]]\nbroker = 2\nfilters = ['$share/g/a']\n",
            "upstreams.filters[0] = '$share/g/a': name topics that do not begin with $",
        ),
        (GOOD + "[[upstreams]]\nbroker = 2\nfilters = []\n", "upstreams[0].filters = a list: "),
        (GOOD + "[attachment]\npolicy = 'best'\n", "attachment.policy = 'best': it should be"),
        (GOOD + "[failover]\nhold = 3\n", "unknown key 'failover.hold': did you mean hold_ms"),
        (GOOD + "[failover]\nrecent_ms = 0\n", "failover.recent_ms = 0: it should be greater"),
        (GOOD + "[[listeners]]\nport = 0\n", "listeners[0].port = 0: it should be greater"),
        (GOOD + "[[listeners]]\ncert_file = 'x'\n", "cert_file without key_file: add key_file"),
        (
            GOOD + "[[listeners]]\nclient_ca_file = 'x'\n",
            "client_ca_file on a listener without TLS",
        ),
        (
            GOOD + "[[listeners]]\n[[listeners]]\n",
            "127.0.0.1:1883 appears twice: remove one, or correct its port",
        ),
        (
            GOOD + "[[listeners]]\ncert_file = '/none'\nkey_file = '/none'\n",
            "/none: no such file or directory: correct the path",
        ),
        (
            GOOD + "[clients]\nshared_addresses = ['::1', '10.0.0.300']\n",
            "clients.shared_addresses[1] = '10.0.0.300': write an address or a network",
        ),
        (GOOD + "[http]\nhost = '0.0.0.0'\n", "http.host = '0.0.0.0' is not loopback"),
    ],
)
def test_a_mistake_is_one_line_that_says_how_to_mend_it(write, text, told):
    with pytest.raises(ConfigError) as caught:
        load_gateway(write(text), {})

    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 78


@pytest.mark.parametrize(
    ("cert", "key", "told", "code"),
    [
        ("good.pem", "good.key", None, 0),
        ("good.pem", "other.key", "other.key is not the key of", 78),
        ("expired.pem", "expired.key", "expired.pem expired on", 78),
        ("good.pem", "locked.key", "is not a usable key", 78),
        ("good.key", "good.key", "holds no PEM certificate", 78),
    ],
)
def test_certificates_of_listeners_are_judged_before_they_are_needed(
    write, certificates, cert, key, told, code
):
    files = f"cert_file = '{certificates / cert}'\nkey_file = '{certificates / key}'\n"
    path = write(GOOD + "[[listeners]]\n" + files)

    if told is None:
        load_gateway(path, {})
        return
    with pytest.raises(ConfigError) as caught:
        load_gateway(path, {})
    assert told in str(caught.value)
    assert caught.value.exit_code == code


def test_a_key_that_others_can_read_is_refused(write, certificates, tmp_path):
    key = tmp_path / "open.key"
    key.write_bytes((certificates / "good.key").read_bytes())
    key.chmod(0o644)
    files = f"cert_file = '{certificates / 'good.pem'}'\nkey_file = '{key}'\n"

    with pytest.raises(ConfigError) as caught:
        load_gateway(write(GOOD + "[[listeners]]\n" + files), {})

    assert f"{key} is open to others: chmod o= {key}" in str(caught.value)
    assert caught.value.exit_code == 77
