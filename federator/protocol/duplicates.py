"""Which frames were here before, in bounded memory.

Copies of a frame reach a broker over several paths. Each origin numbers its frames, so a sheet of
squared paper per (origin, epoch) is enough: tick the square of every frame that came. The sheet is
a ring: it shows the last ``window_bits`` numbers, and what is older counts as seen, because a copy
that late is a straggler or a replay.

A frame routed by several filters may come in copies that are each responsible for some of them (a
mask). For such frames the log also remembers which filters it took on, until it took on all.

An agent that restarts has a higher epoch and a fresh sheet. The previous one is kept for frames
still on their way; older epochs are refused.

Source: docs/protocol.md section 8.
"""

from collections import OrderedDict

from federator.protocol.types import BrokerId, Epoch

WINDOW_BITS = 65_536
ORIGINS_MAX = 4_096
PARTIAL_MASKS_MAX = 4_096


class DuplicateLog:
    """Remembers the frames of many origins. At most ``origins_max * 2 * window_bits / 8`` bytes.

    Args:
        window_bits: Frames remembered per origin and epoch. A multiple of 8.
        origins_max: Origins remembered; the one unheard for longest is forgotten first.
        partial_masks_max: Frames per origin and epoch whose taken filters are remembered one by
            one; beyond, the oldest counts as taken whole.
    """

    def __init__(
        self,
        *,
        window_bits: int = WINDOW_BITS,
        origins_max: int = ORIGINS_MAX,
        partial_masks_max: int = PARTIAL_MASKS_MAX,
    ) -> None:
        if window_bits < 8 or window_bits % 8:
            raise ValueError(f"window_bits must be a positive multiple of 8, got {window_bits}")
        self._window_bits = window_bits
        self._origins_max = origins_max
        self._partial_masks_max = partial_masks_max
        self._origins: OrderedDict[BrokerId, _Origin] = OrderedDict()

    def __len__(self) -> int:
        """How many origins are remembered."""
        return len(self._origins)

    def admit(
        self, origin: BrokerId, epoch: Epoch, seq: int, *, k: int, mask: int
    ) -> tuple[bool, int]:
        """Take on a copy of a frame.

        Args:
            origin: Who made the frame.
            epoch: The origin's epoch.
            seq: The origin's number of the frame, in 0..2**64-1.
            k: How many filters it was routed by.
            mask: The filters this copy is responsible for, in 1..2**k-1.

        Returns:
            Whether no copy came before, and the part of ``mask`` no copy was responsible for.
        """
        known = self._origins.get(origin)
        if known is None:
            known = self._remember(origin, epoch, seq)
        else:
            self._origins.move_to_end(origin)
        window = known.window(epoch, seq)
        if window is None:
            return False, 0
        if window.tick(seq):
            if mask != (1 << k) - 1:
                window.keep_partial(seq, mask, self._partial_masks_max)
            return True, mask
        if k == 1:
            return False, 0
        return False, window.take_rest(seq, k, mask)

    def _remember(self, origin: BrokerId, epoch: Epoch, seq: int) -> "_Origin":
        if len(self._origins) >= self._origins_max:
            self._origins.popitem(last=False)
        known = _Origin(_Window(epoch, seq, self._window_bits))
        self._origins[origin] = known
        return known


class _Origin:
    """The windows of an origin's two newest epochs."""

    __slots__ = ("newest", "previous")

    def __init__(self, newest: "_Window") -> None:
        self.newest = newest
        self.previous: _Window | None = None

    def window(self, epoch: Epoch, seq: int) -> "_Window | None":
        """The window of ``epoch``; ``None`` when the epoch is too old."""
        newest = self.newest
        if epoch == newest.epoch:
            return newest
        if epoch > newest.epoch:
            self.previous = newest
            self.newest = _Window(epoch, seq, newest.bits)
            return self.newest
        previous = self.previous
        if previous is None or epoch > previous.epoch:
            previous = self.previous = _Window(epoch, seq, newest.bits)
        return previous if epoch == previous.epoch else None


class _Window:
    """One bit per frame number in ``top - bits + 1 .. top``, and the masks taken in part."""

    __slots__ = ("bits", "epoch", "partial", "ring", "top")

    def __init__(self, epoch: Epoch, top: int, bits: int) -> None:
        self.epoch = epoch
        self.top = top
        self.bits = bits
        self.ring = bytearray(bits // 8)
        self.partial: dict[int, int] | None = None

    def tick(self, seq: int) -> bool:
        """Mark ``seq`` as seen. False when it was, or is older than the window."""
        top, bits = self.top, self.bits
        if seq > top:
            if seq > top + 1:
                self._clear_between(top + 1, seq)
            self.top = seq
            at = seq % bits
            self.ring[at >> 3] |= 1 << (at & 7)
            return True
        if seq <= top - bits:
            return False
        at = seq % bits
        bit = 1 << (at & 7)
        if self.ring[at >> 3] & bit:
            return False
        self.ring[at >> 3] |= bit
        return True

    def keep_partial(self, seq: int, mask: int, partial_masks_max: int) -> None:
        """Remember that only ``mask`` was taken of ``seq``."""
        if self.partial is None:
            self.partial = {}
        if len(self.partial) >= partial_masks_max:
            del self.partial[next(iter(self.partial))]
        self.partial[seq] = mask

    def take_rest(self, seq: int, k: int, mask: int) -> int:
        """The part of ``mask`` not taken yet; it is taken now."""
        if self.partial is None or seq <= self.top - self.bits:
            return 0
        taken = self.partial.get(seq)
        if taken is None:
            return 0
        if (taken | mask) == (1 << k) - 1:
            del self.partial[seq]
        else:
            self.partial[seq] = taken | mask
        return mask & ~taken

    def _clear_between(self, start: int, end: int) -> None:
        """Clear the squares of ``start..end-1``, whole bytes at once."""
        bits, ring = self.bits, self.ring
        if end - start >= bits:
            self.ring = bytearray(bits // 8)
            return
        first, last = start % bits, end % bits
        if first < last:
            _clear(ring, first, last)
        else:
            _clear(ring, first, bits)
            _clear(ring, 0, last)


def _clear(ring: bytearray, start: int, end: int) -> None:
    """Clear the bits ``start..end-1``; bit ``i`` is bit ``i % 8`` of byte ``i // 8``."""
    first, last = start >> 3, end >> 3
    below_start = (1 << (start & 7)) - 1
    from_end = 0xFF & ~((1 << (end & 7)) - 1)
    if first == last:
        if start & 7 or end & 7:
            ring[first] &= below_start | from_end
        return
    ring[first] &= below_start
    ring[first + 1 : last] = bytes(last - first - 1)
    if end & 7:
        ring[last] &= from_end
