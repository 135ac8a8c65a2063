"""What a configuration means once it is accepted."""

from pathlib import Path

import pytest
from pydantic_core import to_json

from federator.cli.agent_pages import agent_url
from federator.config.brokers import Address
from federator.config.reading import load, load_collector, load_gateway
from federator.config.reference import meanings
from federator.config.reload import merged
from federator.config.section import keys_of, section_in
from federator.config.settings import Settings
from federator.errors import ConfigError
from federator.protocol.parameters import Parameters
from tests.config.conftest import BROKERS, FOLLOWED, GOOD
from tests.transcripts import play, scenes

LEAF = """\
federation = "demo"
role = "leaf"
security = "open"
[broker]
id = 417
url = "mqtt://127.0.0.1:1883"
[[neighbours]]
id = 1
url = "mqtt://127.0.0.1:1884"
"""
GIVEN = {
    "agent": (load, GOOD),
    "leaf": (load, LEAF),
    "gateway": (load_gateway, f'name = "gate"\n{BROKERS}'),
    "collector": (load_collector, f'landing = "/var/lib/landing"\n{FOLLOWED}'),
}


class Stage:
    """Shows what a configuration comes to.

    ``agent``, ``leaf``, ``gateway`` and ``collector`` begin with a good one of theirs; ``begin
    TEXT`` stands before it, ``add TEXT`` behind it, ``replace OLD NEW`` in it, and ``only TEXT``
    instead. ``set NAME VALUE`` is a variable of the environment, ``file NAME TEXT`` a file beside
    it, which stands as HERE. ``told KEY VALUE`` is said on the command line. ``show EXPRESSION
    ...`` prints values of the settings, as Python reaches them; or why there is none.
    """

    def __init__(self, write):
        self.write, self.here = write, write("").parent
        self.load, self.text = GIVEN["agent"]
        self.environ, self.more = {}, {}

    def do(self, command, *words):
        words = [
            word.encode("latin-1", "backslashreplace").decode("unicode_escape") for word in words
        ]
        match command, words:
            case (("agent" | "leaf" | "gateway" | "collector"), []):
                self.load, self.text = GIVEN[command]
            case "begin", [text]:
                self.text = f"{text}\n{self.text}"
            case "add", [text]:
                self.text += f"{text}\n"
            case "replace", [old, new]:
                assert old in self.text
                self.text = self.text.replace(old, new, 1)
            case "only", [text]:
                self.text = f"{text}\n"
            case "set", [name, value]:
                self.environ[name] = value
            case "told", [name, value]:
                self.more[name] = {"landing": Path, "brokers": str.split, "only": bool}[name](value)
            case "file", [name, text]:
                (self.here / name).write_text(text)
                (self.here / name).chmod(0o600)
            case "show", expressions:
                path = self.write(self.text) if self.text.strip() else None
                settings = self.load(path, self.environ, **self.more)
                yield from (self._shown(settings, expression) for expression in expressions)

    def _shown(self, settings, expression):
        try:
            value = eval(f"settings.{expression}", {"settings": settings})
        except (ValueError, AttributeError) as error:
            value = f"{type(error).__name__}: {error}"
        return str(value).replace(str(self.here), "HERE")


@scenes(Path(__file__).with_name("settings.txt"))
def test_what_a_configuration_comes_to(path, number, write):
    play(path, number, Stage(write))


def test_the_defaults_are_those_of_the_protocol_core(write):
    assert load(write(GOOD), {}).parameters() == Parameters()


def test_every_protocol_parameter_can_be_configured(write):
    text = GOOD + (
        '[links]\ncost = "delay"\n'
        "hello_interval_ms = 11\nhello_timeout_ms = 12\ndial_back = false\noutboxes = [7]\n"
        "[mesh]\nredundancy = 3\nparent_slack_percent = 50\ncore_ann_interval_ms = 13\n"
        "core_ann_gap_ms = 1\ncore_lifetime_intervals = 4\nsolicit_timeout_ms = 14\n"
        "improvement_hold_ms = 15\nhandover_ms = 16\nparent_settle_ms = 20\n"
        "list_request_gap_ms = 17\nfilters_max = 18\ncores_max = 19\n"
        '[routing]\nstrategy = "shortest-path"\nfilters = [{filter = "a/#", strategy = "mesh"}]\n'
    )

    parameters = load(write(text), {}).parameters()

    default = Parameters()
    fields = Parameters.__dataclass_fields__.keys() - {"transit", "serves_leaf"}  # a role says that
    assert [n for n in fields if getattr(parameters, n) == getattr(default, n)] == []


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("mqtt://h", Address("h", 1883, False)),
        ("mqtts://h:1", Address("h", 1, True)),
        ("ws://h", Address("h", 80, False, "/mqtt")),
        ("wss://h", Address("h", 443, True, "/mqtt")),
        ("wss://[::1]:8/", Address("::1", 8, True, "/")),
        ("wss://h/a/b%20c-d_e", Address("h", 443, True, "/a/b%20c-d_e")),
    ],
)
def test_a_url_says_where_and_how_a_broker_is_reached(url, address):
    assert Address.parse(url) == address


def test_whoever_only_asks_the_agent_needs_none_of_its_secrets(write):
    path = write(GOOD + '[keys]\nagent_file = "/none/1"\nfederation_files = ["/none/fed.pub"]\n')

    with pytest.raises(ConfigError, match="/none/1: no such file"):
        load(path, {})
    assert agent_url(path, None) == "http://127.0.0.1:9883"


def test_variables_that_orchestrators_set_are_left_alone(write):
    environ = {
        "FEDERATOR_PORT": "tcp://10.0.0.1:9883",
        "FEDERATOR_SERVICE_HOST": "10.0.0.1",
        "FEDERATOR_HTTP_PORT": "tcp://10.0.0.1:9883",
    }

    assert load(write(GOOD), environ) == load(write(GOOD), {})


def test_what_a_reload_merges_stays_a_leaf(write):
    settings = load(write(LEAF), {})

    assert merged(settings, settings) == settings


def test_settings_cannot_be_changed(write):
    settings = load(write(GOOD), {})

    with pytest.raises(AttributeError, match="cannot assign"):
        settings.broker.id = 9


def test_a_password_shows_neither_in_print_nor_in_json(write):
    settings = load(write(GOOD.replace("id = 1", 'id = 1\nusername = "u"\npassword = "hush"')), {})

    assert "hush" not in repr(settings)
    assert b"hush" not in to_json(settings, fallback=str)


def test_every_key_says_what_it_means():
    def silent(section, prefix):
        found = []
        for name, key in keys_of(section).items():
            if inner := section_in(key.kind):
                found += silent(inner, f"{prefix}{name}.")
            elif not meanings(section).get(key.attribute):
                found.append(prefix + name)
        return found

    assert silent(Settings, "") == []
