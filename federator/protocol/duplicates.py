"""Which frames arrived before, in bounded memory.

Copies of a frame reach a broker over several paths. Each origin numbers its frames, so a sheet of
squared paper per (origin, epoch) is enough: tick the square of every frame that came. The sheet is
a ring: it shows the last ``window_bits`` numbers.

A frame routed by several filters may come in copies that are each responsible for some of them (a
mask). For such frames the log also remembers the filters taken on so far, until all are.

A neighbour may forge the origin's epoch and number of a frame. So neither gives sheets an order: a
number that is on no sheet of its origin begins another one, on the account of the neighbour that
brought the frame, and evicts only what that neighbour began. So a forged frame makes nothing old.
The cost: a copy that comes later than everything its neighbour's sheets show is accepted once more.

Source: docs/protocol.md section 8.
"""

from collections import OrderedDict

from federator.protocol.types import BrokerId, Epoch

WINDOW_BITS = 65_536
ORIGINS_MAX = 4_096
PARTIAL_MASKS_MAX = 4_096
"""Frames per window with filters remembered one by one; beyond, the oldest counts as taken on
completely."""
WINDOWS_PER_NEIGHBOUR = 4
"""Per origin: its epoch, the previous one, and two that may be forged."""


class DuplicateLog:
    """Remembers the frames of many origins.

    A neighbour has at most ``origins_max`` windows of ``window_bits / 8`` bytes on its account.

    Args:
        window_bits: Frames remembered per window. A multiple of 8.
        origins_max: Windows on the account of one neighbour; the one unused for longest is
            forgotten first.
    """

    def __init__(
        self,
        *,
        window_bits: int = WINDOW_BITS,
        origins_max: int = ORIGINS_MAX,
    ) -> None:
        if window_bits < 8 or window_bits % 8:
            raise ValueError(f"window_bits must be a positive multiple of 8, got {window_bits}")
        self._window_bits = window_bits
        self._origins_max = origins_max
        self._origins: dict[BrokerId, list[_Sheet]] = {}  # the one used last comes first
        self._accounts: dict[BrokerId, OrderedDict[_Sheet, None]] = {}

    def __len__(self) -> int:
        """How many origins are remembered."""
        return len(self._origins)

    def admit(
        self, origin: BrokerId, epoch: Epoch, seq: int, *, k: int, mask: int, sender: BrokerId
    ) -> tuple[bool, int]:
        """Record a copy of frame ``seq`` of ``origin`` in its ``epoch``.

        Args:
            seq: Its number, in 0..2**64-1.
            k: How many filters it was routed by.
            mask: The filters this copy is responsible for, in 1..2**k-1.
            sender: The neighbour that brought it.

        Returns:
            Whether no copy came before, and the part of ``mask`` no copy was responsible for.
        """
        window = self._window(origin, epoch, seq, sender)
        if window.admit(seq):
            if mask != (1 << k) - 1:
                window.keep_partial(seq, mask)
            return True, mask
        if k == 1:
            return False, 0
        return False, window.take_rest(seq, k, mask)

    def _window(self, origin: BrokerId, epoch: Epoch, seq: int, sender: BrokerId) -> "_Sheet":
        """The window that contains ``seq``, or ends a little before it; created if missing."""
        sheets = self._origins.setdefault(origin, [])
        # There is one, unless the origin restarted or the frame is forged.
        window = sheets[0] if len(sheets) == 1 else None
        if (
            window is None
            or window.epoch != epoch
            or not -window.bits < seq - window.top <= window.bits // 2
        ):
            window = self._nearest(sheets, epoch, seq)
        if window is not None:
            if window is not sheets[0]:
                sheets.remove(window)
                sheets.insert(0, window)
            self._accounts[window.opener].move_to_end(window)
            return window
        account = self._accounts.setdefault(sender, OrderedDict())
        its_own = [sheet for sheet in sheets if sheet.opener == sender]
        if len(its_own) >= WINDOWS_PER_NEIGHBOUR:
            self._drop(its_own[-1])
        elif len(account) >= self._origins_max:
            self._drop(next(iter(account)))
            sheets = self._origins.setdefault(origin, [])
        sheet = _Sheet(origin, epoch, seq, self._window_bits, sender)
        account[sheet] = None
        sheets.insert(0, sheet)
        return sheet

    def _nearest(self, sheets: list["_Sheet"], epoch: Epoch, seq: int) -> "_Sheet | None":
        """The nearest of those that show ``seq``, or end less than half a window before it."""
        nearest, distance = None, self._window_bits // 2 + 1
        for sheet in sheets:
            if sheet.epoch == epoch and -sheet.bits < seq - sheet.top < distance:
                nearest, distance = sheet, max(1, seq - sheet.top)
        return nearest

    def _drop(self, sheet: "_Sheet") -> None:
        del self._accounts[sheet.opener][sheet]
        sheets = self._origins[sheet.origin]
        sheets.remove(sheet)
        if not sheets:
            del self._origins[sheet.origin]


class SeenNumbers:
    """Which numbers of one sequence came before: one bit per number in ``top - bits + 1 .. top``.

    Older numbers count as seen. For frames also the masks that were taken on in part.
    """

    __slots__ = ("bits", "partial", "ring", "top")

    def __init__(self, top: int = 0, bits: int = WINDOW_BITS) -> None:
        self.top = top
        self.bits = bits
        self.ring = bytearray(bits // 8)
        self.partial: dict[int, int] | None = None

    def admit(self, seq: int) -> bool:
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

    def keep_partial(self, seq: int, mask: int) -> None:
        """Remember that only ``mask`` was taken on of ``seq``."""
        if self.partial is None:
            self.partial = {}
        if len(self.partial) >= PARTIAL_MASKS_MAX:
            del self.partial[next(iter(self.partial))]
        self.partial[seq] = mask

    def take_rest(self, seq: int, k: int, mask: int) -> int:
        """The part of ``mask`` not taken on yet; it is taken on now."""
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


class _Sheet(SeenNumbers):
    """The window of one origin and epoch that ``opener`` began."""

    __slots__ = ("epoch", "opener", "origin")

    def __init__(
        self, origin: BrokerId, epoch: Epoch, top: int, bits: int, opener: BrokerId
    ) -> None:
        super().__init__(top, bits)
        self.origin = origin
        self.epoch = epoch
        self.opener = opener


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
