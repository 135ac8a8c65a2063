"""Every mistake in a configuration: one line that names what to mend, the right code, quickly."""

import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from federator.cli import main
from tests.config.conftest import GOOD
from tests.transcripts import play, scenes

SECONDS_MAX = 2.0


def complaint(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and the one line on standard error."""
    begun = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert time.monotonic() - begun < SECONDS_MAX
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("\n")
    assert printed.err.count("\n") == 1
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.err.rstrip("\n")


class Stage:
    """Spoils the good configuration, and prints the complaint, the file told as its line alone.

    ``replace OLD NEW`` in it, ``add TEXT`` behind it, or have ``only TEXT``; ``begin TEXT`` and
    ``end TEXT``, said before, stand around that. Texts hold escapes as in Python.
    """

    def __init__(self, write, capsys):
        self.write, self.capsys = write, capsys
        self.before = self.after = ""

    def do(self, command, *words):
        old, new = ("", *(word.encode().decode("unicode_escape") for word in words))[-2:]
        match command:
            case "begin":
                self.before = f"{new}\n"
            case "end":
                self.after = f"{new}\n"
            case "replace":
                assert old in GOOD
                yield from self._complaint(GOOD.replace(old, new, 1))
            case "add":
                yield from self._complaint(f"{GOOD}{new}\n")
            case "only":
                yield from self._complaint(f"{new}\n")

    def _complaint(self, text):
        path = self.write(self.before + text + self.after)
        code, line = complaint(["check-config", "-c", str(path)], self.capsys)
        assert code == 78
        yield re.sub(rf"^federator: {re.escape(str(path))}:(\d+): ", r"line \1: ", line).replace(
            f"federator: {path}: ", ""
        )


@scenes(Path(__file__).with_name("bad_configurations.txt"))
def test_a_mistake_is_one_line_with_file_line_what_and_how(path, number, write, capsys):
    play(path, number, Stage(write, capsys))


def test_a_huge_number_is_not_repeated(write, capsys):
    path = write(GOOD.replace("id = 1", f"id = {'9' * 5000}"))

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert "shorten the value" in line


def test_a_missing_file_is_66(tmp_path, capsys):
    code, line = complaint(["check-config", "-c", str(tmp_path / "none.toml")], capsys)

    assert code == 66
    assert (
        line
        == f"federator: {tmp_path}/none.toml: no such file: name the configuration with -c FILE"
    )


def test_a_name_with_a_line_break_is_still_one_line(write, capsys):
    secret = "password_file = 'a\\u000ab\\u0000'".replace("'", '"')
    path = write(GOOD.replace("id = 1", f'id = 1\nusername = "u"\n{secret}'))

    in_file, line = complaint(["check-config", "-c", str(path)], capsys)
    in_name, other = complaint(["check-config", "-c", "no\nsuch\x1b[31m"], capsys)

    assert (in_file, in_name) == (78, 66)
    assert line.startswith(f"federator: {path}:5: {path.parent}/a?b?: ")
    assert other.startswith("federator: no?such?[31m: no such file: ")


def test_a_folder_in_place_of_a_file_is_66(tmp_path, capsys):
    code, line = complaint(["check-config", "-c", str(tmp_path)], capsys)

    assert code == 66
    assert "is a directory: name a readable TOML file" in line


def test_bytes_that_are_not_utf8_are_78_with_their_line(tmp_path, capsys):
    path = tmp_path / "f.toml"
    path.write_bytes(b"a = 1\nb = '\xff'\n")

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert line.startswith(f"federator: {path}:2: not UTF-8: ")


def test_a_file_of_nothing_but_depth_is_78(write, capsys):
    path = write("x = " + "[" * 100_000)

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert "nested too deeply" in line


def test_an_endless_file_is_refused_unread(capsys):
    code, line = complaint(["check-config", "-c", "/dev/zero"], capsys)

    assert code == 78
    assert "larger than" in line


def test_a_file_this_user_may_not_read_is_77(write):
    path = write(GOOD)
    path.chmod(0)
    # Root may read everything, so the reader first becomes nobody to the file system.
    give_up = (
        "import ctypes, os, sys; import federator.cli.setup.check_config\n"
        "from federator.cli import main\n"
        "os.geteuid() == 0 and ctypes.CDLL(None).setfsuid(65534)\n"
        "main(['check-config', '-c', sys.argv[1]])"
    )

    ended = subprocess.run(
        [sys.executable, "-c", give_up, str(path)], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 77, ended.stderr
    assert ended.stderr == (
        f"federator: {path}: not readable by this user: change its owner or mode\n"
    )


def test_an_empty_password_file_is_78(write, tmp_path, capsys):
    secret = tmp_path / "secret"
    secret.write_text("\nhush\n")
    secret.chmod(0o600)
    path = write(GOOD.replace("id = 1", f'id = 1\nusername = "u"\npassword_file = "{secret}"'))

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert line.startswith(f"federator: {path}:5: {secret}: its first line is empty: ")


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644])
def test_a_password_file_open_to_others_is_77(mode, write, tmp_path, capsys):
    secret = tmp_path / "secret"
    secret.write_text("hush\n")
    secret.chmod(mode)
    path = write(GOOD.replace("id = 1", f'id = 1\nusername = "u"\npassword_file = "{secret}"'))

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 77
    assert line == f"federator: {path}:5: {secret} is open to others: chmod o= {secret}"


@pytest.mark.parametrize(
    ("content", "mode", "code", "told"),
    [
        ("hush\n", 0o644, 77, "is open to others: chmod o="),
        ("\nhush\n", 0o600, 78, "its first line is empty: write the password there"),
    ],
)
def test_a_password_for_a_proxy_is_kept_as_others_are(content, mode, code, told, write, capsys):
    path = write(GOOD)
    secret = path.parent / "proxy-password"
    secret.write_text(content)
    secret.chmod(mode)
    lines = 'proxy = "http://p:1"\nproxy_username = "me"\nproxy_password_file = "proxy-password"'
    path.write_text(GOOD.replace("[[neighbours]]", f"[links]\n{lines}\n[[neighbours]]", 1))

    got, line = complaint(["check-config", "-c", str(path)], capsys)

    assert got == code
    assert told in line
    assert "hush" not in line


def test_a_configuration_with_a_password_open_to_others_is_77(write, capsys):
    path = write(GOOD.replace("id = 1", 'id = 1\nusername = "u"\npassword = "hush"'))
    path.chmod(path.stat().st_mode | stat.S_IROTH)

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 77
    assert line.startswith(f"federator: {path}:5: {path} holds a password and is open to others")
    assert "hush" not in line


def test_a_password_of_the_wrong_type_is_not_shown(write, capsys):
    path = write(GOOD.replace("id = 1", 'id = 1\nusername = "u"\npassword = 12345'))

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert "12345" not in line


def test_credentials_in_a_url_are_not_shown(write, capsys):
    path = write(GOOD.replace("mqtt://127", "mqtt://me:hush@127", 1))

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert "hush" not in line


TLS = 'url = "mqtts://127.0.0.1"\n'


@pytest.mark.parametrize(
    ("files", "wanted_code", "wanted_line", "wanted_text"),
    [
        ("ca_file = '{0}/expired.pem'", 78, 5, "expired.pem expired on 2021-01-01: renew it"),
        ("cert_file = '{0}/expired.pem'\nkey_file = '{0}/expired.key'", 78, 5, "expired on 2021-"),
        ("cert_file = '{0}/good.pem'\nkey_file = '{0}/other.key'", 78, 6, "is not the key of"),
        ("cert_file = '{0}/good.pem'\nkey_file = '{0}/good.pem'", 77, 6, "open to others"),
        ("cert_file = '{0}/good.key'\nkey_file = '{0}/good.key'", 78, 5, "no PEM certificate"),
        ("cert_file = '{0}/good.pem'\nkey_file = '{0}/locked.key'", 78, 6, "unencrypted PEM key"),
        ("ca_file = '/dev/zero'", 78, 5, "is not a file"),
    ],
)
def test_certificates_that_cannot_serve_are_refused(
    files, wanted_code, wanted_line, wanted_text, write, certificates: Path, capsys
):
    tls = TLS + files.format(certificates)
    path = write(GOOD.replace('url = "mqtt://127.0.0.1:1883"', tls, 1))

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert (code, wanted_text in line) == (wanted_code, True), line
    assert line.startswith(f"federator: {path}:{wanted_line}: ")


def test_certificates_for_all_links_are_checked_too(write, certificates: Path, capsys):
    path = write(GOOD + f"[links]\nca_file = '{certificates}/expired.pem'\n")

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert line.startswith(f"federator: {path}:8: {certificates}/expired.pem expired on ")


def test_certificates_that_serve_are_accepted(write, certificates: Path, capsys):
    names = {"ca_file": "other.pem", "cert_file": "good.pem", "key_file": "good.key"}
    tls = TLS + "\n".join(f"{key} = '{certificates / name}'" for key, name in names.items())
    text = GOOD.replace('url = "mqtt://127.0.0.1:1883"', tls, 1)
    path = write(f'security = "open"\n{text}')

    with pytest.raises(SystemExit) as ended:
        main(["check-config", "-c", str(path)])

    assert ended.value.code == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "wanted"),
    [
        ("FEDERATOR_BROKER__ID", "seven", "broker.id = 'seven': it should be a whole number"),
        ("FEDERATOR_BROKER__IDD", "7", "unknown key 'broker.idd': did you mean id"),
        (
            "FEDERATOR_BROKER_ID",
            "7",
            "one underscore between section and key: write FEDERATOR_BROKER__ID",
        ),
        ("FEDERATOR_NEIGHBOURS", "mqtt://b", "neighbours = 'mqtt://b': it should be a list"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    variable, value, wanted, write, monkeypatch, capsys
):
    path = write(GOOD)
    monkeypatch.setenv(variable, value)

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert line == f"federator: ${variable}: {wanted}"


def test_a_state_folder_that_cannot_be_had_is_named(write, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    path = write(f'security = "open"\nstate_dir = "{tmp_path}/file/state"\n{GOOD}')

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 73
    wanted = "Not a directory: name a folder this user may write"
    assert line == f"federator: state_dir: {tmp_path}/file/state: {wanted}"
