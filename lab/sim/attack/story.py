"""One seed's attack: a story with clients, who attacks it, and each of their moves.

A stranger reads and writes everything below ``$fed/`` on every broker, as where no ACL keeps it
off, and has no key. A member has a key, is otherwise an honest agent, and says what is not so.

Source: docs/security.md, "Threats and answers".
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from federator.protocol.types import BrokerId
from lab.sim.messages import story as stories
from lab.sim.messages.story import MessageStory

MOVES = 100
FAULTLESS_SHARE = 0.5
"""In so many stories nothing happens but the attack: then no link may go down either."""


class MoveKind(StrEnum):
    """What an attacker does; each is counted under its name."""

    REPLAY = "replay"  # a stranger says again what it heard, here or at another broker
    BURST = "burst"  # the same with much of what it heard
    RELAY = "relay"  # a stranger says at once elsewhere what comes here, for a while
    MANGLE = "mangle"  # a stranger changes what it heard
    FORGE = "forge"  # a stranger speaks in an agent's name, without a seal
    FRAME = "frame"  # a member sends frames in another origin's name
    SOLICIT = "solicit"  # a member says that a core had a later epoch
    ANNOUNCE = "announce"  # a member passes on an announcement that its core never made
    WANT = "want"  # a member wants filters, and says another digest
    PAGE = "page"  # a member sends pages of lists that nobody asked for
    ASK = "ask"  # a member asks for what is nowhere


OF_STRANGERS = (MoveKind.REPLAY, MoveKind.BURST, MoveKind.RELAY, MoveKind.MANGLE, MoveKind.FORGE)
OF_MEMBERS = tuple(kind for kind in MoveKind if kind not in OF_STRANGERS)


@dataclass(frozen=True, slots=True)
class Move:
    """At ``at_ms`` an attacker does this; ``dice`` says in which of many ways."""

    at_ms: int
    kind: MoveKind
    node: BrokerId  # at whose broker
    dice: int


@dataclass(frozen=True, slots=True)
class AttackStory:
    """What a seed means."""

    beneath: MessageStory  # what would happen without an attack
    member: BrokerId | None  # whose agent has turned bad, if one has; otherwise strangers attack
    moves: tuple[Move, ...]
    proven: bool = False  # origins sign what they make under custody

    @property
    def calm(self) -> bool:
        """Nothing but the attack goes wrong."""
        return not (self.beneath.faults or self.beneath.mishaps or self.beneath.plan.loss)


def draw(seed: int, *, moves: int = MOVES, **draws: Any) -> AttackStory:  # noqa: ANN401
    """The attack of ``seed`` in ``moves`` moves; ``draws`` are those of stories with clients."""
    rng = random.Random(f"attack {seed}")
    faulty = draws.pop("faulty", True) and rng.random() >= FAULTLESS_SHARE
    beneath = stories.draw(seed, faulty=faulty, **draws)
    ids = beneath.plan.ids
    member = rng.choice(ids) if rng.random() < 0.5 else None
    kinds = OF_STRANGERS if member is None else OF_MEMBERS
    when_ms = range(beneath.settle_ms, beneath.heal_ms)
    drawn = (
        Move(rng.choice(when_ms), rng.choice(kinds), rng.choice(ids), rng.getrandbits(32))
        for _ in range(moves)
    )
    in_time = tuple(sorted(drawn, key=lambda move: move.at_ms))
    proven = member is not None and random.Random(f"proven {seed}").random() < 0.5
    return AttackStory(beneath, member, in_time, proven)
