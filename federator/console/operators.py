"""Operators: names and password hashes in a file, and limits on sign-in attempts.

A line is ``name:scrypt$n$r$p$salt$hash``, salt and hash in base64. Scrypt is from Python's own
library and slow on purpose, so one attempt is checked at a time, off the loop, and an unknown name
costs as much as a wrong password.

Attempts are limited, so strangers at many addresses can use up all of them. A browser in which an
operator signed in once keeps a *badge*, signed with the operator's line in the file: with it the
browser has attempts of its own, for that name alone, so strangers cannot lock it out. A badge ends
with the password; it grants no access.

Sessions are kept here, not in the cookie alone: they end when an operator signs out, is no longer
in the file, or has another password.

Source: RFC 7914; OWASP, "Slow Down Online Guessing Attacks with Device Cookies".
"""

import asyncio
import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final

from federator.config.all_brokers.console import OperatorsSettings
from federator.errors import ConfigError
from federator.protocol.bounded_cache import Recent
from federator.protocol.rate_limiter import WindowCounter
from federator.protocol.types import Millis

N, R, P = 2**14, 8, 1
"""Scrypt's parameters: 16 MiB and about 50 ms."""
SALT_BYTES: Final = 16
PASSWORD_MAX: Final = 1_024
PASSWORD_MIN: Final = 10
FILE_BYTES_MAX: Final = 1_048_576
NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
MINUTE_MS: Final = Millis(60_000)
SESSIONS_MAX: Final = 1_024
"""The oldest is forgotten first."""

BADGE_BYTES: Final = 16
BADGE_MAX: Final = 256

_MEMORY = 64 * 1024 * 1024


class Operators:
    """Checks attempts to sign in."""

    def __init__(self, settings: OperatorsSettings) -> None:
        self._settings = settings
        self.refused = 0  # refused attempts
        self._one = asyncio.Lock()
        self._tried: WindowCounter[str] = WindowCounter(window_ms=MINUTE_MS)
        self._tried_with_badge: WindowCounter[str] = WindowCounter(window_ms=MINUTE_MS)
        self._sessions: Recent[str, tuple[str, str, Millis]] = Recent(SESSIONS_MAX)

    @property
    def any(self) -> bool:
        """Whether operators can sign in at all."""
        return self._settings.file is not None

    def may_try(self, address: str, name: str, badge: str, now_ms: Millis) -> bool:
        """Count one more attempt; return whether it is allowed in this minute.

        Half of them are left to other addresses, and a genuine badge of ``name`` uses none: a
        stranger must not lock operators out.

        Raises:
            ConfigError: The file cannot be used.
        """
        most = self._settings.attempts_per_min
        if self._is_genuine(badge, name):
            tried, key, all_tried = self._tried_with_badge.so_far(now_ms), badge, 0
        else:
            tried, key = self._tried.so_far(now_ms), address
            all_tried = tried.total()
        if tried[key] >= -(-most // 2) or all_tried >= most:
            self.refused += 1
            return False
        tried[key] += 1
        return True

    def badge(self, name: str) -> str:
        """The badge that a browser keeps after the operator ``name`` signed in."""
        drawn = secrets.token_hex(BADGE_BYTES)
        return f"{drawn}.{_signed(self._line(name), drawn)}"

    def _is_genuine(self, badge: str, name: str) -> bool:
        drawn, _, signature = badge[:BADGE_MAX].partition(".")
        if not signature or not NAME.fullmatch(name):
            return False
        line = self._line(name)
        return bool(line) and hmac.compare_digest(_signed(line, drawn).encode(), signature.encode())

    def begin(self, name: str, now_ms: Millis) -> str:
        """The token of a new session of the operator ``name``."""
        token = secrets.token_hex(16)
        until_ms = Millis(now_ms + 1_000 * self._settings.session_s)
        self._sessions.put(token, (name, self._line(name), until_ms))
        return token

    def end(self, token: str) -> None:
        """End a session, if it exists."""
        self._sessions.pop(token, None)

    def whose(self, token: str, now_ms: Millis) -> str | None:
        """The operator of a session, if it is valid and the password is still the same."""
        name, line, until_ms = self._sessions.get(token, ("", "", Millis(0)))
        if not name or now_ms >= until_ms:
            return None
        try:
            return name if self._line(name) == line else None
        except ConfigError:
            return None

    def _line(self, name: str) -> str:
        return read(self._settings.file).get(name, "") if self._settings.file is not None else ""

    async def is_one(self, name: str, password: str) -> bool:
        """Whether ``name`` is an operator and ``password`` is right.

        Raises:
            ConfigError: The file cannot be used.
        """
        async with self._one:
            is_right = await asyncio.to_thread(self._is_valid, name, password)
        self.refused += not is_right
        return is_right

    def _is_valid(self, name: str, password: str) -> bool:
        if self._settings.file is None:
            return False
        hashes = read(self._settings.file)
        line = hashes.get(name, _NOBODYS)
        return matches(line, password) and name in hashes


def read(path: Path) -> dict[str, str]:
    """Hashes by name.

    Raises:
        ConfigError: The file cannot be read, or has a malformed line.
    """
    try:
        with path.open(encoding="utf-8") as file:
            lines = file.read(FILE_BYTES_MAX).splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"operators.file: {path}: {reason.lower()}", exit_code=77) from error
    hashes = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, hashed = line.strip().partition(":")
        if not NAME.fullmatch(name) or _parts(hashed) is None:
            text = f"operators.file: {path}:{number}: no name:hash: make it with --add-operator"
            raise ConfigError(text, exit_code=78)
        hashes[name] = hashed
    return hashes


def hashed(password: str, salt: bytes | None = None) -> str:
    """The hash of ``password``, as written in the file."""
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    key = _scrypt(password, salt)
    return f"scrypt${N}${R}${P}${b64encode(salt).decode()}${b64encode(key).decode()}"


def matches(line: str, password: str) -> bool:
    """Whether ``password`` matches the hash."""
    parts = _parts(line)
    if parts is None or len(password) > PASSWORD_MAX:
        return False
    salt, key = parts
    return hmac.compare_digest(_scrypt(password, salt), key)


def _signed(line: str, drawn: str) -> str:
    return hmac.digest(line.encode(), f"badge {drawn}".encode(), "sha256").hex()


def _parts(line: str) -> tuple[bytes, bytes] | None:
    match line.split("$"):
        case ["scrypt", n, r, p, salt, key] if (n, r, p) == (str(N), str(R), str(P)):
            try:
                return b64decode(salt, validate=True), b64decode(key, validate=True)
            except ValueError:
                return None
    return None


def _scrypt(password: str, salt: bytes) -> bytes:
    text = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=N, r=R, p=P, maxmem=_MEMORY, dklen=32)


_NOBODYS: Final = (
    f"scrypt${N}${R}${P}${b64encode(bytes(SALT_BYTES)).decode()}${b64encode(bytes(32)).decode()}"
)
"""Matches no password, and takes as long to check as a real hash."""
