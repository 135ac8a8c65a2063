"""Brokers in the configuration: their addresses, and our credentials there.

Rules between fields are validators that name the key to mend (``wrong``). Only ``secret``,
``proxy_login`` and the TLS contexts open files.
"""

import ipaddress
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from annotated_types import Interval, Len, MaxLen

from federator.config.certificates import client_context
from federator.config.section import (
    STRICT,
    BrokerNumber,
    Core,
    Passes,
    SecretFile,
    Section,
    Takes,
    WholeNumber,
    readable_by,
    wrong,
)
from federator.config.topics import TopicFilters, check_conflict
from federator.config.transports import Transport
from federator.protocol.effects import Notice
from federator.protocol.messages.broker_names import NAME_BYTES_MAX, objection_to
from federator.protocol.policy.rules import EVERYTHING, LinkRules

URL_CHARACTERS_MAX = 512
_DEFAULT_PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
_DEFAULT_PATH: Final = "/mqtt"
_PATH: Final = re.compile(r"/[!$&-;=@-Z_a-z~%]*")
PASSWORD_BYTES_MAX = 65_535  # MQTT's own bound
USERNAME_CHARACTERS_MAX = 1_024
SOCKET_PATH_BYTES_MAX = 107  # what a socket's address has room for

Dial = Literal["both", "out"]


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine by its spelling alone; no name is looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Address:
    """The address where a broker listens.

    Attributes:
        path: Path of its WebSockets; ``None``: plain MQTT.
    """

    host: str
    port: int
    tls: bool
    path: str | None = None

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read ``mqtt[s]://host[:port]``, or ``ws[s]://host[:port][/path]``.

        Raises ``ValueError``: ``what: how to mend``.
        """
        shown = repr(url[:60])
        if len(url) > URL_CHARACTERS_MAX or not url.isprintable() or " " in url:
            raise ValueError(f"{shown} is not a URL: write one like mqtt://gateway:1883")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            mend = "write mqtt://host:1883"
            if url.count(":") > 2 and "[" not in url:
                mend = "an IPv6 address stands in brackets: write mqtt://[2001:db8::1]:1883"
            raise ValueError(f"{shown} has a bad host or port: {mend}") from None
        if parts.scheme not in _DEFAULT_PORTS:
            mend = "use mqtt://host, mqtts://host, ws://host/path or wss://host/path"
            raise ValueError(f"{shown} has no scheme we know: {mend}")
        if "@" in parts.netloc:
            # Never shown: what stands before the @ is a secret.
            raise ValueError("the URL holds credentials: use username and password_file")
        path = (parts.path or _DEFAULT_PATH) if parts.scheme in ("ws", "wss") else None
        more = parts.query or parts.fragment
        if path is not None and (more or not _PATH.fullmatch(path)):
            raise ValueError(f"{shown} is not host, port and path only: write wss://host/mqtt")
        if not parts.hostname or (path is None and (more or parts.path.strip("/"))):
            raise ValueError(f"{shown} is not host and port only: write mqtt://host:1883")
        if port == 0:
            raise ValueError(f"{shown} has port 0: give 1 to 65535")
        tls = parts.scheme in ("mqtts", "wss")
        return cls(parts.hostname, port or _DEFAULT_PORTS[parts.scheme], tls, path)

    @property
    def with_tls(self) -> str:
        """The scheme for the same protocol with TLS."""
        return "mqtts://" if self.path is None else "wss://"

    @property
    def is_exposed(self) -> bool:
        """Whether connections cross a network unencrypted."""
        return not self.tls and not is_loopback(self.host)


Url = Annotated[str, readable_by(Address.parse)]


def _check_socket(path: str) -> None:
    """Refuse a path that cannot be a broker's Unix socket.

    Brokers name it in their logs, where white space ends it.
    """
    shown = repr(path[:60])
    if not Path(path).is_absolute() or not path.isprintable() or " " in path:
        raise ValueError(f"{shown} is no path of a socket: write one like /run/mosquitto/a.sock")
    if len(path.encode()) > SOCKET_PATH_BYTES_MAX:
        raise ValueError(f"{shown} is too long: at most {SOCKET_PATH_BYTES_MAX} bytes")


SocketPath = Annotated[str, readable_by(_check_socket)]


def _check_name(name: str) -> None:
    """Refuse a name that pages could not show beside an id."""
    if what := objection_to(name):
        raise ValueError(f"{what}: give at most {NAME_BYTES_MAX} bytes of printable text")


BrokerName = Annotated[str, readable_by(_check_name)]


def _parse_proxy(url: str) -> tuple[str, int]:
    """Host and port of ``http://host:port``. Raises ``ValueError``: ``what: how to mend``."""
    shown = repr(url[:60])
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if "@" in url:
        # Never shown: what stands before the @ is a secret.
        raise ValueError("the URL holds credentials: use proxy_username and proxy_password_file")
    if not (host and port) or parts.scheme != "http" or parts.path.strip("/"):
        raise ValueError(f"{shown} is no proxy: write one like http://proxy:3128")
    return host, port


ProxyUrl = Annotated[str, readable_by(_parse_proxy)]


class ProxySettings(Section):
    """The proxy for connections to neighbours' brokers, and our credentials there."""

    proxy: Annotated[ProxyUrl | None, Takes.RESTART] = None
    """The HTTP proxy, http://host:port, for connections to neighbours' brokers (CONNECT). The one
    in [links] applies to neighbours without their own."""
    proxy_username: Annotated[str | None, Takes.RESTART, Len(1, USERNAME_CHARACTERS_MAX)] = None
    """User name at the proxy (Basic)."""
    proxy_password_file: Annotated[Path | None, SecretFile.PASSWORD, Takes.RESTART] = None
    """File with the password at the proxy in its first line; closed to others."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.proxy_username is not None and self.proxy is None:
            raise wrong("proxy_username", "proxy_username without proxy", "add proxy, or remove it")
        if self.proxy_username is not None and ":" in self.proxy_username:
            raise wrong("proxy_username", "proxy_username holds a colon", "correct it")
        if (self.proxy_username is None) != (self.proxy_password_file is None):
            has, lacks = "proxy_username", "proxy_password_file"
            has, lacks = (has, lacks) if self.proxy_username else (lacks, has)
            raise wrong(has, f"{has} without {lacks}", f"add {lacks}, or remove {has}")

    @property
    def proxy_address(self) -> tuple[str, int] | None:
        """Host and port of the proxy, if one is configured."""
        return _parse_proxy(self.proxy) if self.proxy else None

    def proxy_login(self) -> bytes | None:
        """User name and password for the proxy, if any. Raises ``OSError``: the file is gone."""
        if self.proxy_username is None or self.proxy_password_file is None:
            return None
        return self.proxy_username.encode() + b":" + first_line(self.proxy_password_file)

    def with_proxy_of(self, other: "ProxySettings") -> Self:
        """These settings, with the proxy of ``other`` if they name none."""
        names = () if self.proxy else fields(ProxySettings)
        return replace(self, **{key.name: getattr(other, key.name) for key in names})

    @property
    def sends_password_in_clear(self) -> bool:
        """Whether our password for the proxy crosses a network unencrypted."""
        address = self.proxy_address
        return address is not None and bool(self.proxy_username) and not is_loopback(address[0])


def first_line(path: Path) -> bytes:
    """The secret in a file. Raises ``OSError``."""
    with path.open("rb") as file:
        return file.readline(PASSWORD_BYTES_MAX).rstrip(b"\r\n")


def check_pair(cert_file: Path | None, key_file: Path | None) -> None:
    """Refuse a certificate without its key, and a key without its certificate."""
    if (cert_file is None) != (key_file is None):
        has, lacks = ("cert_file", "key_file") if cert_file else ("key_file", "cert_file")
        raise wrong(has, f"{has} without {lacks}", f"add {lacks}, or remove {has}")


class Secret:
    """A text that ``repr`` hides. Not a dataclass: JSON encoders would write its field."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def __get_pydantic_core_schema__(cls, kind: object, handler: object) -> dict[str, Any]:
        return {
            "type": "function-after",
            "function": {"type": "no-info", "function": cls},
            "schema": {"type": "str", "max_length": PASSWORD_BYTES_MAX // 4},
            "metadata": {"pydantic_js_updates": {"format": "password", "writeOnly": True}},
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return "**********"


class Credentials(Section):
    """Credentials for a broker. Files are checked when the configuration is loaded."""

    username: Annotated[str | None, MaxLen(USERNAME_CHARACTERS_MAX)] = None
    """MQTT user name."""
    password: Secret | None = None
    """MQTT password. The configuration file must then be closed to others."""
    password_file: Annotated[Path | None, SecretFile.PASSWORD] = None
    """File with the password in its first line; closed to others."""
    ca_file: Path | None = None
    """PEM file of authorities that may sign the broker's certificate; the system's when absent."""
    cert_file: Path | None = None
    """PEM certificate we present."""
    key_file: Annotated[Path | None, SecretFile.KEY] = None
    """PEM key of cert_file, not encrypted; closed to others."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.password is not None and self.password_file is not None:
            raise wrong("password", "both password and password_file are set", "remove one")
        if self.username is None and (self.password or self.password_file):
            at = "password" if self.password else "password_file"
            raise wrong(at, "a password without a username", "add username")
        check_pair(self.cert_file, self.key_file)

    def secret(self) -> bytes | None:
        """The password, if any. Raises ``OSError``: its file is gone since it was checked."""
        if self.password is not None:
            return self.password.text.encode()
        return None if self.password_file is None else first_line(self.password_file)

    def verifying_context(self, now: datetime) -> ssl.SSLContext:
        """A context that verifies the broker and presents our certificate; raises as
        ``client_context``."""
        return client_context(
            ca_file=self.ca_file, cert_file=self.cert_file, key_file=self.key_file, now=now
        )


class BrokerAddress(Credentials):
    """A broker's address, and our credentials there."""

    url: Url
    """mqtt://host[:1883] or mqtts://host[:8883]; in WebSockets ws://host[:80][/mqtt] or
    wss://host[:443][/mqtt]."""

    @property
    def address(self) -> Address:
        """The parsed ``url``."""
        return Address.parse(self.url)

    @property
    def reached_at(self) -> str:
        """Where we connect to it, for people."""
        return self.url

    @property
    def reaching(self) -> tuple[object, ...]:
        """The address and the credentials, for comparison; without the contents of named files."""
        return tuple(getattr(self, key) for key in _REACHING)

    def tls_context(self, now: datetime) -> ssl.SSLContext | None:
        """``verifying_context`` for ``mqtts://`` and ``wss://``, otherwise ``None``."""
        return self.verifying_context(now) if self.address.tls else None

    def with_credentials_of(self, login: Credentials) -> Self:
        """This broker, with the credentials of ``login`` where it names none.

        A user name is taken with its password, and a certificate with its key.
        """
        names: list[str] = []
        if self.username is None:
            names += ["username", "password", "password_file"]
        if self.address.tls:
            names += ["ca_file"] if self.ca_file is None else []
            names += ["cert_file", "key_file"] if self.cert_file is None else []
        return replace(self, **{name: getattr(login, name) for name in names})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.address.tls:
            for name in ("ca_file", "cert_file"):
                if getattr(self, name) is not None:
                    what = f"{name} with {self.url}, which is without TLS"
                    raise wrong(name, what, f"use {self.address.with_tls}, or remove {name}")


def check_named_once(brokers: Iterable[BrokerAddress]) -> None:
    """Refuse two ``brokers`` at one address, and two of one id where they have ids."""
    places: dict[Address, int] = {}
    ids: set[int] = set()
    for index, broker in enumerate(brokers):
        id = getattr(broker, "id", None)
        if id in ids:
            what = f"broker id {id} appears twice"
            raise wrong(f"brokers.{index}.id", what, "remove one, or correct its id")
        if broker.address in places:
            what = f"{broker.url} is already brokers[{places[broker.address]}]"
            raise wrong(f"brokers.{index}.url", what, "name each broker once")
        places[broker.address] = index
        if id is not None:
            ids.add(id)


def in_clear(connections: Iterable[tuple[str, BrokerAddress]]) -> tuple[Notice, ...]:
    """Warnings at start about connections that send credentials in clear, by key."""
    return tuple(
        Notice("config.credentials_in_clear", "warning", {"key": f"{at}.url", "url": named.url})
        for at, named in connections
        if named.address.is_exposed and named.username
    )


def proxies_in_clear(holders: Iterable[tuple[str, ProxySettings]]) -> tuple[Notice, ...]:
    """Warnings about proxies that receive our password in clear."""
    return tuple(
        Notice(
            "config.credentials_in_clear", "warning", {"key": f"{at}.proxy", "url": holder.proxy}
        )
        for at, holder in holders
        if holder.sends_password_in_clear and holder.proxy is not None
    )


_REACHING: Final = tuple(key.name for key in fields(BrokerAddress))


class BrokerSettings(BrokerAddress):
    """The broker of this agent."""

    id: BrokerNumber
    """Unique in the federation; a smaller id is preferred as core."""
    name: BrokerName = ""
    """A label, shown beside its id, as `hall-3 (7)`; announced to all brokers with
    failover.enabled. At most 64 bytes of printable text. Nothing depends on it, and two brokers may
    share one."""
    advertise: Url | None = None
    """The URL at which other agents reach this broker, if url works only here."""
    socket: SocketPath | None = None
    """The broker's Unix socket, for this agent's connections; other agents use url."""
    priority: Annotated[WholeNumber, Interval(ge=-(2**31), lt=2**31)] = 0
    """A smaller number is preferred as core; equal numbers are ordered by id."""

    @property
    def reached_at(self) -> str:
        """Where we connect to our own broker, for people: its Unix socket if it has one."""
        return self.socket or self.url

    @property
    def advertised(self) -> str:
        """The URL announced to neighbours."""
        return self.advertise or self.url


CAPACITY_MIN: Final = 1_000
CAPACITY_MAX: Final = 10**12
_CAPACITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?([kMGT]?)(bit/s|B/(?:hour|day|month))")
_FACTORS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS: Final = {"bit/s": 1.0} | {
    f"B/{span}": 8 / seconds
    for span, seconds in {"hour": 3_600, "day": 86_400, "month": 30 * 86_400}.items()
}


def _bits_per_second(given: object) -> object:
    """Convert ``2 Mbit/s`` or ``20 GB/month`` to whole bit/s; return other types unchanged."""
    if not isinstance(given, str):
        return given
    shown, found = repr(given[:60]), _CAPACITY.fullmatch(given)
    if found is None:
        mend = (
            'write "2 Mbit/s" (kbit/s, Mbit/s, Gbit/s), "20 GB/month" (hour, day), or whole bit/s'
        )
        raise ValueError(f"{shown} is no capacity: {mend}")
    amount, factor, unit = found.groups()
    bits = round(float(amount) * _FACTORS[factor] * _UNITS[unit])
    if not CAPACITY_MIN <= bits <= CAPACITY_MAX:
        raise ValueError(f"{shown} is {bits} bit/s: give 1 kbit/s to 1000 Gbit/s")
    return bits


_BITS: Final = {"type": "int", "ge": CAPACITY_MIN, "le": CAPACITY_MAX}
Capacity = Annotated[
    int,
    STRICT,
    Interval(ge=CAPACITY_MIN, le=CAPACITY_MAX),
    Passes(_bits_per_second, raw=True),
    Core(json_schema_input_schema={"type": "union", "choices": [_BITS, {"type": "str"}]}),
]
"""bit/s, which may be written as text with a unit."""


class NeighbourSettings(BrokerAddress, ProxySettings):
    """A broker we talk to directly. Naming any one existing broker joins the federation."""

    id: BrokerNumber | None = None
    """When given, the neighbour must announce this id."""
    cost: Annotated[int, STRICT, Interval(ge=1, le=1_000_000)] | None = None
    """Cost of this link, instead of links.cost."""
    capacity: Capacity | None = None
    """What this link carries from here to there: bit/s, or text: "2 Mbit/s" (kbit/s, Gbit/s), or
    for a metered line its budget: "20 GB/month" (hour, day; kB, MB, TB). When absent it is learnt
    while the queue of the link grows. Shown beside its load, and reported to the steerer; it does
    not limit sending."""
    transport: Annotated[Transport | None, Takes.RESTART] = None
    """How frames reach this neighbour, instead of links.transport."""
    dial: Annotated[Dial | None, Takes.RESTART] = None
    """Which end connects, instead of links.dial."""
    imports: TopicFilters = EVERYTHING
    """Publications are taken from this neighbour when one of these matches,"""
    exports: TopicFilters = EVERYTHING
    """and handed to it when one of these does,"""
    deny: TopicFilters = ()
    """and never, in either direction, when one of these does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_conflict(self, "neighbour", self.deny, by="its deny")
        rules = {"import": self.imports != EVERYTHING, "export": self.exports != EVERYTHING}
        rules |= {"deny": bool(self.deny), "transport": self.transport is not None}
        for name, is_set in rules.items():
            if is_set and self.id is None:
                what = f"neighbour.{name} without neighbour.id"
                raise wrong(name, what, "add its id, by which it is known also when it calls us")

    def rules(self, denied: tuple[str, ...]) -> LinkRules:
        """The rules of this link, with the topics ``denied`` in the federation."""
        return LinkRules(imports=self.imports, exports=self.exports, deny=(*self.deny, *denied))
