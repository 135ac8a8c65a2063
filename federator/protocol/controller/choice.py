"""Who steps in for a broker: the most alike, then the least loaded, then the nearest.

The paper says which brokers may take over and not which of several does (ReRouting has no choice
rule). Ours: behaviour equivalence first, strong before weak before any; then load, then links
between, then the smaller id.

Source: papers/topic-routing-and-rerouting.txt Algorithm 3; design section 6.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from federator.protocol.controller.equivalence import Relation
from federator.protocol.types import BrokerId

FAR = 2**31
"""Links between brokers that no known path joins."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One broker that could step in for another.

    Attributes:
        load: Its clients and their publications per second.
        distance: Links between the two.
    """

    id: BrokerId
    relation: Relation
    load: int
    distance: int

    @property
    def rank(self) -> tuple[int, int, int, BrokerId]:
        """The smallest is chosen."""
        return (self.relation.degree, self.load, self.distance, self.id)

    @property
    def why(self) -> str:
        """The reasons, for operators."""
        far = "unknown" if self.distance >= FAR else str(self.distance)
        return f"{self.relation.likeness.word} equivalence, load {self.load}, distance {far}"


def best_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, the chosen one first."""
    return sorted(candidates, key=lambda candidate: candidate.rank)


def distances(start: BrokerId, links: Mapping[BrokerId, Sequence[BrokerId]]) -> dict[BrokerId, int]:
    """Links from ``start`` to each broker that it reaches. One end's word makes a link."""
    joined: dict[BrokerId, set[BrokerId]] = {}
    for a, others in links.items():
        for b in others:
            joined.setdefault(a, set()).add(b)
            joined.setdefault(b, set()).add(a)
    found = {start: 0}
    queue = deque([start])
    while queue:
        at = queue.popleft()
        for other in sorted(joined.get(at, ())):
            if other not in found:
                found[other] = found[at] + 1
                queue.append(other)
    return found


def rounded(amount: float) -> int:
    """``amount`` to one significant binary digit and a half, so that jitter is no news.

    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ...
    """
    whole = int(amount)
    if whole < 4:
        return max(0, whole)
    step = 1 << (whole.bit_length() - 2)
    return whole // step * step
