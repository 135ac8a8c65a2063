"""What agents say, sealed: certificates, greetings, seals and their judgement are the daemon's own.

Secrets are drawn from the seed.
"""

import random
from collections.abc import Iterable
from functools import partial

from federator.errors import DecodeError
from federator.protocol.messages import codec
from federator.protocol.messages.control import Bye, Hello, Message
from federator.protocol.trust.authority import Authority
from federator.protocol.trust.certificates import Certificate, Signed, encode, signed_text
from federator.protocol.trust.guard import CONTROL, DATA, Guard, Manner
from federator.protocol.types import BrokerId
from federator.runtime.trust.crypto import SecretIdentity, verify
from lab.sim.data import FEDERATION, DataWorld
from lab.sim.network import Agent, Connection
from lab.sim.speech import Speech

NOW_S = 1_700_000_000
DAY_S = 86_400

_Keys = tuple[SecretIdentity, bytes]  # an agent's secrets, and its certificate


def _identity(rng: random.Random) -> SecretIdentity:
    return SecretIdentity(rng.randbytes(32), rng.randbytes(32))


def _issue(office: SecretIdentity, id: BrokerId, rng: random.Random) -> _Keys:
    ours = _identity(rng)
    certificate = Certificate(
        version=1,
        federation=FEDERATION,
        id=id,
        signing_key=ours.signing_key,
        exchange_key=ours.exchange_key,
        not_before_s=NOW_S - DAY_S,
        expires_s=NOW_S + DAY_S,
        serial=rng.randbytes(8),
    )
    text = encode(certificate)
    signature = office.sign(signed_text(Certificate, text))
    return ours, encode(Signed(office.signing_key, text, signature))


class Keyring:
    """The guard of one agent."""

    def __init__(
        self, world: DataWorld, keys: _Keys, trusted: bytes, salt: bytes, *, proves: bool
    ) -> None:
        self._world = world
        self.proves = proves
        self.guard = Guard(
            federation=FEDERATION,
            authority=Authority(FEDERATION, [trusted], verify),
            verify=verify,
            identity=keys[0],
            certificate=keys[1],
            salt=salt,
            manner=Manner.SIGNED,
            now_s=lambda: NOW_S,
        )

    def open_frame(self, payload: bytes) -> tuple[BrokerId, bytes] | None:
        """Who sealed a frame, and the frame; ``None`` when it was turned away."""
        try:
            return self.guard.unseal(DATA, "data", payload)
        except DecodeError:
            self._world.fired["refused data"] += 1
            return None


class SealedSpeech(Speech):
    """How agents write and read where each has a key; ``proven``: origins sign their frames."""

    def __init__(
        self, world: DataWorld, *, seed: int, ids: Iterable[BrokerId], proven: bool
    ) -> None:
        super().__init__(world)
        rng = random.Random(f"keys {seed}")
        office = _identity(rng)
        self._trusted = office.signing_key
        self._keys = {id: _issue(office, id, rng) for id in ids}
        self._proven = proven
        self.keyrings: dict[BrokerId, Keyring] = {}  # of the newest agents

    def begin(self, agent: Agent, rng: random.Random) -> Keyring:
        keys, salt = self._keys[agent.id], rng.randbytes(16)
        ring = Keyring(self._world, keys, self._trusted, salt, proves=self._proven)
        self.keyrings[agent.id] = ring
        return ring

    def write(self, agent: Agent, connection: Connection, message: Message) -> bytes | None:
        """A control message under a greeting or a seal, as ``ControlTraffic`` does."""
        guard, kind = self.keyrings[agent.id].guard, codec.kind_of(message)
        if self._encoded[0] is not message:
            self._encoded = message, codec.encode(guard.prove(message))
        body = self._encoded[1]
        links = agent.node.links
        if isinstance(message, Hello | Bye):
            return guard.greet(kind, body, links.addressee(connection.id))
        known = links.connections.get(connection.id)
        to = None if known is None else known.neighbour
        payload = None if to is None else guard.seal(CONTROL, kind, body, to)
        if payload is None:
            self._world.fired["not shaken hands"] += 1
        return payload

    def read(self, agent: Agent, kind: str, payload: bytes) -> Message:
        """What an agent makes of a control message. Raises ``DecodeError``: it is not believed."""
        guard = self.keyrings[agent.id].guard
        try:
            sender, body, greeting = guard.read(kind, payload)
            message = codec.decode(kind, body)
            now_ms = self._world.now_of(agent).ms
            guard.admit(
                sender, message, greeting, partial(agent.node.links.has_namesake, now_ms=now_ms)
            )
        except DecodeError:
            self._world.fired[f"refused {kind}"] += 1
            raise
        return message

    def will_of(self, agent: Agent, bye: Bye) -> bytes:
        guard = self.keyrings[agent.id].guard
        return guard.greet(codec.kind_of(bye), codec.encode(bye), None, will=True)
