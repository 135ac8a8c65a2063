"""Certificates and keys of a moment, for brokers and clients that speak TLS."""

import shutil
import subprocess
from pathlib import Path


def make_keys(folder: Path) -> Path:
    """Put broker.pem for 127.0.0.1, client.pem and other.pem there, and their keys."""
    openssl = shutil.which("openssl")
    assert openssl is not None, "tests need the openssl program"
    for name in ("broker", "client", "other"):
        kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        about = ("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "30")
        command = [openssl, "req", "-x509", *kind, *about, *files]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        (folder / f"{name}.key").chmod(0o600)
    return folder


def tls_listener(keys: Path, port: int) -> tuple[str, ...]:
    """Configuration of a broker that speaks TLS there and wants the client's certificate."""
    return (
        f"listener {port} 127.0.0.1",
        f"certfile {keys}/broker.pem",
        f"keyfile {keys}/broker.key",
        f"cafile {keys}/client.pem",
        "require_certificate true",
    )


WEBSOCKETS = "protocol websockets"
"""What makes a listener one for WebSockets, behind its other lines."""


def websocket_listener(port: int) -> tuple[str, ...]:
    """Configuration of a broker that speaks MQTT in WebSockets there."""
    return (f"listener {port} 127.0.0.1", WEBSOCKETS)
