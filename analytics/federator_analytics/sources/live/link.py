"""The options of ``format("federator_mqtt")``, and one MQTT connection of a reader as they say.

Options are checked before anything is opened. A connection is paho's: a client id of its own, no
session left behind. Speed does not matter here: an answer is a few large messages.

Source: docs/analytics.md, "The live source", which has all options in a table.
"""

import secrets
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from federator_analytics.errors import InputMissingError, UnavailableError, UsageError
from federator_analytics.sources.live.keys import KEY_OPTIONS, Keys, read_keys

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

        Raises ``UsageError``: a file holds nothing of use.
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
    """What the options say, typed. Times in seconds."""

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
    keys: Keys


def read_options(told: Mapping[str, str]) -> Options:
    """The options, typed; their names are not case sensitive.

    Raises:
        UsageError: One is missing, unknown or out of range.
        InputMissingError: A file named by one is not there.
    """
    given = {key.lower(): value for key, value in told.items()}
    unknown = sorted(set(given) - {*_TEXTS, *_FILES, *KEY_OPTIONS, *_NUMBERS, *_CHOICES, "path"})
    if unknown:
        raise UsageError(f"federator_mqtt: option {unknown[0]} is not known")
    for key, wanted in _CHOICES.items():
        given.setdefault(key, wanted[0])
        if given[key].lower() not in wanted:
            raise UsageError(f"federator_mqtt: {key} is {given[key]}, {' or '.join(wanted)} wanted")
    urls = [url.strip() for url in given.get("broker", "").split(",") if url.strip()]
    if not urls:
        raise UsageError("federator_mqtt: option broker is missing, mqtt://HOST:PORT is wanted")
    access, federation = _access(given), _federation(given.get("federation", "fed"))
    return Options(
        places=tuple(place(url, access) for url in urls),
        federation=federation,
        discover=given["discover"].lower() == "true",
        latest=given["startingoffsets"].lower() == "latest",
        batches_max=_number(given, "maxbatchespertrigger"),
        fail_on_loss=given["failondataloss"].lower() == "true",
        connect_s=_number(given, "connecttimeoutms") / 1000,
        discover_s=_number(given, "discovertimeoutms") / 1000,
        answer_s=_number(given, "answertimeoutms") / 1000,
        heard_within_s=_number(given, "heardwithinms") / 1000,
        keys=read_keys(given, federation),
    )


def place(url: str, access: Access) -> Place:
    """A broker by its URL.

    Raises ``UsageError``: it is no ``mqtt://`` or ``mqtts://`` URL with a host.
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


KEEPALIVE_S = 30
CONNECT_S = 5.0
LOOP_S = 0.1
CLOSE_S = 1.0
QOS = 1

OnMessage = Callable[[str, bytes, bool], None]
"""Topic, payload, and whether it was retained."""


class Link:
    """A connection that subscribes ``topics`` whenever it comes up.

    Attributes:
        place: Where to.
        ready: The subscriptions stand.
        refused: Why the broker does not let us in, when it does not.
    """

    def __init__(self, place: Place, topics: Sequence[str], on_message: OnMessage) -> None:
        self.place = place
        self.ready = False
        self.refused = ""
        self._topics = [(topic, QOS) for topic in topics]
        self._on_message = on_message
        name = f"federator-analytics-{secrets.token_hex(8)}"
        self._client = client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name)
        client.connect_timeout = CONNECT_S
        client.reconnect_delay_set(1, 10)
        if place.access.username is not None:
            client.username_pw_set(place.access.username, place.access.password)
        if place.secure:
            client.tls_set_context(place.access.tls())
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_disconnect = self._disconnected
        client.on_message = self._came

    def start(self) -> None:
        """Connect, and connect again, in a thread of its own until ``close``."""
        host, port = self.place.address
        self._client.connect_async(host, port, KEEPALIVE_S)
        self._client.loop_start()

    def connect(self, within_s: float) -> None:
        """Connect and subscribe without a thread; ``turn`` keeps it going.

        Raises ``UnavailableError``: not within this time.
        """
        host, port = self.place.address
        end_s = time.monotonic() + within_s
        said, self.ready = "no answer", False
        while time.monotonic() < end_s:
            try:
                self._client.connect(host, port, KEEPALIVE_S)
                while not self.ready and not self.refused and time.monotonic() < end_s:
                    if self._client.loop(LOOP_S) != mqtt.MQTT_ERR_SUCCESS:
                        break
            except ssl.SSLCertVerificationError as error:
                raise UnavailableError(
                    f"broker {self.place.url}: {error.verify_message}"
                ) from error
            except OSError as error:
                said = str(error)
            if self.ready:
                return
            if self.refused:
                break
            time.sleep(LOOP_S)
        raise UnavailableError(f"broker {self.place.url}: {self.refused or said}")

    def turn(self, seconds: float = LOOP_S) -> bool:
        """Wait for messages and hand them over; whether the connection stands.

        Nothing is read from the socket in between, so a slow reader slows the sender.
        """
        return self._client.loop(seconds) == mqtt.MQTT_ERR_SUCCESS and not self.refused

    def subscribe_again(self) -> None:
        """Let the broker log once more what we subscribe."""
        self._client.subscribe(self._topics)

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish at QoS 1."""
        self._client.publish(topic, payload, QOS)

    def close(self) -> None:
        """Disconnect for good."""
        self._client.disconnect()
        self._client.loop_stop()
        end_s = time.monotonic() + CLOSE_S
        while self._client.socket() is not None and time.monotonic() < end_s:
            self._client.loop(LOOP_S)  # without a thread nobody else sends the goodbye
        # paho closes its inner sockets when it is collected, which a cycle would put off.
        self._client.on_connect = self._client.on_subscribe = None
        self._client.on_disconnect = self._client.on_message = None

    def _connected(
        self, client: mqtt.Client, data: object, flags: object, reason: ReasonCode, *_: object
    ) -> None:
        if reason.is_failure:
            self.refused = f"refused: {reason.getName()}"
        else:
            self.refused = ""
            client.subscribe(self._topics)

    def _subscribed(
        self, client: mqtt.Client, data: object, mid: int, reasons: list[ReasonCode], *_: object
    ) -> None:
        if any(reason.is_failure for reason in reasons):
            self.refused = f"may not subscribe {', '.join(topic for topic, _ in self._topics)}"
        else:
            self.ready = True

    def _disconnected(self, *_: object) -> None:
        self.ready = False

    def _came(self, client: mqtt.Client, data: object, message: mqtt.MQTTMessage) -> None:
        self._on_message(message.topic, bytes(message.payload), message.retain)
