"""What the containers must know and nobody else: ``make_keys.py ID...``, ids of brokers.

Each container has a volume of its own, mounted here below ``/made``; nobody can read what is
another's. Whatever exists is left as it is, so this may run at every start, and a volume that was
removed is filled anew. Brokers get PBKDF2 hashes, as ``mosquitto_passwd`` writes them.

- ``/office``: the federation's secret key, what was issued, the passwords;
- ``/made/agent-ID``: its key, the federation's public key, what was revoked, its password at its
  own broker, and the one of agents at their neighbours' brokers;
- ``/made/broker-ID``: hashes of the passwords, and the least rights of each user;
- ``/made/gateway``, ``/made/collector`` and ``/made/console``: their passwords; the console's
  operator's key, too, with which it asks agents.
"""

import base64
import hashlib
import os
import secrets
import subprocess
import sys
from pathlib import Path

OFFICE, MADE = Path("/office"), Path("/made")
FEDERATOR_USER, MOSQUITTO_USER = 10001, 1883
AGENT, PEER, GATEWAY, COLLECTOR, CONSOLE = "agent", "peer", "gateway", "collector", "console"
"""Users at the brokers."""

SALT_BYTES, ROUNDS = 12, 101
"""What every Mosquitto 2 reads. Few rounds will do: nobody guesses 32 random bytes."""


def put(path: Path, content: bytes, owner: int) -> None:
    """A file for ``owner`` alone, whole or not at all; one that is so already stays."""
    if not path.exists() or path.read_bytes() != content:
        partial = path.with_name(f".{path.name}.new")
        partial.write_bytes(content)
        partial.replace(path)
    path.chmod(0o600)
    os.chown(path, owner, owner)


def folder(path: Path, owner: int) -> Path:
    """A folder of ``owner``."""
    path.mkdir(exist_ok=True)
    os.chown(path, owner, owner)
    return path


def password(name: str) -> bytes:
    """The one of that name, made at the first call."""
    path = OFFICE / f"{name}.password"
    if not path.exists():
        put(path, secrets.token_urlsafe(32).encode() + b"\n", 0)
    return path.read_bytes()


def hashed(secret: bytes, salt: bytes) -> str:
    """A password as Mosquitto keeps it."""
    digest = hashlib.pbkdf2_hmac("sha512", secret.strip(), salt, ROUNDS)
    encoded = [base64.b64encode(part).decode() for part in (salt, digest)]
    return f"$7${ROUNDS}${encoded[0]}${encoded[1]}"


def keys(*arguments: str) -> None:
    """``federator keys``, which says what it does."""
    subprocess.run(["federator", "keys", *arguments], check=True)


def prepare_agent(broker: int) -> None:
    """Fill the volume of one agent."""
    here = folder(MADE / f"agent-{broker}", FEDERATOR_USER)
    key = folder(here / "keys", FEDERATOR_USER) / "agent.key"
    if not key.exists():
        made = OFFICE / f"agent-{broker}.key"
        made.unlink(missing_ok=True)
        keys("issue", "--dir", str(OFFICE), "--broker", str(broker))
        put(key, made.read_bytes(), FEDERATOR_USER)
        made.unlink()  # nobody but the agent needs it
    put(here / "keys" / "federation.pub", (OFFICE / "federation.pub").read_bytes(), FEDERATOR_USER)
    if (OFFICE / "revocations").exists():
        put(here / "keys" / "revocations", (OFFICE / "revocations").read_bytes(), FEDERATOR_USER)
    put(here / "password", password(f"{AGENT}-{broker}"), FEDERATOR_USER)
    put(here / "peer.password", password(PEER), FEDERATOR_USER)


def prepare_console() -> None:
    """Fill the volume of the console."""
    here = folder(MADE / CONSOLE, FEDERATOR_USER)
    key = here / "operator.key"
    if not key.exists():
        made = OFFICE / f"operator-{CONSOLE}.key"
        made.unlink(missing_ok=True)
        keys("issue", "--dir", str(OFFICE), "--role", "operator", "--name", CONSOLE)
        put(key, made.read_bytes(), FEDERATOR_USER)
        made.unlink()
    put(here / "federation.pub", (OFFICE / "federation.pub").read_bytes(), FEDERATOR_USER)


def prepare_broker(broker: int) -> None:
    """Fill the volume of one broker."""
    here = folder(MADE / f"broker-{broker}", MOSQUITTO_USER)
    secrets_of = {user: password(user) for user in (PEER, GATEWAY, COLLECTOR, CONSOLE)}
    secrets_of[AGENT] = password(f"{AGENT}-{broker}")
    lines = []
    for user, secret in secrets_of.items():
        salt = hashlib.sha256(secret + here.name.encode()).digest()[:SALT_BYTES]
        lines.append(f"{user}:{hashed(secret, salt)}\n")
    put(here / "passwords", "".join(lines).encode(), MOSQUITTO_USER)
    put(here / "acl", least_rights(broker), MOSQUITTO_USER)


def least_rights(broker: int) -> bytes:
    """What ``federator doctor --acl`` writes for that broker."""
    others = [(user, user) for user in (PEER, GATEWAY, COLLECTOR, CONSOLE)]
    users = [("user", AGENT), *others]
    options = [word for option, user in users for word in (f"--{option}", user)]
    agent = {
        "FEDERATOR_BROKER__ID": str(broker),
        "FEDERATOR_BROKER__URL": f"mqtt://broker-{broker}",
        "FEDERATOR_SECURITY": "open",  # its keys are nowhere near, and rights are the same
    }
    command = ["federator", "doctor", "--acl", *options]
    return subprocess.run(command, env=os.environ | agent, check=True, capture_output=True).stdout


def main() -> None:
    """Make what is missing."""
    os.umask(0o077)
    brokers = [int(text) for text in sys.argv[1:]]
    if not (OFFICE / "federation.key").exists():
        keys("init", str(OFFICE))
    for user in (GATEWAY, COLLECTOR, CONSOLE):
        put(folder(MADE / user, FEDERATOR_USER) / "password", password(user), FEDERATOR_USER)
    prepare_console()
    for broker in brokers:
        prepare_agent(broker)
        prepare_broker(broker)
    print(f"keys and passwords of {len(brokers)} brokers are in place", flush=True)


main()
