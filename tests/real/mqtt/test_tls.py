"""``mqtts://`` to a real broker: accepted when everything is right, told in one line otherwise."""

import ssl
from pathlib import Path

import pytest

from federator.config.reading import load
from federator.config.settings import Settings
from federator.errors import LinkError
from federator.runtime.doctor.doctor import examine
from federator.runtime.mqtt.probe import BrokerProbe
from lab.grid.processes.ports import free_ports
from tests.certificates import tls_listener
from tests.tcp_server import hang_up, serving


@pytest.fixture
async def tls_port(start_broker, keys: Path) -> int:
    """A broker that speaks TLS and wants our certificate, and its port."""
    (port,) = free_ports(1)
    await start_broker(extra_config=tls_listener(keys, port))
    return port


def settings(keys: Path, port: int, *, host: str = "127.0.0.1", **files: str) -> Settings:
    path = keys / "federator.toml"
    named = [f'{key} = "{keys}/{name}"' for key, name in files.items()]
    path.write_text("\n".join(["[broker]", "id = 1", f'url = "mqtts://{host}:{port}"', *named, ""]))
    return load(path, {})


OURS = {"cert_file": "client.pem", "key_file": "client.key"}


async def test_the_right_certificates_are_accepted_both_ways(tls_port, keys):
    facts = await examine(
        settings(keys, tls_port, ca_file="broker.pem", **OURS), system_seconds_max=0
    )

    assert (facts.version or "").startswith("mosquitto version ")
    assert "subscribe" in facts.logs


@pytest.mark.parametrize(
    ("host", "files", "wanted"),
    [
        ("127.0.0.1", {"ca_file": "other.pem", **OURS}, "certificate not accepted: "),
        ("127.0.0.1", OURS, "certificate not accepted: self"),
        ("localhost", {"ca_file": "broker.pem", **OURS}, "certificate not accepted: Hostname mis"),
        ("127.0.0.1", {"ca_file": "broker.pem"}, ""),
        (
            "127.0.0.1",
            {"ca_file": "broker.pem", "cert_file": "other.pem", "key_file": "other.key"},
            "",
        ),
    ],
)
async def test_a_wrong_certificate_on_either_side_is_one_line(host, files, wanted, tls_port, keys):
    told = settings(keys, tls_port, host=host, **files)

    with pytest.raises(LinkError, match=f"mqtts://{host}:{tls_port}: .*{wanted}") as raised:
        async with BrokerProbe(told.broker, client_id="federator-1-test") as probe:
            await probe.publish("a", b"")  # TLS 1.3 tells a refused client only after it connected

    assert "\n" not in str(raised.value)


async def test_an_old_tls_version_is_refused(keys):
    """A server that speaks TLS 1.1 at most gets no connection, whatever its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "broker.pem", keys / "broker.key")
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with serving(hang_up, ssl=context) as port:
        told = settings(keys, port, ca_file="broker.pem")

        with pytest.raises(LinkError, match=r"TLS: |connection reset"):
            async with BrokerProbe(told.broker, client_id="federator-1-test"):
                pass
