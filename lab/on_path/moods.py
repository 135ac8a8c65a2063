"""What the machine on the path does with what it carries: one thing after the other, by chance."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Final

MOOD_S: Final = (0.5, 4.0)
LOST: Final = 0.1
"""Of what is carried, while some of it is lost."""

HELD_S: Final = (0.0, 1.5)
KEPT_MAX: Final = 2_000
"""Packets that are remembered, to be said again."""


class Mood(StrEnum):
    """One way to do harm; honest in between."""

    HONEST = "honest"
    LOSE = "loses some"
    SWALLOW = "swallows all, and makes up confirmations"
    SILENT = "swallows all, and says nothing"
    DEAF = "keeps back what is answered"
    LATE = "holds back each for a while"
    REPEAT = "says again what it heard before"
    MAKE_UP = "makes up some of its own"
    CHANGE = "changes bits"
    SWAP = "puts others in their places"
    RESET = "ends connections"


class Moody:
    """The present mood, and chance.

    Attributes:
        harm: What was done, in all.
        kept: What was heard.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.mood = Mood.HONEST
        self.harm = dict.fromkeys(Mood, 0)
        self.kept: list[bytes] = []

    async def wander(self, first: Sequence[Mood]) -> None:
        """Change the mood now and then, until cancelled; every other one is honest."""
        try:
            for mood in chain(first, self._by_chance()):
                self.turn(mood)
                await asyncio.sleep(self.rng.uniform(*MOOD_S))
                self.turn(Mood.HONEST)
                await asyncio.sleep(self.rng.uniform(*MOOD_S))
        finally:
            self.turn(Mood.HONEST)

    def _by_chance(self) -> Iterator[Mood]:
        while True:
            yield self.rng.choice(list(Mood))

    def turn(self, mood: Mood) -> None:
        self.mood = mood

    def keep(self, packet: bytes) -> None:
        if len(self.kept) < KEPT_MAX:
            self.kept.append(packet)
        else:
            self.kept[self.rng.randrange(KEPT_MAX)] = packet

    def some(self) -> bool:
        """Whether chance has it that this one is harmed; counted."""
        harmed = self.rng.random() < LOST
        self.harm[self.mood] += harmed
        return harmed

    def changed(self, packet: bytes, *, after: int = 0) -> bytes:
        made = bytearray(packet)
        for _ in range(self.rng.randrange(1, 4)):
            if after < len(made):
                made[self.rng.randrange(after, len(made))] ^= 1 << self.rng.randrange(8)
        return bytes(made)
