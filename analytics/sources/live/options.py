"""The options of ``format("federator_mqtt")``, checked before anything is opened.

| option | default | |
| --- | --- | --- |
| broker | | ``mqtt://host:port`` of any brokers of the federation, comma separated; ``mqtts://`` |
| federation | fed | its name |
| discover | true | read the other brokers too, as the retained guide lists them |
| startingOffsets | earliest | or ``latest``: pass over what the spools hold at the first start |
| maxBatchesPerTrigger | 600 | of each spool; a batch is what an agent wrote in a second |
| failOnDataLoss | true | false: go on, and tell of what was lost as a record |
| username, password, passwordFile | | for every broker |
| caFile, certFile, keyFile | | TLS; certFile and keyFile must be on every worker |
| connectTimeoutMs | 10000 | until the first broker must have answered |
| discoverTimeoutMs | 5000 | how long the others may take after it until reading begins |
| answerTimeoutMs | 60000 | how long an agent may be silent while it is asked |
| heardWithinMs | 15000 | an agent silent for longer is not asked for anything new |
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from analytics.errors import InputMissingError, UsageError

PORTS = {"mqtt": 1883, "mqtts": 8883}
_TEXTS = ("broker", "federation", "username", "password", "passwordfile")
_FILES = ("cafile", "certfile", "keyfile")
_NUMBERS = {
    "maxbatchespertrigger": 600,
    "connecttimeoutms": 10_000,
    "discovertimeoutms": 5_000,
    "answertimeoutms": 60_000,
    "heardwithinms": 15_000,
}
_CHOICES = {
    "discover": ("true", "false"),
    "failondataloss": ("true", "false"),
    "startingoffsets": ("earliest", "latest"),
}
_NUMBER_MAX = 2**31 - 1


@dataclass(frozen=True)
class Access:
    """What a client needs to be let in, the same at every broker of a federation."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)  # PEM, so that workers need no file
    cert_file: str | None = None
    key_file: str | None = None

    def tls(self) -> ssl.SSLContext:
        """The TLS context of ``mqtts://``; the broker's certificate and name are checked.

        Raises:
            UsageError: A file holds nothing of use.
        """
        try:
            context = ssl.create_default_context(cadata=self.ca)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:
            files = "caFile" if self.cert_file is None else f"caFile, {self.cert_file} or its key"
            raise UsageError(f"federator_mqtt: {files} cannot be used: {error}") from error
        return context


@dataclass(frozen=True)
class Place:
    """One broker, and how to be let in."""

    url: str
    access: Access

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or PORTS[parts.scheme]

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken there."""
        return urlsplit(self.url).scheme == "mqtts"


@dataclass(frozen=True)
class Options:
    """What the table above says, typed. Times in seconds."""

    places: tuple[Place, ...]
    federation: str
    discover: bool
    latest: bool
    batches_max: int
    fail_on_loss: bool
    connect_s: float
    discover_s: float
    answer_s: float
    heard_within_s: float


def read_options(told: Mapping[str, str]) -> Options:
    """The options, typed; their names are not case sensitive.

    Raises:
        UsageError: One is missing, unknown or out of range.
        InputMissingError: A file named by one is not there.
    """
    given = {key.lower(): value for key, value in told.items()}
    unknown = sorted(set(given) - {*_TEXTS, *_FILES, *_NUMBERS, *_CHOICES, "path"})
    if unknown:
        raise UsageError(f"federator_mqtt: option {unknown[0]} is not known")
    for key, wanted in _CHOICES.items():
        given.setdefault(key, wanted[0])
        if given[key].lower() not in wanted:
            raise UsageError(f"federator_mqtt: {key} is {given[key]}, {' or '.join(wanted)} wanted")
    urls = [url.strip() for url in given.get("broker", "").split(",") if url.strip()]
    if not urls:
        raise UsageError("federator_mqtt: option broker is missing, mqtt://HOST:PORT is wanted")
    access = _access(given)
    return Options(
        places=tuple(place(url, access) for url in urls),
        federation=_federation(given.get("federation", "fed")),
        discover=given["discover"].lower() == "true",
        latest=given["startingoffsets"].lower() == "latest",
        batches_max=_number(given, "maxbatchespertrigger"),
        fail_on_loss=given["failondataloss"].lower() == "true",
        connect_s=_number(given, "connecttimeoutms") / 1000,
        discover_s=_number(given, "discovertimeoutms") / 1000,
        answer_s=_number(given, "answertimeoutms") / 1000,
        heard_within_s=_number(given, "heardwithinms") / 1000,
    )


def place(url: str, access: Access) -> Place:
    """A broker by its URL.

    Raises:
        UsageError: It is no ``mqtt://`` or ``mqtts://`` URL with a host.
    """
    wanted = "mqtt://HOST:PORT or mqtts://HOST:PORT is wanted"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises when out of range
    except ValueError as error:
        raise UsageError(f"federator_mqtt: broker {url}: {error}, {wanted}") from None
    if "@" in parts.netloc:
        hint = "use the options username and passwordFile"
        raise UsageError(f"federator_mqtt: broker at {parts.hostname}: a user in the URL: {hint}")
    if parts.scheme not in PORTS or not parts.hostname:
        raise UsageError(f"federator_mqtt: broker {url}: {wanted}")
    return Place(url, access)


def _federation(name: str) -> str:
    if not name or set(name) & set("+#/\0"):
        raise UsageError(f"federator_mqtt: federation {name!r}: one level of a topic is wanted")
    return name


def _number(given: Mapping[str, str], key: str) -> int:
    text = given.get(key, str(_NUMBERS[key]))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _NUMBER_MAX:
        raise UsageError(f"federator_mqtt: {key} is {text}, 1 to {_NUMBER_MAX} wanted")
    return int(text)


def _access(given: Mapping[str, str]) -> Access:
    password = given.get("password")
    if (file := given.get("passwordfile")) is not None:
        if password is not None:
            raise UsageError("federator_mqtt: password and passwordFile are both given")
        password = _text_of(file, "passwordFile").rstrip("\r\n")
    if password is not None and "username" not in given:
        raise UsageError("federator_mqtt: a password is given, but no username")
    if ("certfile" in given) != ("keyfile" in given):
        raise UsageError("federator_mqtt: certFile and keyFile are wanted together")
    for key in ("certfile", "keyfile"):
        if key in given:
            _text_of(given[key], key)
    ca = _text_of(given["cafile"], "caFile") if "cafile" in given else None
    return Access(given.get("username"), password, ca, given.get("certfile"), given.get("keyfile"))


def _text_of(file: str, key: str) -> str:
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputMissingError(f"federator_mqtt: {key} {file}: {reason}") from error
