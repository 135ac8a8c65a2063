"""The world with clients, signed: what agents say is sealed, and somebody else speaks there, too.

Certificates, greetings, seals and their judgement are the daemon's own; secrets are drawn from the
seed.
"""

import random
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial

from federator.errors import DecodeError
from federator.protocol.effects import Effect, NeighbourUnreachable
from federator.protocol.events import Event
from federator.protocol.messages import codec
from federator.protocol.messages.control import Bye, Hello, Message
from federator.protocol.trust.authority import Authority
from federator.protocol.trust.certificates import Certificate, Signed, encode, signed_text
from federator.protocol.trust.guard import CONTROL, DATA, Guard, Manner
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.trust.crypto import SecretIdentity, verify
from lab.sim.data import FEDERATION, DataPath
from lab.sim.invariants import Invariants
from lab.sim.messages.world import MessagePlan, MessageWorld
from lab.sim.network import Agent, Connection
from lab.sim.plan import link_of
from lab.sim.watcher import InvariantError, Watcher

NOW_S = 1_700_000_000
DAY_S = 86_400
HEARD_MAX = 5_000

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

    def __init__(self, keys: "_Keys", trusted: bytes, salt: bytes, world: "AttackedWorld") -> None:
        self._world = world
        self.proves = world.proven
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


class AttackedWorld(MessageWorld):
    """A signed federation, and what strangers ``heard``: broker, topic's last level, payload."""

    def __init__(
        self, plan: MessagePlan, *, seed: int, watcher: Watcher, proven: bool = False
    ) -> None:
        self.proven = proven
        rng = random.Random(f"keys {seed}")
        office = _identity(rng)
        self._trusted = office.signing_key
        self._keys = {id: _issue(office, id, rng) for id in plan.world.ids}
        self.keyrings: dict[BrokerId, Keyring] = {}  # of the newest agents
        self._proven: tuple[object, bytes] = (None, b"")
        self.heard: deque[tuple[BrokerId, str, bytes]] = deque(maxlen=HEARD_MAX)
        self._relays: dict[BrokerId, Counter[BrokerId]] = {}
        super().__init__(plan, seed=seed, watcher=watcher)

    def arrive(self, id: BrokerId, kind: str, payload: bytes) -> None:
        """A message is published on the control or data topic ``kind`` of broker ``id``."""
        self.heard.append((id, kind, payload))
        for elsewhere in sorted(self._relays.get(id, ())):
            self.overhear(elsewhere, kind, payload)
        self.overhear(id, kind, payload)

    def relay(self, id: BrokerId, elsewhere: BrokerId, lasts_ms: int) -> None:
        """A stranger is quick: what comes at one broker comes at another one before."""
        self._relays.setdefault(id, Counter())[elsewhere] += 1
        self.agenda.at(self.now_ms + lasts_ms, self._relay_ends, id, elsewhere)

    def _relay_ends(self, id: BrokerId, elsewhere: BrokerId) -> None:
        self._relays[id] -= Counter((elsewhere,))

    def overhear(self, id: BrokerId, kind: str, payload: bytes) -> None:
        """What a stranger publishes arrives like anything else."""
        if self.brokers[id].running:
            super().arrive(id, kind, payload)

    # --- what agents say ---

    def say(self, agent: Agent, connection: Connection, message: Message) -> None:
        """Send a control message under a greeting or a seal, as ``ControlTraffic`` does."""
        guard, kind = self.keyrings[agent.id].guard, codec.kind_of(message)
        if self._proven[0] is not message:
            self._proven = message, codec.encode(guard.prove(message))
        body = self._proven[1]
        links = agent.node.links
        if isinstance(message, Hello | Bye):
            payload: bytes | None = guard.greet(kind, body, links.addressee(connection.id))
        else:
            known = links.connections.get(connection.id)
            to = None if known is None else known.neighbour
            payload = None if to is None else guard.seal(CONTROL, kind, body, to)
        if payload is None:
            self.fired["not shaken hands"] += 1
        else:
            self.wires.transmit(connection, kind, payload)

    def read(self, agent: Agent, kind: str, payload: bytes) -> Message:
        """What an agent makes of a control message. Raises ``DecodeError``: it is not believed."""
        guard = self.keyrings[agent.id].guard
        try:
            sender, body, greeting = guard.read(kind, payload)
            message = codec.decode(kind, body)
            now_ms = Millis(self.now_ms + agent.clock_offset_ms)
            guard.admit(
                sender, message, greeting, partial(agent.node.links.has_namesake, now_ms=now_ms)
            )
        except DecodeError:
            self.fired[f"refused {kind}"] += 1
            raise
        return message

    def will_of(self, agent: Agent, bye: Bye) -> bytes:
        """The Will of a connection."""
        guard = self.keyrings[agent.id].guard
        return guard.greet(codec.kind_of(bye), codec.encode(bye), None, will=True)

    def seals_of(self, agent: Agent) -> Keyring:
        """Who seals an agent's frames."""
        return self.keyrings[agent.id]

    def _dial_back(self, agent: Agent, address: str) -> None:
        if link_of(agent.id, self._address_book[address]) in self._costs:
            super()._dial_back(agent, address)
        else:  # a hello was said again at a broker that it was not meant for: no way leads there
            self.fired["dialled in vain"] += 1

    def _data_path(self, agent: Agent, epoch: Epoch) -> DataPath:
        salt = self._rng.randbytes(16)
        self.keyrings[agent.id] = Keyring(self._keys[agent.id], self._trusted, salt, self)
        return super()._data_path(agent, epoch)


class StrangersInvariants(Invariants):
    """Every check of a run that strangers attack; without faults links stay up, too."""

    links_stay = False  # from now on no link may go down

    def handled(self, agent: Agent, event: Event, effects: Sequence[Effect]) -> None:
        """Look at the routes and links that the event can have changed."""
        super().handled(agent, event, effects)
        gone = [each.neighbour for each in effects if isinstance(each, NeighbourUnreachable)]
        if self.links_stay and gone:
            raise InvariantError("links_stay", f"{agent.id} lost {gone} after {event}")
