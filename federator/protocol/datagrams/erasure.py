"""What datagrams need of an erasure code; ``runtime.datagrams.raptor`` provides one.

The code is systematic: the first packets are the symbols themselves. Any as many packets as there
are symbols should do; a code that at times wants one more says ``None``.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Coder(Protocol):
    """Makes repair packets, and symbols of them. Symbols of one window have one length, of 8 n."""

    def repairs(self, symbols: Sequence[bytes], count: int) -> list[bytes]:
        """Make ``count`` repair packets, each as long as a symbol."""

    def rebuild(self, parts: int, size: int, packets: Mapping[int, bytes]) -> list[bytes] | None:
        """All ``parts`` symbols of a window, ``None``: these packets do not do.

        Packets of ``size`` bytes are named by place: symbols first, then repair packets.
        """
