"""Which publications of a run arrived: every one counted, whole reads at a time.

In order and complete is the rule, and costs one comparison of arrays. Anything else takes the slow
way, which tells losses, duplicates, changes of order and foreign messages apart.
"""

import numpy as np
from numpy.typing import NDArray

PUBLICATIONS_MAX = 1 << 27
"""Bounds the map of what arrived at a byte per publication."""


class Ledger:
    """Counts the arrivals of one run.

    Attributes:
        run: Its number.
        received: Publications that arrived, each counted once.
        duplicates: Copies beyond the first.
        disordered: First copies that came after a later publication.
        foreign: Messages of other runs, or with numbers never published.
    """

    def __init__(self, run: int) -> None:
        self.run = run
        self.received = self.duplicates = self.disordered = self.foreign = 0
        self._expected = 0
        self._seen = np.zeros(1 << 16, np.bool_)

    def lost(self, sent: int) -> int:
        """How many of ``sent`` publications have not arrived."""
        return sent - self.received

    def take(self, runs: NDArray[np.uint32], seqs: NDArray[np.uint64], *, sent: int) -> None:
        """Count one read.

        ``runs`` and ``seqs`` are of each message, in the order of arrival; ``sent`` publications
        left so far, numbered from 0.
        """
        count = len(seqs)
        end = self._expected + count
        in_order = end <= sent and bool((runs == self.run).all())
        if in_order and np.array_equal(seqs, np.arange(self._expected, end, dtype=np.uint64)):
            self._make_room(end)
            self._seen[self._expected : end] = True
            self._expected = end
            self.received += count
            return
        ours = seqs[(runs == self.run) & (seqs < sent)].astype(np.int64)
        self.foreign += count - len(ours)
        self._take_disorderly(ours)

    def _take_disorderly(self, seqs: NDArray[np.int64]) -> None:
        if not len(seqs):
            return
        self._make_room(int(seqs.max()) + 1)
        _, first_at = np.unique(seqs, return_index=True)
        first_copies = seqs[np.sort(first_at)]
        new = first_copies[~self._seen[first_copies]]
        self._seen[new] = True
        self.received += len(new)
        self.duplicates += len(seqs) - len(new)
        if len(new):
            before = np.maximum.accumulate(np.concatenate(([self._expected - 1], new[:-1])))
            self.disordered += int((new < before).sum())
            self._expected = max(self._expected, int(new.max()) + 1)

    def _make_room(self, end: int) -> None:
        size = len(self._seen)
        if end <= size:
            return
        if end > PUBLICATIONS_MAX:
            raise ValueError(f"publication {end}, at most {PUBLICATIONS_MAX} in a run")
        grown = np.zeros(max(end, 2 * size), np.bool_)
        grown[:size] = self._seen
        self._seen = grown
