"""What the README says under "On your own brokers", done on two hosts as it is printed."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^ *```sh (?P<host>\S+)\n(?P<text>.*?)^ *```$", re.M | re.S)
SECONDS_MAX = 600  # "under ten minutes"
PATIENCE_S = 60


class Host(Protocol):
    """A machine of the reader's, called ``site-1`` or ``site-2``."""

    name: str

    def run(self, commands: str, *, outside: bool = False) -> str:
        """What ``commands`` print, in the folder of the clone; ``outside``: by our network."""


def blocks() -> list[tuple[str, str]]:
    """Host and commands of each block of the section, in order."""
    _, section = (ROOT / "README.md").read_text("utf-8").split("## On your own brokers\n")
    section = section.split("\n## ")[0]
    return [(each["host"], each["text"]) for each in BLOCK.finditer(section)]


def follow_readme(one: Host, two: Host) -> float:
    """Do it all, look at what it leads to; the seconds that it took.

    Raises:
        AssertionError: Something else is printed than the README promises; tells all so far.
    """
    began_s = time.monotonic()
    told: list[str] = []
    hosts = {"site-1": [one], "site-2": [two], "both": [one, two]}
    for number, (where, commands) in enumerate(blocks()):
        for host in hosts[where]:
            if "mosquitto_sub" in commands:
                _until(lambda: "ready, joined" in one.run("federator status"), told)
            if "mosquitto_pub" in commands:
                _until(lambda: "hall/#" in two.run("federator explain hall/temperature"), told)
            printed = host.run(commands, outside=number == 0)
            told.append(f"--- {host.name}\n{commands}\n{printed}")
            if "keys init" in commands:
                _bring_keys(one, two)
            if "federator run" in commands:
                assert "cannot take part yet" in printed, "\n".join(told)
                assert "\ncan take part" in printed, "\n".join(told)

    _until(lambda: one.run("cat heard.txt") == "hall/temperature 21.5\n", told)
    assert "security: signed" in one.run("federator status")
    took_s = time.monotonic() - began_s
    assert took_s < SECONDS_MAX
    return took_s


def _bring_keys(one: Host, two: Host) -> None:
    for host, names in (
        (one, ("agent-1.key", "federation.pub")),
        (two, ("agent-2.key", "federation.pub")),
    ):
        for name in names:
            text = one.run(f"cat office/{name}")
            assert text.startswith("{"), text
            write = f"cat >/etc/federator/{name} <<'END'\n{text}END"
            host.run(f"umask 77; mkdir -p /etc/federator; {write}")


def _until(holds: Callable[[], bool], told: list[str]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, "\n".join(told)
        time.sleep(0.1)
