"""A collector's configuration: the command line over the environment over the file."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.cli.setup.keys import command as keys_command
from federator.config.reading import load_collector
from federator.errors import ConfigError
from federator.protocol.trust.key_files import holder_of

GOOD = """\
landing = "/var/lib/landing"
[[brokers]]
url = "mqtt://one"
"""
SECURE = """\
landing = "/var/lib/landing"
[[brokers]]
url = "mqtt://one"
[[brokers]]
url = "mqtt://two"
username = "other"
[login]
hosts = ['three', '10.1.0.0/16']
username = "collector"
password = "secret"
"""


@pytest.fixture
def closed(write):
    path = write(SECURE)
    path.chmod(0o600)
    return path


def test_the_command_line_is_enough():
    settings = load_collector(None, {}, landing=Path("here"), brokers=["mqtts://one:99"])

    (broker,) = settings.brokers
    assert (broker.address.host, broker.address.port, broker.address.tls) == ("one", 99, True)
    assert settings.landing == Path("here")
    assert (settings.federation, settings.only, settings.files.keep_days) == ("fed", False, 0)


def test_a_page_open_to_others_keeps_the_collectors_port(write):
    text = 'landing = "x"\n[[brokers]]\nurl = "mqtt://site-1"\n[http]\nallow_remote = true\n'

    assert load_collector(write(text), {}).http.port == 9885


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(write):
    environ = {"FEDERATOR_LANDING": "there", "FEDERATOR_FILES__ROTATE_MS": "77"}

    settings = load_collector(write(GOOD), environ, landing=Path("here"), only=True)

    assert (settings.landing, settings.only) == (Path("here"), True)
    assert settings.files.rotate_ms == 77
    assert load_collector(write(GOOD), environ).landing == Path("there")


def test_brokers_of_the_command_line_come_beside_those_of_the_file(write):
    settings = load_collector(write(GOOD), {}, brokers=["mqtt://two", "mqtt://three"])

    assert [broker.address.host for broker in settings.brokers] == ["one", "two", "three"]


def test_login_holds_for_brokers_without_credentials_and_for_those_that_are_found(closed):
    settings = load_collector(closed, {})
    one, two = (settings.connection(broker) for broker in settings.brokers)
    found = settings.found("mqtt://three")

    assert (one.username, one.secret()) == ("collector", b"secret")
    assert (two.username, two.secret()) == ("other", None)
    assert (found.username, found.secret()) == ("collector", b"secret")
    assert [notice.details["key"] for notice in settings.notices()] == [
        "brokers.0.url",
        "brokers.1.url",
    ]


@pytest.mark.parametrize("url", ["mqtt://four", "mqtt://10.2.0.1", "mqtt://three.org"])
def test_the_password_goes_to_no_host_that_is_not_named(closed, write, url):
    with pytest.raises(ValueError, match=r"none of login\.hosts: our password is sent"):
        load_collector(closed, {}).found(url)

    assert load_collector(closed, {}).found("mqtt://10.1.2.3").secret() == b"secret"
    assert load_collector(write(GOOD), {}).found(url).secret() is None


def test_a_found_broker_whose_address_is_plaintext_or_none_can_be_refused(write):
    settings = load_collector(write(GOOD + "[login]\nallow_plaintext = false\n"), {})

    assert settings.found("mqtt://127.0.0.1:1").url == "mqtt://127.0.0.1:1"
    with pytest.raises(ValueError, match="plaintext"):
        settings.found("mqtt://elsewhere")
    with pytest.raises(ValueError, match="scheme"):
        settings.found("http://127.0.0.1")


@pytest.mark.parametrize(
    ("role", "told"), [("collector", ""), ("gateway", "is of gateway r: name")]
)
def test_its_key_is_a_collectors_and_closed_to_others(write, tmp_path, role, told):
    office = tmp_path / "office"
    for arguments in (
        ("init", str(office)),
        ("issue", "--dir", str(office), "--role", role, "--name", "r"),
    ):
        assert CliRunner().invoke(keys_command, arguments).exit_code == 0
    file, public = office / f"{role}-r.key", office / "federation.pub"
    keys = f"[keys]\ncollector_file = '{file}'\nfederation_files = ['{public}']\n"

    if told:
        with pytest.raises(ConfigError, match=told):
            load_collector(write(GOOD + keys), {})
    else:
        settings = load_collector(write(GOOD + keys), {})
        assert holder_of(settings.keys.own_keys()).holder == "collector r"
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"is open to others: chmod o=") as caught:
        load_collector(write(GOOD + keys), {})
    assert caught.value.exit_code == 77
