"""Draws one seed's attack: a story with clients, who attacks it, and each of their moves.

A stranger reads and writes everything below ``$fed/`` on every broker, as where no ACL keeps it
off, and has no key. A member has a key, is otherwise an honest agent, and says what is not so.

Source: docs/security.md, "Threats and answers".
"""

import random
from dataclasses import replace

from lab.sim.manner import Manner
from lab.sim.messages import draw as messages
from lab.sim.story import Kind, Move, MoveKind, Story

FAULTLESS_SHARE = 0.5
"""In so many stories nothing happens but the attack: then no link may go down either."""


OF_STRANGERS = (MoveKind.REPLAY, MoveKind.BURST, MoveKind.RELAY, MoveKind.MANGLE, MoveKind.FORGE)
OF_MEMBERS = tuple(kind for kind in MoveKind if kind not in OF_STRANGERS)


def draw(seed: int, how: Manner) -> Story:
    """The attack of ``seed`` on a story with clients."""
    rng = random.Random(f"attack {seed}")
    faulty = how.faulty and rng.random() >= FAULTLESS_SHARE
    beneath = messages.draw(seed, replace(how, faulty=faulty))
    ids = beneath.plan.ids
    member = rng.choice(ids) if rng.random() < 0.5 else None
    kinds = OF_STRANGERS if member is None else OF_MEMBERS
    when_ms = range(beneath.settle_ms, beneath.heal_ms)
    drawn = (
        Move(rng.choice(when_ms), rng.choice(kinds), rng.choice(ids), rng.getrandbits(32))
        for _ in range(how.moves)
    )
    in_time = tuple(sorted(drawn, key=lambda move: move.at_ms))
    proven = member is not None and random.Random(f"proven {seed}").random() < 0.5
    return replace(beneath, kind=Kind.ATTACK, member=member, moves=in_time, proven=proven)
