"""A broker's URL, parsed: where it is and whether the way there is encrypted."""

import ipaddress
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

URL_CHARACTERS_MAX = 512
_DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine by its spelling alone; no name is looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int
    tls: bool

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read ``mqtt://host[:port]`` or ``mqtts://host[:port]``.

        Raises:
            ValueError: With ``what: how to mend``.
        """
        shown = repr(url[:60])
        if len(url) > URL_CHARACTERS_MAX or not url.isprintable() or " " in url:
            raise ValueError(f"{shown} is not a URL: write one like mqtt://gateway:1883")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError(f"{shown} has a bad host or port: write mqtt://host:1883") from None
        if parts.scheme not in _DEFAULT_PORTS:
            raise ValueError(f"{shown} has no scheme we know: use mqtt://host or mqtts://host")
        if "@" in parts.netloc:
            # Never shown: what stands before the @ is a secret.
            raise ValueError("the URL holds credentials: use username and password_file")
        if parts.path.strip("/") or parts.query or parts.fragment or not parts.hostname:
            raise ValueError(f"{shown} is not host and port only: write mqtt://host:1883")
        if port == 0:
            raise ValueError(f"{shown} has port 0: give 1 to 65535")
        tls = parts.scheme == "mqtts"
        return cls(parts.hostname, port or _DEFAULT_PORTS[parts.scheme], tls)

    @property
    def is_exposed(self) -> bool:
        """Whether others on the way can read along."""
        return not self.tls and not is_loopback(self.host)
