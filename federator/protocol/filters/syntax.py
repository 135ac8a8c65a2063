"""The syntax of topics and topic filters.

A filter is a path of levels between slashes; a level may be empty. ``+`` stands for any one level
and must be a whole level; ``#`` stands for the rest of the path, the level above it included, and
must be the last level. ``$share/<group>/<filter>`` is a way to subscribe to ``<filter>``, not
another filter.

Source: OASIS MQTT 5.0, 1.5.4 (UTF-8), 4.7 (topics and filters), 4.8.2 (shared).
"""

import re
from typing import Final

TEXT_BYTES_MAX: Final = 65_535
"""UTF-8 bytes of a topic or filter: the wire format has two bytes for its length."""

LEVELS_MAX: Final = 201
"""Levels of a topic or filter. Mosquitto refuses more than 200 slashes; MQTT has no limit."""

QUOTED_MAX: Final = 80
"""Characters of a refused text that its error message quotes."""

SHARE: Final = "$share/"

_PLANE_ENDS = "".join(chr((plane << 16) + end) for plane in range(17) for end in (0xFFFE, 0xFFFF))
_REFUSED = re.compile(f"[\x01-\x1f\x7f-\x9f\ufdd0-\ufdef{_PLANE_ENDS}]")
"""Control characters and non-characters: a broker may close the connection that sends one, and
Mosquitto does. Our data connection would never stay up. OASIS MQTT 5.0, 1.5.4."""


def validate_topic(text: str) -> str:
    """Return ``text``, if a publication may have it as its topic.

    Raises:
        ValueError: It is not a topic; one line says why.
    """
    _check_text(text, "topic")
    if "+" in text or "#" in text:
        raise ValueError(f"topic {_quoted(text)}: wildcards belong in filters only")
    return text


def validate_filter(text: str) -> str:
    """Return ``text``, if a client may subscribe to it; ``$share/...`` is allowed.

    Raises:
        ValueError: It is not a filter; one line says why.
    """
    _check_text(text, "filter")
    path = text
    if text.startswith(SHARE):
        group, slash, path = text[len(SHARE) :].partition("/")
        if not group or "+" in group or "#" in group:
            raise ValueError(f"filter {_quoted(text)}: the share name is empty or has a wildcard")
        if not slash or not path:
            raise ValueError(f"filter {_quoted(text)}: no filter follows the share name")
    above, _, last = path.rpartition("/")
    if "#" in above or ("#" in last and last != "#"):
        raise ValueError(f"filter {_quoted(text)}: '#' must be the whole last level")
    if "+" in path and any("+" in level and level != "+" for level in path.split("/")):
        raise ValueError(f"filter {_quoted(text)}: '+' must be a whole level")
    return text


def unwelcome_in(text: str) -> str | None:
    """The first character of ``text`` for which a broker may close the connection, if any."""
    if text.isascii() and text.isprintable():  # nearly all are, and this check is ten times as fast
        return None
    match = _REFUSED.search(text)
    return match[0] if match is not None else None


def without_share(filter: str) -> str:
    """Return the filter in ``$share/<group>/<filter>``; any other unchanged."""
    if filter.startswith(SHARE):
        return filter[len(SHARE) :].partition("/")[2]
    return filter


def share_of(filter: str) -> tuple[str, str] | None:
    """Return group and filter of ``$share/<group>/<filter>``; ``None`` of any other."""
    if filter.startswith(SHARE):
        group, slash, path = filter[len(SHARE) :].partition("/")
        return (group, path) if slash else None
    return None


def may_travel(filter: str) -> bool:
    """Whether interest in ``filter`` may leave this broker.

    ``$SYS``, ``$CONTROL`` and our own ``$fed`` describe one broker: no filter with ``$`` leaves it.
    Strip ``$share/<group>/`` first.
    """
    return not filter.startswith("$")


def is_match_all(filter: str) -> bool:
    """Whether ``filter`` matches every topic but the ``$`` ones."""
    return filter in ("#", "+/#")


def _check_text(text: str, what: str) -> None:
    if not text:
        raise ValueError(f"{what} is empty: at least one character is needed")
    if "\0" in text:
        raise ValueError(f"{what} {_quoted(text)}: the null character is not allowed")
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} {_quoted(text)}: a lone surrogate has no UTF-8 form") from None
    if (character := unwelcome_in(text)) is not None:
        raise ValueError(f"{what} {_quoted(text)}: {character!a} is no character brokers take")
    if length > TEXT_BYTES_MAX:
        raise ValueError(f"{what} {_quoted(text)}: {length} bytes, {TEXT_BYTES_MAX} are allowed")
    if (levels := text.count("/") + 1) > LEVELS_MAX:
        raise ValueError(f"{what} {_quoted(text)}: {levels} levels, {LEVELS_MAX} are allowed")


def _quoted(text: str) -> str:
    return ascii(text if len(text) <= QUOTED_MAX else text[:QUOTED_MAX] + "...")
