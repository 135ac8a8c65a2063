"""``federator init --from-bridges``: of files that it can take, and that it cannot."""

import json
import stat
import tomllib

import pytest
from click.testing import CliRunner

from federator import cli
from federator.cli.setup.bridges.mosquitto_conf import read_bridges
from federator.errors import ConfigError

GOOD = ("listener 1883", "connection hub", "address hub:1884")


def conf(folder, *lines):
    path = folder / "m.conf"
    path.write_text("\n".join(lines) + "\n")
    return path


def init(folder, *options):
    told = ["--id=7", "--broker=mqtt://b", "--advertise=none", "--keys=open"]
    place = [f"--config={folder / 'f.toml'}", f"--from-bridges={folder / 'm.conf'}"]
    return CliRunner().invoke(cli.federator, ["init", *place, *told, *options])


@pytest.mark.parametrize(
    ("lines", "line", "words"),
    [
        ((*GOOD, "topic # sideways"), 4, "'sideways' is no direction: write out, in or both"),
        ((*GOOD, "topic # out 3"), 4, "'3' is no QoS: write 0, 1 or 2"),
        ((*GOOD, "topic"), 4, "topic says nothing: give it a value, or remove it"),
        ((*GOOD, 'topic "" out 1 "" x'), 4, 'topic "" needs a local and a remote topic'),
        ((*GOOD, 'topic # out 1 "" site'), 4, "'site#', its remote side, is no topic filter"),
        ((*GOOD, "topic x out 1 +/"), 4, "'+/' is a prefix with a wildcard"),
        ((*GOOD, "address hub:port"), 4, "address 'hub:port' is no host and port"),
        ((*GOOD, "connection hub"), 4, "connection hub is there twice: give each its own name"),
        ((*GOOD, "connection"), 4, "connection has no name: write connection NAME"),
        ((*GOOD, "include_dir nowhere"), 4, "is no folder of at most 64 files: correct it"),
        (("topic # out",), 1, "topic before any connection: write connection NAME first"),
        (("connection hub", "topic # out"), 1, "connection hub has no address: add address HOST"),
    ],
)
def test_a_line_that_cannot_be_read_is_one_line_with_file_line_what_and_how(
    tmp_path, lines, line, words
):
    path = conf(tmp_path, *lines)

    with pytest.raises(ConfigError) as error:
        read_bridges(path)

    told = str(error.value)
    assert told.startswith(f"{path}:{line}: ")
    assert words in told
    assert "\n" not in told
    assert error.value.exit_code == 78


def test_bridges_are_read_as_mosquitto_reads_them(tmp_path):
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "b.conf").write_text("connection b\naddresses h [::1]:1884\n")
    path = conf(
        tmp_path,
        "# connection none",
        "connection a",
        "  address   10.0.0.1",
        "topic x",
        'topic   y  in 1 "" r/ more',
        "remote_password with spaces ",
        "persistence true",
        "include_dir conf.d",
    )

    a, b = read_bridges(path)

    assert (a.name, a.addresses, b.name, b.addresses) == (
        "a", ["10.0.0.1:1883"], "b", ["h:1883", "[::1]:1884"]
    )  # fmt: skip
    assert a.value_of("password", "remote_password") == "with spaces"
    (x, first), (y, second) = a.topics
    assert (x.line, first.direction, first.local_filter, first.remote_filter) == (
        4,
        "out",
        "x",
        "x",
    )
    assert (y.line, second.direction, second.local_filter, second.remote_filter) == (
        5, "in", "y", "r/y"
    )  # fmt: skip


def test_what_is_missing_or_wrong_about_ids_is_said_in_one_line(tmp_path):
    conf(tmp_path, *GOOD, "topic # out", "connection b", "address x y")

    for options, words in (
        ((), "--remote hub=ID, --remote b=ID wanted: there is no terminal to ask at"),
        (("--remote=hub=1",), "--remote b=ID wanted"),
        (("--remote=cloud=1",), "names no connection: write b, hub=ID"),
        (("--remote=hub=one",), "has an id that is none: give numbers from 0 to"),
        (("--remote=b=2",), "has 1 ids for 2 addresses: give one for each, in order"),
        (("--remote=hub=1", "--remote=b=1,2"), "give each broker of --remote one id"),
    ):
        refused = init(tmp_path, *options)
        assert refused.exit_code != 0
        told = str(refused.exception) if isinstance(refused.exception, ConfigError) else ""
        assert words in refused.output + told, options
        assert not (tmp_path / "f.toml").exists()


def test_users_and_passwords_go_where_others_cannot_read_them(tmp_path):
    secret = ("remote_username me", "remote_password very secret")
    conf(tmp_path, *GOOD, 'topic # out 1 "" site/', *secret, "bridge_insecure true")

    made = init(tmp_path, "--remote=hub=1", "--json")

    assert made.exit_code == 0, made.output
    told = json.loads(made.output)
    assert "very secret" not in made.output + (tmp_path / "f.toml").read_text()
    written = tomllib.loads((tmp_path / "f.toml").read_text())
    file = tmp_path / written["neighbours"][0]["password_file"]
    assert file.read_text() == "very secret\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert written["rules"]["rename"] == [{"local": "", "federation": "site/"}]
    (line,) = told["without_counterpart"]
    assert line.startswith(f"{tmp_path}/m.conf:7: bridge_insecure: agents always look at the name")


def test_when_what_was_written_cannot_be_used_nothing_stays(tmp_path):
    secret = ("remote_username me", "remote_password very secret")
    conf(tmp_path, *GOOD, "topic # out", *secret, "bridge_cafile /nowhere/ca.pem")

    refused = init(tmp_path, "--remote=hub=1")

    assert refused.exit_code != 0
    assert [file.name for file in tmp_path.iterdir()] == ["m.conf"]


def test_remote_wants_the_file_of_the_bridges(tmp_path):
    refused = CliRunner().invoke(
        cli.federator, ["init", f"--config={tmp_path / 'f.toml'}", "--remote=hub=1"]
    )

    assert refused.exit_code == 2
    assert "--remote without --from-bridges: name the bridges' file" in refused.output
