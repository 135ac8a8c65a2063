"""What a road loses: a chain of Gilbert and Elliott that steps once per packet.

Source: Esposito 2018, 4.
"""

import random


class Losses:
    """The chain of one direction. It begins good.

    Args:
        rng: Source of chance, asked once per packet.
        plr: Share of packets lost, below 1; may change while packets pass.
        abl: Packets lost in a row, on average, at least 1; likewise.
    """

    def __init__(self, rng: random.Random, *, plr: float = 0.0, abl: float = 1.0) -> None:
        self.plr, self.abl = plr, abl
        self._rng = rng
        self._bad = False

    def take_next(self) -> bool:
        """Whether the next packet is lost."""
        stays_bad, to_bad = 1 - 1 / self.abl, self.plr / (1 - self.plr) / self.abl
        self._bad = self._rng.random() < (stays_bad if self._bad else to_bad)
        return self._bad
