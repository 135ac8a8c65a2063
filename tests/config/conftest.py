"""Configurations that can be used, to be spoilt by tests, and certificates to go with them."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

GOOD = """\
federation = "fed"
[broker]
id = 1
url = "mqtt://127.0.0.1:1883"
[[neighbours]]
url = "mqtt://127.0.0.1:2883"
"""

FOLLOWED = '[[brokers]]\nurl = "mqtt://one"\n'
BROKERS = '[[brokers]]\nid = 1\nurl = "mqtt://one"\n[[brokers]]\nid = 2\nurl = "mqtt://two:2883"\n'

_CA_CONFIG = """\
[ca]
default_ca = made
[made]
database = {folder}/index.txt
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a configuration file that others cannot read."""

    def written(text: str) -> Path:
        path = tmp_path / "federator.toml"
        path.write_text(text, "utf-8")
        path.chmod(0o600)
        return path

    return written


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good.pem and good.key, other.key, locked.key, expired.pem and expired.key."""
    openssl = shutil.which("openssl")
    assert openssl is not None, "tests need the openssl program"
    folder = tmp_path_factory.mktemp("certificates")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    make = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("good", "other"):
        out = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "100")
        run(*make, "-x509", "-subj", f"/CN={name}", *out)
    run("pkey", "-in", "good.key", "-aes256", "-passout", "pass:x", "-out", "locked.key")
    run(*make, "-subj", "/CN=expired", "-keyout", "expired.key", "-out", "expired.csr")
    (folder / "index.txt").touch()
    (folder / "ca.conf").write_text(_CA_CONFIG.format(folder=folder))
    lifetime = ("-startdate", "20200101000000Z", "-enddate", "20210101000000Z")
    sign = ("ca", "-batch", "-selfsign", "-config", "ca.conf", "-keyfile", "expired.key")
    run(*sign, *lifetime, "-in", "expired.csr", "-out", "expired.pem")
    for key in folder.glob("*.key"):
        key.chmod(0o600)
    return folder
