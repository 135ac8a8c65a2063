"""Gilbert-Elliott: a link is good and loses nothing, or bad and loses everything.

Two numbers tell the pattern: the packet loss rate (PLR) and the average burst length (ABL). The
chain steps once per packet sent; a message meets it as it is in the long run, for messages are far
apart. With PLR .02 and ABL 2 a link takes all 16 packets of a message through with P = .8403.

Source: Esposito 2018, 2 and 4; E. N. Gilbert (1960).
"""

from dataclasses import dataclass

import numpy as np

from federator.protocol.datagrams.protection import Chain
from lab.papers.codecs.tree import BoolArray, CodecError, FloatArray, IntArray

SOURCE_PACKETS = 16  # a message of 23 KB, cut into the 1472 bytes that an Ethernet frame holds

BLOCK_MAX = 255  # packets that one code of bytes can tell apart: source and repair together


@dataclass(frozen=True, slots=True)
class Loss:
    """The pattern of one link."""

    plr: float = 0.02  # share of packets lost, 0 to below 1
    abl: float = 2.0  # packets lost in a row, on average; at least 1

    def __post_init__(self) -> None:
        if not (0.0 <= self.plr < 1.0 and self.abl >= 1.0 and self.to_bad <= 1.0):
            raise CodecError(f"want 0 <= PLR < 1 and ABL >= 1 that go together, got {self}")

    @property
    def to_good(self) -> float:
        """Chance that a loss is the last in its row."""
        return 1.0 / self.abl

    @property
    def to_bad(self) -> float:
        """Chance that a loss follows a packet that came through."""
        return self.to_good * self.plr / (1.0 - self.plr)


def lost_distribution(loss: Loss, sent: int) -> FloatArray:
    """P(exactly k of ``sent`` packets are lost), shape (sent + 1,)."""
    return np.add(*Chain(loss.plr, loss.abl).walk(sent, 1.0 - loss.plr, loss.plr))


def lost_at_most(loss: Loss, *, share: float) -> int:
    """Losses that are exceeded in less than ``1 - share`` of messages: the planners' scalar."""
    reached = np.cumsum(lost_distribution(loss, SOURCE_PACKETS)) >= share
    return int(np.argmax(reached)) if reached.any() else SOURCE_PACKETS


def planned_for(plr: FloatArray, abl: FloatArray, *, share: float) -> IntArray:
    """``lost_at_most`` of each link, shape of ``plr``."""
    pairs, which = np.unique(np.stack((plr, abl), axis=-1), axis=0, return_inverse=True)
    each = [lost_at_most(Loss(*pair), share=share) for pair in pairs.tolist()]
    return np.array(each, dtype=np.int64)[which.reshape(plr.shape)]


class Chains:
    """Which of the next packets links lose; ``plr`` and ``abl`` broadcast against ``shape``."""

    def __init__(
        self, plr: FloatArray, abl: FloatArray, shape: tuple[int, ...], rng: np.random.Generator
    ) -> None:
        self._rng = rng
        self._stays_bad = (1.0 - 1.0 / abl).astype(np.float32)
        self._to_bad = (plr / (1.0 - plr) / abl).astype(np.float32)
        self._shape = shape
        self.bad: BoolArray = self._draw() < plr.astype(np.float32)

    def _draw(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return self._rng.random(self._shape, dtype=np.float32)

    def step(self) -> None:
        """Go on to the next packet; ``bad`` says who loses it."""
        self.bad = self._draw() < np.where(self.bad, self._stays_bad, self._to_bad)


def received(
    sent: IntArray, plr: FloatArray, abl: FloatArray, rng: np.random.Generator
) -> IntArray:
    """How many packets come through of ``sent``, shape (L, E), on links of ``plr``, shape (L,)."""
    chains = Chains(plr[:, None], abl[:, None], sent.shape, rng)
    through = np.zeros_like(sent)
    for packet in range(int(sent.max(initial=0))):
        if packet:
            chains.step()
        through += ~chains.bad & (packet < sent)
    return through
