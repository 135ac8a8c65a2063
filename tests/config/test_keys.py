"""Keys: what ``federator keys`` makes, and what an agent says of keys it cannot use."""

import json
import sys

import pytest
from click.testing import CliRunner

from federator.cli import main
from federator.cli.setup.keys import command as keys_command
from federator.config.reading import load_collector
from federator.errors import ConfigError
from federator.protocol.trust.key_files import holder_of
from tests.config.conftest import FOLLOWED


def keys(*arguments):
    return CliRunner().invoke(keys_command, [str(each) for each in arguments])


@pytest.fixture
def office(tmp_path):
    """A folder with the keys of federation ``fed`` and of broker 1."""
    folder = tmp_path / "office"
    for arguments in (("init", folder), ("issue", "--dir", folder, "--broker", 1)):
        assert keys(*arguments).exit_code == 0
    return folder


@pytest.fixture
def check(tmp_path, capsys):
    """Exit code and what ``check-config`` says of a configuration with these lines."""

    def checked(*lines, id_=1, federation="fed"):
        path = tmp_path / "federator.toml"
        first = [f'federation = "{federation}"']
        broker = ["[broker]", f"id = {id_}", 'url = "mqtt://127.0.0.1"']
        tables = [line for line in lines if line.startswith("[")]
        at = lines.index(tables[0]) if tables else len(lines)
        path.write_text("\n".join([*first, *lines[:at], *broker, *lines[at:], ""]))
        with pytest.raises(SystemExit) as ended:
            main(["check-config", "-c", str(path)])
        return ended.value.code, capsys.readouterr().err

    return checked


def section(office, agent="agent-1.key", *public):
    named = [str(office / name) for name in (public or ("federation.pub",))]
    return (
        "[keys]",
        f"agent_file = {json.dumps(str(office / agent))}",
        f"federation_files = {json.dumps(named)}",
    )


def test_keys_that_belong_together_serve(office, check):
    assert check(*section(office)) == (0, "")


def test_an_agent_without_keys_does_not_start_unless_open_is_asked_for(check):
    code, err = check()

    assert code == 78
    assert "federator keys" in err
    assert 'security = "open"' in err
    assert err.count("\n") == 1
    assert check('security = "open"') == (0, "")


@pytest.mark.parametrize(
    ("agent", "public", "id_", "wanted"),
    [
        ("agent-1.key", "federation.pub", 2, "is of broker 1"),
        ("agent-1.key", "nothing.pub", 1, "federation_files[0]"),
        ("nothing.key", "federation.pub", 1, "nothing.key: no such file"),
        ("federation.pub", "federation.pub", 1, "keys.agent_file"),
        ("agent-1.key", "agent-1.key", 1, "wanted is a federation public key"),
    ],
)
def test_keys_that_do_not_fit_are_one_line(agent, public, id_, wanted, office, check):
    (office / "federation.pub").chmod(0o600)

    code, err = check(*section(office, agent, public), id_=id_)

    assert code == 78
    assert wanted in err
    assert err.count("\n") == 1


def test_a_key_open_to_others_is_77(office, check):
    (office / "agent-1.key").chmod(0o644)

    code, err = check(*section(office))

    assert (code, err.count("\n")) == (77, 1)
    assert "chmod o=" in err


def test_the_operators_list_is_not_the_file_that_the_agent_writes(office, check):
    assert keys("revoke", "--dir", office, "--broker", 1).exit_code == 0
    named = f"revocations_file = {json.dumps(str(office / 'revocations'))}"

    code, err = check(f"state_dir = {json.dumps(str(office))}", *section(office), named)

    assert (code, err.count("\n")) == (78, 1)
    assert "keys.revocations_file" in err
    assert "name another file" in err
    assert check(*section(office), named) == (0, "")


def test_secrets_are_closed_and_never_shown(office):
    shown = keys("show", office).output + keys("show", office / "agent-1.key").output

    for name in ("federation.key", "agent-1.key"):
        assert (office / name).stat().st_mode & 0o077 == 0
        paper = json.loads((office / name).read_text())
        secrets = [paper[key] for key in ("secret", "signing", "exchange") if key in paper]
        assert secrets
        assert not [secret for secret in secrets if secret in shown]
    assert "broker 1" in shown


def test_nothing_is_overwritten(office):
    again = keys("init", office)
    issued = keys("issue", "--dir", office, "--broker", 1)

    assert "is there already" in str(again.exception)
    assert "is there already" in str(issued.exception)


def test_what_is_revoked_is_shown_and_stays_so(office):
    assert keys("issue", "--dir", office, "--broker", 2).exit_code == 0

    assert keys("revoke", "--dir", office, "--broker", 1).exit_code == 0
    assert keys("revoke", "--dir", office, "--broker", 2).exit_code == 0

    lines = keys("show", office).output.splitlines()
    assert [line for line in lines if line.endswith("revoked")] == lines[-2:]
    assert "list 2 of 2" in "".join(lines)


@pytest.mark.parametrize(
    "arguments",
    [("revoke",), ("revoke", "12"), ("issue", "--broker", "-1"), ("revoke", "--broker", "9")],
)
def test_wrong_arguments_change_nothing(arguments, office):
    assert keys(*arguments, "--dir", office).exit_code != 0
    assert not (office / "revocations").exists()


def test_datagrams_want_the_library_that_repairs_them(check, office, monkeypatch):
    own = f'agent_file = "{office / "agent-1.key"}"'
    lines = ["[keys]", own, f'federation_files = ["{office / "federation.pub"}"]']
    lines += ["[links]", 'transport = "udp-fec"']
    assert check(*lines)[0] == 0

    monkeypatch.setitem(sys.modules, "raptorq", None)
    code, said = check(*lines)

    assert code == 78
    assert (
        'transport = "udp-fec" needs the library raptorq: install it (the extra fec), or use "tcp"'
        in said
    )


@pytest.mark.parametrize("role", ["collector", "gateway"])
def test_the_key_of_a_collector_is_of_that_role_and_closed_to_others(role, office, write):
    assert keys("issue", "--dir", office, "--role", role, "--name", "r").exit_code == 0
    file, public = office / f"{role}-r.key", office / "federation.pub"
    lines = f"[keys]\ncollector_file = '{file}'\nfederation_files = ['{public}']\n"
    path = write(f'landing = "landed"\n{FOLLOWED}{lines}')

    if role == "gateway":
        with pytest.raises(ConfigError, match="is of gateway r: name"):
            load_collector(path, {})
    else:
        assert holder_of(load_collector(path, {}).keys.own_keys()).holder == "collector r"
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"is open to others: chmod o=") as caught:
        load_collector(path, {})
    assert caught.value.exit_code == 77
