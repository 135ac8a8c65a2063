"""Being let in by brokers that ask who comes: passwords and certificates, or a clear refusal."""

import shutil
import subprocess

import pytest
from federator_analytics.errors import AnalyticsError
from federator_analytics.sources.live.heads import Heads
from federator_analytics.sources.live.link import read_options
from federator_analytics.sources.live.replay import Held, Replay

from lab.grid.processes.ports import free_ports
from tests.analytics.brokers import brokers
from tests.analytics.spool_peer import SpoolPeer
from tests.certificates import make_keys, tls_listener


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """broker.pem for 127.0.0.1, client.pem, other.pem, their keys, and a password file."""
    folder = make_keys(tmp_path_factory.mktemp("keys"))
    (folder / "secret").write_text("right\n")
    passwords = folder / "passwords"
    program = shutil.which("mosquitto_passwd")
    assert program is not None, "tests need Mosquitto's mosquitto_passwd"
    command = [program, "-b", "-c", str(passwords), "reader", "right"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def ports(keys, tmp_path_factory):
    """Of one broker: a port that wants a password, and one that wants a certificate over TLS."""
    (tls,) = free_ports(1)
    lines = (
        f"password_file {keys}/passwords",
        *tls_listener(keys, tls),
        "use_identity_as_username true",
    )
    with (
        brokers(tmp_path_factory.mktemp("access"), extra_config=lines, allow_anonymous=False) as (
            broker,
        ),
        SpoolPeer(broker.port, 3, login=("reader", "right")) as peer,
    ):
        peer.write(5)
        yield broker.port, tls


def read(url, **told):
    """All lines the one broker's spool holds."""
    options = read_options(
        {"broker": url, "connectTimeoutMs": "2000", "answerTimeoutMs": "5000", **told}
    )
    heads = Heads(options)
    heads.open()
    try:
        (held,) = heads.alive()
        assert held == Held(3, "a" * 16, 1, 5)
        place = heads.place_of(3)
    finally:
        heads.close()
    replay = Replay(place, options.federation, held, answer_s=options.answer_s)
    return sum(len(piece.lines) for piece in replay.read())


def test_a_password_from_a_file_opens_heads_and_answers(ports, keys):
    url = f"mqtt://127.0.0.1:{ports[0]}"

    assert read(url, username="reader", passwordFile=str(keys / "secret")) == 10


def test_certificates_open_heads_and_answers_over_tls(ports, keys):
    files = {"caFile": "broker.pem", "certFile": "client.pem", "keyFile": "client.key"}
    told = {key: str(keys / name) for key, name in files.items()}

    assert read(f"mqtts://127.0.0.1:{ports[1]}", **told) == 10


# paho leaves the socket of a failed handshake to be collected.
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
@pytest.mark.parametrize(
    ("secure", "told", "wanted"),
    [
        (False, {"username": "reader", "password": "wrong"}, "refused: Not authorized"),
        (False, {}, "refused: Not authorized"),
        (True, {"caFile": "other.pem"}, "self-signed certificate"),
        (True, {}, "self-signed certificate"),
        (True, {"caFile": "secret"}, "caFile cannot be used"),
    ],
)
def test_who_is_not_let_in_is_told_why(ports, keys, secure, told, wanted):
    url = f"mqtts://127.0.0.1:{ports[1]}" if secure else f"mqtt://127.0.0.1:{ports[0]}"
    told = {key: str(keys / v) if key.endswith("File") else v for key, v in told.items()}

    with pytest.raises(AnalyticsError) as error:
        read(url, **told)

    assert wanted in str(error.value)
    assert "right" not in str(error.value)
