"""What a configuration means once it is accepted."""

from pathlib import Path

import pytest
from pydantic_core import to_json

from federator.cli.agent_pages import agent_url
from federator.config.brokers import Address
from federator.config.reading import load
from federator.config.reference import meanings
from federator.config.reload import merged
from federator.config.section import keys_of, section_in
from federator.config.settings import Settings
from federator.errors import ConfigError
from federator.protocol.parameters import Parameters
from tests.config.conftest import GOOD


def test_five_lines_are_enough_to_join(write):
    path = write(
        '[broker]\nid = 1\nurl = "mqtt://127.0.0.1"\n[[neighbours]]\nurl = "mqtt://gateway-2"\n'
    )

    settings = load(path, {})

    assert settings.broker.address.port == 1883
    assert settings.neighbours[0].address.host == "gateway-2"
    assert settings.broker.advertised == "mqtt://127.0.0.1"


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

    told = load(write(text), {}).parameters()

    default = Parameters()
    fields = Parameters.__dataclass_fields__.keys() - {"transit", "serves_leaf"}  # a role says that
    assert [name for name in fields if getattr(told, name) == getattr(default, name)] == []


def test_a_neighbour_has_its_own_word_on_dialling_and_proxy_and_else_that_of_the_links(write):
    text = GOOD.partition("[[neighbours]]")[0] + (
        '[links]\ndial = "out"\nproxy = "http://proxy:3128"\n'
        '[[neighbours]]\nurl = "mqtt://far"\n'
        '[[neighbours]]\nurl = "mqtt://near"\ndial = "both"\nproxy = "http://[::1]:8080"\n'
    )

    settings = load(write(text), {})

    far, near = map(settings.neighbour_connection, settings.neighbours)
    assert (settings.takes_outbox(far), settings.takes_outbox(near)) == (True, False)
    assert (far.proxy_address, near.proxy_address) == (("proxy", 3128), ("::1", 8080))
    assert settings.dialled_back("mqtt://elsewhere").proxy_address == ("proxy", 3128)


def test_who_we_are_at_a_proxy_is_told_to_that_proxy_alone(write, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hush\n")
    secret.chmod(0o600)
    ours = f'proxy = "http://proxy:3128"\nproxy_username = "me"\nproxy_password_file = "{secret}"\n'
    text = GOOD.partition("[[neighbours]]")[0] + (
        f"[links]\n{ours}"
        '[[neighbours]]\nurl = "mqtt://far"\n'
        '[[neighbours]]\nurl = "mqtt://near"\nproxy = "http://127.0.0.1:8080"\n'
    )

    settings = load(write(text), {})

    far, near = map(settings.neighbour_connection, settings.neighbours)
    assert (far.proxy_login(), near.proxy_login()) == (b"me:hush", None)
    assert [notice.details for notice in settings.notices()] == [
        {"key": "links.proxy", "url": "http://proxy:3128"}
    ]


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


def test_relative_paths_go_by_the_folder_of_their_file(write):
    text = GOOD.replace("[broker]", 'state_dir = "state"\n[broker]\nusername = "u"', 1)
    text = text.replace("username", 'password_file = "password"\nusername', 1)
    text += '[keys]\nagent_file = "/keys/1"\nfederation_files = ["a.pub", "/keys/b.pub"]\n'
    path = write(text)
    environ = {"FEDERATOR_KEYS__REVOCATIONS_FILE": "revoked"}

    settings = load(path, environ, secrets=False)

    assert settings.state_dir == path.parent / "state"
    assert settings.broker.password_file == path.parent / "password"
    assert settings.keys.agent_file == Path("/keys/1")
    assert settings.keys.federation_files == (path.parent / "a.pub", Path("/keys/b.pub"))
    assert settings.keys.revocations_file == Path("revoked")


def test_whoever_only_asks_the_agent_needs_none_of_its_secrets(write):
    path = write(GOOD + '[keys]\nagent_file = "/none/1"\nfederation_files = ["/none/fed.pub"]\n')

    with pytest.raises(ConfigError, match="/none/1: no such file"):
        load(path, {})
    assert agent_url(path, None) == "http://127.0.0.1:9883"


def test_the_environment_wins_over_the_file(write):
    environ = {
        "FEDERATOR_BROKER__ID": "7",
        "FEDERATOR_HTTP__ENABLED": "false",
        "FEDERATOR_NEIGHBOURS": '[{"url": "mqtt://b", "id": 3}]',
        "FEDERATOR_DISCOVERY__FILTERS": '["a/#"]',
        "FEDERATOR_BROKER__USERNAME": "123",
        "FEDERATOR_BROKER__PASSWORD": "456",
        "federator_federation": "other",
    }

    settings = load(write(GOOD), environ)

    assert settings.broker.id == 7
    assert settings.http.enabled is False
    assert [n.id for n in settings.neighbours] == [3]
    assert settings.discovery.filters == ("a/#",)
    assert settings.broker.username == "123"
    assert settings.broker.secret() == b"456"
    assert settings.federation == "other"


def test_the_environment_alone_is_enough():
    environ = {"FEDERATOR_BROKER__ID": "1", "FEDERATOR_BROKER__URL": "mqtt://h"}

    assert load(None, environ).broker.url == "mqtt://h"


def test_variables_that_orchestrators_set_are_left_alone(write):
    environ = {
        "FEDERATOR_PORT": "tcp://10.0.0.1:9883",
        "FEDERATOR_SERVICE_HOST": "10.0.0.1",
        "FEDERATOR_HTTP_PORT": "tcp://10.0.0.1:9883",
    }

    assert load(write(GOOD), environ) == load(write(GOOD), {})


def test_rules_can_come_from_the_environment(write):
    settings = load(write(GOOD), {"FEDERATOR_RULES__IMPORT": '["a/#"]'})

    assert settings.rules.imports == ("a/#",)


def test_settings_cannot_be_changed(write):
    settings = load(write(GOOD), {})

    with pytest.raises(AttributeError, match="cannot assign"):
        settings.broker.id = 9


def test_a_password_shows_neither_in_print_nor_in_json(write):
    settings = load(write(GOOD.replace("id = 1", 'id = 1\nusername = "u"\npassword = "hush"')), {})

    assert "hush" not in repr(settings)
    assert b"hush" not in to_json(settings, fallback=str)


def test_a_password_file_gives_its_first_line(write, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"hush\r\nmore\n")
    secret.chmod(0o600)
    text = GOOD.replace("id = 1", f'id = 1\nusername = "u"\npassword_file = "{secret}"')

    assert load(write(text), {}).broker.secret() == b"hush"


@pytest.mark.parametrize(
    ("told", "bits"),
    [
        ('"2 Mbit/s"', 2_000_000),
        ('"64kbit/s"', 64_000),
        ('"1.5 Gbit/s"', 1_500_000_000),
        ("2000000", 2_000_000),
        ('"20 GB/month"', 61_728),
        ('"450 kB/hour"', 1_000),
    ],
)
def test_the_capacity_of_a_link_may_be_written_with_a_unit(write, told, bits):
    settings = load(write(f'{GOOD}[[neighbours]]\nurl = "mqtt://c"\ncapacity = {told}\n'), {})

    assert settings.neighbours[-1].capacity == bits
    assert settings.neighbour_connection(settings.neighbours[-1]).capacity == bits
    assert settings.neighbours[0].capacity is None
    assert (settings.steer.follow, settings.steer.flows_max) == (True, 256)


def test_a_neighbour_without_credentials_inherits_those_of_the_links(write):
    text = GOOD + (
        '[[neighbours]]\nurl = "mqtt://c"\nusername = "own"\n'
        '[links]\nusername = "all"\npassword = "p"\n'
    )
    settings = load(write(text), {})

    plain, own = (settings.neighbour_connection(n) for n in settings.neighbours)

    assert (plain.username, plain.secret()) == ("all", b"p")
    assert (own.username, own.secret()) == ("own", None)


def test_a_broker_dialled_back_gets_the_credentials_of_the_links(write):
    settings = load(write(GOOD + '[links]\nusername = "all"\npassword = "p"\n'), {})

    connection = settings.dialled_back("mqtt://d:1885")

    assert (connection.address.port, connection.username) == (1885, "all")


@pytest.mark.parametrize("url", ["mqtt://d", "http://d", "", "mqtt://a b", "x" * 600])
def test_a_broker_is_not_dialled_back_in_clear_or_at_nonsense(url, write):
    settings = load(write(GOOD + "[links]\nallow_plaintext = false\n"), {})

    with pytest.raises(ValueError, match=r".+"):
        settings.dialled_back(url)


def test_credentials_that_travel_in_clear_are_noticed(write):
    text = GOOD.replace("127.0.0.1:2883", "gw2") + 'username = "u"\n'

    (notice,) = load(write(text), {}).notices()

    assert (notice.name, notice.level) == ("config.credentials_in_clear", "warning")
    assert notice.details == {"key": "neighbours.0.url", "url": "mqtt://gw2"}


def test_credentials_of_the_links_that_travel_in_clear_are_noticed(write):
    text = GOOD.replace("127.0.0.1:2883", "gw2") + '[links]\nusername = "u"\n'

    assert [n.details["key"] for n in load(write(text), {}).notices()] == ["neighbours.0.url"]


def test_no_notice_on_loopback_or_without_credentials(write):
    on_loopback = GOOD.replace("id = 1", 'id = 1\nusername = "u"\npassword = "p"')
    without = GOOD.replace("127.0.0.1:2883", "gw2")

    assert load(write(on_loopback), {}).notices() == ()
    assert load(write(without), {}).notices() == ()


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


def test_a_neighbours_transport_goes_before_that_of_the_links(write):
    named = 'id = 2\ntransport = "{}"\n[[neighbours]]\nid = 3\nurl = "mqtt://c"\n'
    keyed = f'security = "signed"\n{GOOD}'

    by_default = load(write(keyed), {})
    one = load(write(keyed + named.format("udp-fec")), {})
    but_one = load(write(keyed + named.format("tcp") + '[links]\ntransport = "udp-fec"\n'), {})

    assert not by_default.uses("udp-fec")
    assert one.uses("udp-fec")
    assert [one.transport_to(id_) for id_ in (2, 3, 4)] == ["udp-fec", "tcp", "tcp"]
    assert [but_one.transport_to(id_) for id_ in (2, 3)] == ["tcp", "udp-fec"]


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


def test_a_leaf_has_a_federation_with_its_hub_and_dials_alone(write):
    settings = load(write(LEAF), {})

    assert settings.federation == "demo.leaves.417"
    assert settings.key_federation == "demo.leaves"
    assert (settings.links.dial, settings.share.scope) == ("out", "broker")
    assert not settings.failover.enabled


def test_a_leaf_may_be_dialled_too(write):
    settings = load(write(LEAF + '[links]\ndial = "both"\n'), {})

    assert settings.links.dial == "both"


def test_a_hub_speaks_to_each_leaf_in_the_federation_that_the_leaf_names(write):
    text = GOOD.replace('"fed"', '"demo"') + "[[leaves]]\nid = 417\n"
    hub = load(write(text), {})

    port = hub.for_leaf(hub.leaves[0])

    assert hub.federation == hub.key_federation == "demo"
    assert port.federation == load(write(LEAF), {}).federation
    assert port.key_federation == "demo.leaves"
    assert port.parameters().outboxes == {417}
    assert not port.parameters().dial_back
    assert port.members == {417, hub.broker_id}
    assert hub.members is None


def test_what_a_leaf_is_told_takes_no_room_of_what_it_may_want(write):
    text = GOOD + "[hub]\nfilters_max = 500\nleaf_filters_max = 10\n[[leaves]]\nid = 417\n"
    hub = load(write(text), {})

    assert hub.for_leaf(hub.leaves[0]).parameters().filters_max >= hub.hub.filters_max + 10


@pytest.mark.parametrize(
    ("more", "gap_ms"),
    [
        ("", 250),
        ("[hub]\nleaf_ann_gap_ms = 40\n", 40),
        ("[mesh]\ncore_ann_interval_ms = 100\n", 99),
    ],
)
def test_a_leaf_is_told_of_changes_every_so_often(write, more, gap_ms):
    hub = load(write(GOOD + "[[leaves]]\nid = 417\n" + more), {})

    assert hub.for_leaf(hub.leaves[0]).parameters().core_ann_gap_ms == gap_ms
    assert hub.parameters().core_ann_gap_ms == 20


def test_what_a_reload_merges_stays_a_leaf(write):
    settings = load(write(LEAF), {})

    assert merged(settings, settings) == settings
