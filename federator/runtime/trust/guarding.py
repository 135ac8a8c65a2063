"""The guard of one agent at work: made from key files, reloaded when they change.

Key files are read again when they change, so an operator changes keys by replacing files. A new
list of revocations goes to every neighbour, and all our lists go to a neighbour that comes up: so
they reach every connected agent, and stop where they are known. The newest is kept in the state
folder.

Source: docs/security.md.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from federator.config.security import REVOCATIONS_KEPT
from federator.config.settings import Settings
from federator.errors import ConfigError, DecodeError
from federator.protocol.messages.codec import decode
from federator.protocol.messages.control import Hello, Message, Revoked
from federator.protocol.trust.authority import Authority
from federator.protocol.trust.certificates import SIGNED_BYTES_MAX, Role
from federator.protocol.trust.greetings import SALT_BYTES
from federator.protocol.trust.guard import DATA, Guard, Manner
from federator.protocol.types import BrokerId, ConnId
from federator.runtime.mqtt.parts import Part
from federator.runtime.process.clocks import wall_clock_ms
from federator.runtime.storage import damage
from federator.runtime.storage.durable import write_whole
from federator.runtime.trust.identities import identity, verify
from federator.runtime.trust.key_files import FILES_CHECKED_S, KeyFiles, take_up
from federator.runtime.trust.words import SignedWords

_log = structlog.get_logger()


class TurnedAwayError(DecodeError):
    """A message is refused, which was counted and logged."""


def _now_s() -> int:
    return wall_clock_ms() // 1000


class Trust:
    """The guard of one agent in signed or sealed mode, with its keys.

    Attributes:
        words: Signs messages for other programs than agents, and verifies theirs.
        proves: Whether frames under custody are proven.

    Raises:
        ConfigError: Keys cannot be used.
    """

    def __init__(self, settings: Settings, state_dir: Path) -> None:
        self._settings = settings
        self.proves = settings.security == "proven"
        self._lists_file = state_dir / REVOCATIONS_KEPT
        issued_in = settings.key_federation
        authority = Authority(issued_in, settings.keys.federation_keys(issued_in), verify)
        self._read_lists(authority)
        agent_keys = settings.keys.agent_keys()
        try:
            self.guard = Guard(
                federation=settings.federation,
                authority=authority,
                verify=verify,
                identity=identity(agent_keys),
                certificate=agent_keys.certificate,
                salt=secrets.token_bytes(SALT_BYTES),
                manner=Manner.SEALED if settings.security == "sealed" else Manner.SIGNED,
                now_s=_now_s,
            )
        except DecodeError as error:
            text = f"keys.agent_file: {settings.keys.agent_file}: {error}: issue another"
            raise ConfigError(text, exit_code=78) from error
        required: tuple[Role, ...] = ("steerer",)
        if settings.keys.roles == "required":
            required = ("gateway", "operator", "collector", "steerer")
        self.words = SignedWords(
            authority,
            vouch=self.guard.vouch,
            required=required,
        )
        keys = settings.keys
        self._files = KeyFiles([keys.agent_file, *keys.federation_files, keys.revocations_file])

    # -- what arrives --------------------------------------------------------------------------

    def read(self, kind: str, payload: bytes, has_namesake: Callable[[Hello], bool]) -> Message:
        """The control message in ``payload``. ``has_namesake`` is as of ``Guard.admit``.

        Raises:
            TurnedAwayError: It is not authentic.
            DecodeError: It is authentic, but malformed.
        """
        try:
            sender, body, greeting = self.guard.read(kind, payload)
        except DecodeError as error:
            raise self._turned_away(kind, error) from None
        message = decode(kind, body)
        try:
            self.guard.admit(sender, message, greeting, has_namesake)
        except DecodeError as error:
            raise self._turned_away(kind, error) from None
        return message

    def _turned_away(self, kind: str, error: DecodeError) -> TurnedAwayError:
        self.words.refuse(kind, error)
        return TurnedAwayError(str(error))

    def open_frame(self, payload: bytes) -> tuple[BrokerId, bytes] | None:
        """The sender by the seal, and the frame; ``None`` when it was refused."""
        try:
            return self.guard.unseal(DATA, "data", payload)
        except DecodeError as error:
            self.words.refuse("data", error)
            return None

    # -- revocations ---------------------------------------------------------------------------

    def on_revoked(self, message: Revoked) -> bool:
        """Apply a neighbour's revocations; return whether they are new, to be passed on."""
        news = False
        for data in message.lists:
            try:
                news |= self.guard.authority.revoke(data)
            except DecodeError as error:
                self.words.refuse("ctl", error)
        if news:
            self._on_new_lists()
        return news

    def _on_new_lists(self) -> None:
        lists = self.guard.authority.revocations
        try:
            write_whole(self._lists_file, b"".join(map(damage.piece, lists)))
        except OSError as error:
            _log.error("trust.not_saved", file=str(self._lists_file), reason=str(error))
        _log.warning("trust.revocations", lists=len(lists))
        self.drop_distrusted()

    def drop_distrusted(self) -> None:
        """Drop neighbours without a valid certificate."""
        for id_ in self.guard.forget_distrusted():
            _log.warning("trust.dropped", neighbour=id_)

    def _read_lists(self, authority: Authority) -> None:
        stored: list[bytes] = []
        with contextlib.suppress(FileNotFoundError):
            stored = _stored_lists(self._lists_file)
        for data in [*stored, self._settings.keys.revocations()]:
            take_up(data, authority)

    # -- changing keys -------------------------------------------------------------------------

    def follow_files(self) -> bool:
        """Apply changed key files; return whether there are new revocations to pass on."""
        self._files.tell_expiry(self.guard.ours.certificate.expires_s)
        self.drop_distrusted()
        before = self.guard.authority.revocations
        self._files.follow(self._reload)
        return self.guard.authority.revocations != before

    def _reload(self) -> None:
        keys = self._settings.keys
        trusted = keys.federation_keys(self._settings.key_federation)
        agent_keys, revocations = keys.agent_keys(), keys.revocations()
        if agent_keys.certificate == self.guard.ours.data:
            self.guard.authority.retrust(trusted)
        else:
            self.guard.renew(identity(agent_keys), agent_keys.certificate, trusted=trusted)
            serial = self.guard.ours.certificate.serial.hex()
            _log.info("trust.certificate_changed", serial=serial)
        if take_up(revocations, self.guard.authority):
            self._on_new_lists()
        self.drop_distrusted()

    def snapshot(self) -> dict[str, object]:
        """The state for operators at ``/status``."""
        certificate = self.guard.ours.certificate
        return {
            "serial": certificate.serial.hex(),
            "expires_s": certificate.expires_s,
            "trusted_keys": len(self.guard.authority.trusted),
            "refused": sum(self.words.refused.values()),
            "run": self.guard.ours.salt.hex(),
        }


@dataclass(eq=False, repr=False)
class KeyWatcher:
    """Keeps an agent's keys in step with their files, and its neighbours with revocations.

    Args:
        neighbours: Connections to neighbours that are up.
        send: Sends over one of them, if it still exists.
    """

    self_id: BrokerId
    trust: Trust
    neighbours: Callable[[], Iterable[ConnId]]
    send: Callable[[ConnId, Revoked], None]

    def part(self) -> Part:
        return Part(messages={Revoked: self.on_revoked}, tasks={"keys": self.run})

    async def run(self) -> None:
        """Follow the files until cancelled."""
        while True:
            await asyncio.sleep(FILES_CHECKED_S)
            if self.trust.follow_files():
                self.pass_on()

    def on_revoked(self, message: Revoked) -> None:
        """Apply a neighbour's revocations, and pass new ones on to all."""
        if self.trust.on_revoked(message):
            self.pass_on()

    def pass_on(self, *, to: ConnId | None = None) -> None:
        """Send all revocations to one neighbour that came up, or to all neighbours."""
        lists = self.trust.guard.authority.revocations
        if lists:
            for conn in [to] if to is not None else list(self.neighbours()):
                self.send(conn, Revoked(self.self_id, tuple(lists)))


def _stored_lists(path: Path) -> list[bytes]:
    """The lists in ``path``; damage is reported."""
    content = path.read_bytes()
    lost: list[int] = []
    pieces = damage.read_pieces(content, 0, len(content), lambda at, end: lost.append(end - at))
    sound = [content[at:end] for at, end in pieces]
    if not sound and (former := _unframed(content)):
        return former
    if lost or not content:
        damage.tell(path, "revocations in it are damaged", lost_bytes=sum(lost))
    return sound


def _unframed(data: bytes) -> list[bytes]:
    """The lists in a file of an older release; none when it is no such file."""
    lists: list[bytes] = []
    while len(data) >= 4 and (size := int.from_bytes(data[:4], "big")) <= SIGNED_BYTES_MAX:
        lists.append(data[4 : 4 + size])
        data = data[4 + size :]
    return lists if not data else []
