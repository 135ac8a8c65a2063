"""The bridges in a ``mosquitto.conf``, read as Mosquitto reads them.

One option a line, words parted by spaces; everything behind a ``connection`` belongs to it, until
the next. Other options belong to the broker, and are skipped.

Source: mosquitto.conf(5), CONFIGURING BRIDGES; tried with 2.0.11.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from os import EX_CONFIG, EX_NOINPUT
from pathlib import Path
from typing import Final

from federator.errors import ConfigError
from federator.protocol.filters import validate_filter
from federator.protocol.policy.bridge_lines import DIRECTIONS, BridgeLine

INCLUDES_MAX = 64
"""Files that ``include_dir`` may name together."""

EMPTY: Final = '""'
PORT: Final = 1883

OF_BRIDGES: Final = {
    "address", "addresses", "topic", "round_robin", "start_type", "threshold", "idle_timeout",
    "restart_timeout", "notifications", "notifications_local_only", "notification_topic",
    "try_private", "cleansession", "local_cleansession", "keepalive_interval", "clientid",
    "remote_clientid", "local_clientid", "username", "remote_username", "password",
    "remote_password", "local_username", "local_password",
}  # fmt: skip
"""Options of a connection; those that begin with ``bridge_`` are, too."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, for people."""

    file: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def mistake(self, what: str) -> ConfigError:
        """Say ``what: how to mend`` of this line."""
        return ConfigError(f"{self}: {what}", exit_code=EX_CONFIG)


@dataclass(slots=True)
class Connection:
    """A bridge: its addresses, its topics, and its other options."""

    name: str
    place: Place
    addresses: list[str] = field(default_factory=list)  # host:port
    topics: list[tuple[Place, BridgeLine]] = field(default_factory=list)
    options: dict[str, tuple[Place, str]] = field(default_factory=dict)

    def value_of(self, *names: str) -> str | None:
        """The value of the first given option of ``names``."""
        return next((self.options[name][1] for name in names if name in self.options), None)


def read_bridges(path: Path) -> list[Connection]:
    """The bridges of ``path`` and of the folders it includes, in order.

    Raises ``ConfigError``: a file, or one of its lines, cannot be read.
    """
    found: list[Connection] = []
    for place in _lines(path):
        option, _, rest = place.text.partition(" ")
        value = rest.strip()
        if option == "connection":
            if not value:
                raise place.mistake("connection has no name: write connection NAME")
            if any(other.name == value for other in found):
                raise place.mistake(f"connection {value} is there twice: give each its own name")
            found.append(Connection(value, place))
        elif option in OF_BRIDGES or option.startswith("bridge_"):
            if found:
                _take(found[-1], place, option, value)
            elif option in ("address", "addresses", "topic"):
                raise place.mistake(f"{option} before any connection: write connection NAME first")
    for bridge in found:
        if not bridge.addresses:
            raise bridge.place.mistake(f"connection {bridge.name} has no address: add address HOST")
    return found


def _lines(path: Path, *, nested: bool = False) -> Iterator[Place]:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{path}: {reason}: name the configuration of a Mosquitto", exit_code=EX_NOINPUT
        ) from error
    except UnicodeDecodeError as error:
        what = "is not text in UTF-8: name the configuration of a Mosquitto"
        raise ConfigError(f"{path}: {what}", exit_code=EX_CONFIG) from error
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        option, *rest = stripped.split(maxsplit=1)
        place = Place(path, number, " ".join((option, *rest)))
        if option != "include_dir" or nested:
            yield place
            continue
        folder = path.parent / rest[0] if rest else path.parent
        files = sorted(folder.glob("*.conf"), key=lambda file: file.name.lower())
        if not folder.is_dir() or len(files) > INCLUDES_MAX:
            what = f"{str(folder)!r} is no folder of at most {INCLUDES_MAX} files"
            raise place.mistake(f"include_dir {what}: correct it")
        for file in files:
            yield from _lines(file, nested=True)


def _take(bridge: Connection, place: Place, option: str, value: str) -> None:
    if not value:
        raise place.mistake(f"{option} says nothing: give it a value, or remove it")
    if option in ("address", "addresses"):
        bridge.addresses += [_address(place, word) for word in value.split()]
    elif option == "topic":
        bridge.topics.append((place, _topic(place, value)))
    else:
        bridge.options[option] = place, value


def _address(place: Place, text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(PORT)
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
        raise place.mistake(f"address {text!r} is no host and port: write one like gateway:1883")
    plain = host.strip("[]")
    return f"[{plain}]:{int(port)}" if ":" in plain else f"{plain}:{int(port)}"


def _topic(place: Place, value: str) -> BridgeLine:
    words = value.split()[:5]  # further words have no meaning
    pattern, direction, qos, *prefixes = (*words, *("#", "out", "0")[len(words) :])
    if direction not in DIRECTIONS:
        raise place.mistake(f"topic: {direction!r} is no direction: write out, in or both")
    if qos not in ("0", "1", "2"):
        raise place.mistake(f"topic: {qos!r} is no QoS: write 0, 1 or 2")
    halves = [pattern, *prefixes, *("", "")][:3]
    pattern, local, remote = ("" if half == EMPTY else half for half in halves)
    if not pattern and not (local and remote):
        mend = "write a pattern, or the one topic here and the one there"
        raise place.mistake(f'topic "" needs a local and a remote topic: {mend}')
    line = BridgeLine(pattern, direction, local=local, remote=remote)
    for side, filter in (("local", line.local_filter), ("remote", line.remote_filter)):
        try:
            validate_filter(filter)
        except ValueError as error:
            what = f"topic: {filter[:60]!r}, its {side} side, is no topic filter ({error})"
            raise place.mistake(f"{what}: correct the pattern or its prefix") from None
    for prefix in (local, remote):
        if "#" in prefix or "+" in prefix:
            what = f"topic: {prefix[:60]!r} is a prefix with a wildcard"
            raise place.mistake(f"{what}: wildcards stand in the pattern")
    return line
