"""Tells one story of an attack: nothing promised is lost, and no stranger is believed.

Under a stranger everything holds that holds without one, and while nothing else goes wrong no link
goes down. Under a member that lies QoS 1 reaches everybody who was promised it, perhaps more than
once; what it makes up may arrive (docs/security.md, "What is not answered"). Where origins prove
what they make, QoS 1 reaches everybody once, and nothing at QoS 1 that was made up.

Each move is drawn from its dice and from what was heard so far.

Source: docs/security.md, "Threats and answers"; docs/protocol.md 3, 8 and 11.
"""

import random
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from federator.errors import DecodeError
from federator.protocol.filters.digests import filter_key
from federator.protocol.forwarding.bundles import frames_of
from federator.protocol.forwarding.frames import (
    CUSTODY_FLAG,
    KEY_BYTES,
    REPAIR_FLAG,
    TAIL_FLAG,
    VOID_FLAG,
    Frame,
    pack,
)
from federator.protocol.messages import codec, control
from federator.protocol.trust.guard import CONTROL, DATA, overheard
from federator.protocol.types import BrokerId, ConnId, Cost, Epoch
from lab.sim.attack.signed import Keyring, SealedSpeech
from lab.sim.data import HOP_LIMIT, packet_of
from lab.sim.invariants import Invariants
from lab.sim.messages.ledger import INVENTED, INVENTED_UNDER_CUSTODY
from lab.sim.messages.real_clients import RealClients
from lab.sim.messages.tale import tale_with
from lab.sim.network import Agent
from lab.sim.routes.draw import FILTERS, TOPICS
from lab.sim.story import Move, MoveKind, Story
from lab.sim.tale import Tale
from lab.sim.world import World

BURST = 200
HEARD_MAX = 5_000
RELAY_MS = (100, 20_000)
ABSURD = (0, 1, 2**31, 2**53, 2**62, 2**63 - 1)
CHANNELS = ("hello", "ctl", "core_ann", "mesh_memb_ann", "data")


def tale_of(story: Story) -> Tale:
    plan, strangers = story.plan, story.member is None
    speech = partial(SealedSpeech, seed=story.seed, ids=plan.ids, proven=story.proven)
    parts = (Invariants, RealClients) if strangers else (RealClients,)
    world = World(plan, seed=story.seed, speech=speech, parts=parts)
    clients = world.part(RealClients)
    clients.ledger.lied_to = not strangers
    clients.ledger.proven = story.proven
    assert isinstance(world.speech, SealedSpeech)
    attacker = Attacker(world, story, world.speech.keyrings)
    for move in story.moves:
        world.agenda.at(move.at_ms, attacker.move, move)

    def stood() -> None:
        if strangers:
            world.part(Invariants).links_stay = story.calm

    return tale_with(clients, story, stood=stood)


class Attacker:
    """Makes the moves of a story in ``world``, where strangers stand beside every broker."""

    def __init__(self, world: World, story: Story, keyrings: Mapping[BrokerId, Keyring]) -> None:
        self._world = world
        self._keyrings = keyrings
        self._member = story.member
        self._proven = story.proven
        self._heard: deque[tuple[BrokerId, str, bytes]] = deque(maxlen=HEARD_MAX)
        self._relays: dict[BrokerId, Counter[BrokerId]] = {}
        world.wires.arrival = self._on_arrival

    def _on_arrival(self, id: BrokerId, kind: str, payload: bytes) -> None:
        """A message is published on the control or data topic ``kind`` of broker ``id``."""
        self._heard.append((id, kind, payload))
        for elsewhere in sorted(self._relays.get(id, ())):
            self._publish(elsewhere, kind, payload)
        self._publish(id, kind, payload)

    def _publish(self, id: BrokerId, kind: str, payload: bytes) -> None:
        if self._world.brokers[id].running:
            self._world.arrive(id, kind, payload)

    def _relay(self, id: BrokerId, elsewhere: BrokerId, lasts_ms: int) -> None:
        """A stranger is quick: what comes at one broker comes at another one before."""
        self._relays.setdefault(id, Counter())[elsewhere] += 1
        self._world.agenda.at(self._world.now_ms + lasts_ms, self._relay_ends, id, elsewhere)

    def _relay_ends(self, id: BrokerId, elsewhere: BrokerId) -> None:
        self._relays[id] -= Counter((elsewhere,))

    def move(self, move: Move) -> None:
        """Do what ``move`` says, if the world gives what it takes."""
        rng = random.Random(move.dice)
        make = self._as_stranger if self._member is None else self._as_member
        done = make(move, rng)
        self._world.fired[f"move {move.kind}" if done else "move in vain"] += 1

    # --- without a key ---

    def _as_stranger(self, move: Move, rng: random.Random) -> bool:
        world = self._world
        if move.kind is MoveKind.FORGE:
            kind, payload = self._forged(move.node, rng)
            self._publish(move.node, kind, payload)
            return True
        if move.kind is MoveKind.RELAY:
            self._relay(rng.choice(world.plan.ids), move.node, rng.randint(*RELAY_MS))
            return True
        if not self._heard:
            return False
        for _ in range(BURST if move.kind is MoveKind.BURST else 1):
            where, kind, payload = rng.choice(self._heard)
            if move.kind is MoveKind.MANGLE:
                payload = _mangled(payload, rng)
            if rng.random() < 0.3:
                where = move.node
            if rng.random() < 0.1:
                kind = rng.choice(CHANNELS)
            self._publish(where, kind, payload)
        return True

    def _forged(self, node: BrokerId, rng: random.Random) -> tuple[str, bytes]:
        """A topic, and words or a frame in somebody's name, under no seal."""
        who = rng.choice(self._world.plan.ids)
        if rng.random() < 0.5:
            return "data", pack(_frame(who, who, rng))
        message = rng.choice(
            (
                control.Bye(who, _epoch(self._world, who, rng), ConnId(rng.randint(0, 3))),
                control.Hello(1, who, _epoch(self._world, who, rng), ConnId(1), 0, "mqtt://x", ()),
                *_words(self._world, who, rng),
            )
        )
        return codec.kind_of(message), codec.encode(message)

    # --- with a key ---

    def _as_member(self, move: Move, rng: random.Random) -> bool:
        assert self._member is not None, "a member's move"
        agent = self._world.agents.get(self._member)
        if agent is None or agent.pauses:
            return False
        said = False
        for neighbour in sorted(agent.reach):
            if move.kind is MoveKind.FRAME:
                for frame in self._frames(agent, rng):
                    said |= self._send(agent, neighbour, DATA, "data", pack(frame))
            else:
                for message in _lies(move.kind, self._world, agent.id, rng):
                    kind = codec.kind_of(message)
                    said |= self._send(agent, neighbour, CONTROL, kind, codec.encode(message))
        return said

    def _send(
        self, agent: Agent, neighbour: BrokerId, channel: int, kind: str, body: bytes
    ) -> bool:
        connection = agent.connection_to(neighbour)
        sealed = self._keyrings[agent.id].guard.seal(channel, kind, body, neighbour)
        if connection is None or sealed is None:
            return False
        self._world.wires.transmit(connection, kind, sealed)
        return True

    def _frames(self, agent: Agent, rng: random.Random) -> Iterator[Frame]:
        """Frames as another origin made them, changed; and some from nowhere."""
        others = [id for id in self._world.plan.ids if id != agent.id]
        yield _frame(agent.id, rng.choice(others), rng)
        heard = [payload for _, kind, payload in self._heard if kind == "data"]
        for payload in rng.sample(heard, min(3, len(heard))):
            try:
                frames = frames_of(overheard(payload)[1] or b"")
            except DecodeError:
                continue
            for frame, _ in frames:
                if frame.origin != agent.id:
                    yield _changed(frame, agent.id, rng, proven=self._proven)


def _key(filter: str) -> bytes:
    return filter_key(filter).to_bytes(KEY_BYTES, "big")


def _mangled(payload: bytes, rng: random.Random) -> bytes:
    if not payload:
        return rng.randbytes(8)
    at = rng.randrange(len(payload))
    match rng.randrange(3):
        case 0:
            flipped = bytes([payload[at] ^ 1 << rng.randrange(8)])
            return payload[:at] + flipped + payload[at + 1 :]
        case 1:
            return payload[:at]
        case _:
            return payload + rng.randbytes(rng.randint(1, 64))


def _frame(sender: BrokerId, origin: BrokerId, rng: random.Random) -> Frame:
    """A frame from nowhere, with a publication that nobody made."""
    flags = rng.choice((0, CUSTODY_FLAG, TAIL_FLAG, CUSTODY_FLAG | REPAIR_FLAG | VOID_FLAG))
    held = flags in (0, CUSTODY_FLAG)
    number = INVENTED_UNDER_CUSTODY if flags else INVENTED
    body = packet_of(rng.choice(TOPICS), number, 1 if flags else 0) if held else b""
    if flags == TAIL_FLAG:
        body = rng.choice(ABSURD).to_bytes(8, "big")
    return Frame(
        flags=flags,
        hops=0,
        hop_limit=HOP_LIMIT,
        sender=sender,
        origin=origin,
        epoch=Epoch(rng.choice(ABSURD)),
        seq=rng.choice(ABSURD),
        origin_time_us=rng.choice(ABSURD),
        publications=int(held),
        keys=_key(rng.choice(FILTERS)),
        mask=1,
        body=memoryview(body),
        chain=rng.choice(ABSURD).to_bytes(8, "big") if flags else b"",
        route=(rng.choice((sender, origin)),) if flags & REPAIR_FLAG else (),
    )


def _changed(frame: Frame, sender: BrokerId, rng: random.Random, *, proven: bool) -> Frame:
    """A true frame of another origin with a lie in it, and without its publications.

    Under custody it has none unless it is proven, otherwise no number that is soon a true one's:
    what is made up in the place of a true publication takes its place (docs/security.md, "What is
    **not** answered").
    """
    fields = {name: getattr(frame, name) for name in Frame.__struct_fields__}
    fields |= {"sender": sender, "hops": 0}
    if proven and frame.publications and frame.flags:
        body = packet_of(rng.choice(TOPICS), INVENTED_UNDER_CUSTODY, 1)
        fields |= {"publications": 1, "body": memoryview(body)}
        fields |= {"proof": rng.choice((b"", frame.proof)), "seq": frame.seq + rng.randint(0, 2)}
        return Frame(**fields)
    if frame.publications and frame.flags:
        fields |= {"publications": 0, "body": memoryview(b"")}
    elif frame.publications:
        body = packet_of(rng.choice(TOPICS), INVENTED, 0)
        fields |= {"publications": 1, "body": memoryview(body)}
    lie = rng.choice(("seq", "epoch", "chain"))
    if lie == "chain" and frame.chain:
        fields["chain"] = rng.choice(ABSURD).to_bytes(8, "big") * frame.k
    elif lie == "epoch":
        fields["epoch"] = rng.choice((frame.epoch + 1, frame.epoch + 1_000_000, *ABSURD))
    else:
        near = (1, 3, 1_000) if frame.flags else (1_000,)
        fields["seq"] = rng.choice((*(frame.seq + step for step in near), *ABSURD))
    return Frame(**fields)


def _epoch(world: World, id: BrokerId, rng: random.Random) -> Epoch:
    now = world.disks[id].epoch
    return Epoch(rng.choice((now, now + 1, now + 1_000_000, *ABSURD)))


def _lies(
    kind: MoveKind, world: World, sender: BrokerId, rng: random.Random
) -> list[control.Message]:
    solicit, announcement, want, page, *asked = _words(world, sender, rng)
    match kind:
        case MoveKind.SOLICIT:
            return [solicit]
        case MoveKind.ANNOUNCE:
            return [announcement]
        case MoveKind.WANT:
            return [want]
        case MoveKind.PAGE:
            return [page]
        case _:
            return asked


def _words(world: World, sender: BrokerId, rng: random.Random) -> list[control.Message]:
    """One lie of each kind that ``sender`` could say about somebody else."""
    about = rng.choice([id for id in world.plan.ids if id != sender])
    epoch, number = _epoch(world, about, rng), rng.choice(ABSURD)
    filters = tuple(sorted(rng.sample(FILTERS, rng.randint(1, 3))))
    announcement = control.CoreAnn(
        sender=sender,
        core=about,
        priority=rng.choice((-1, 0, 2**31 - 1)),
        epoch=epoch,
        seq=number,
        cost=Cost(rng.randint(0, 3)),
        in_mesh=rng.random() < 0.5,
        added=filters,
        removed=(),
        digest=rng.getrandbits(63),
        count=len(filters),
        path=(sender, about),
        proof=rng.choice((b"", rng.randbytes(64))),
    )
    kinds = list(control.ListKind)
    shown = msgspec.structs.replace(announcement, added=(), path=())
    return [
        control.Solicit(sender, about, epoch, number, 255, rng.choice((None, shown))),
        announcement,
        control.MeshMembAnn(
            sender, about, epoch, number, filters, (), rng.getrandbits(63), len(filters)
        ),
        control.FilterListPage(
            sender, rng.choice(kinds), about, epoch, rng.getrandbits(63), 0, 2, filters
        ),
        control.FilterListRequest(sender, rng.choice(kinds), about),
        control.RepairRequest(
            about,
            epoch,
            (sender,),
            (control.AskedChain(_key(filters[0]), number, 0),),
            rng.choice((0, 1, 2**62)),
        ),
    ]
