"""One link's book, kept by one of its two ends: what it carries, and what it charges.

The charge has two parts, as in ``negotiation``: a **present** one for what would be too much if the
topic came (or stayed), and a **lasting** one that grows in every round in which the link carries
more than it can, and fades while it has no trouble. The first keeps topics away from links that are
full now; the second decides who leaves those that everybody wants.
"""

from dataclasses import dataclass, field

from federator.planner.distributed.messages import Price

PRESENT_FIRST = 0.5
"""In mean costs of an arc, for a topic that does not fit at all."""
PRESENT_GROWTH = 1.1
"""By a round: whoever has a cheap way out leaves first, in the end everybody must."""
PRESENT_MAX = 100.0
RISE = 0.02
"""Added to the lasting charge by a round of overload."""
FADE = 0.97
"""What a round without overload leaves of the lasting charge."""
LEASE_ROUNDS = 3
"""Rounds after which a topic that nobody asks for any more is forgotten."""


@dataclass(slots=True)
class Channel:
    """Attributes:
    capacity: In the unit of rates.
    slack: Share of the capacity by which measured rates may exceed it unnoticed.
    asked: Round in which each (topic, arc) was last asked for.
    """

    capacity: float
    slack: float
    asked: dict[tuple[int, int], int] = field(default_factory=dict)
    lasting: float = 0.0
    present: float = PRESENT_FIRST

    def renew(self, topic: int, arc: int, round_: int) -> None:
        """``topic`` is carried on ``arc``."""
        self.asked[topic, arc] = round_

    def release(self, topic: int, arc: int) -> None:
        """``topic`` is not carried on ``arc`` any more."""
        self.asked.pop((topic, arc), None)

    def load(self, rates: dict[int, float]) -> float:
        """What is carried, by measured ``rates``."""
        return sum(rates.get(topic, 0.0) for topic, _ in self.asked)

    def end_round(self, round_: int, rates: dict[int, float]) -> None:
        """Forget what nobody asked for, and set the lasting charge."""
        for key in [k for k, asked in self.asked.items() if round_ - asked > LEASE_ROUNDS]:
            del self.asked[key]
        if self.load(rates) > self.capacity * (1 + self.slack) + 1e-6:
            self.lasting += RISE
        else:
            self.lasting *= FADE
        self.present = min(PRESENT_MAX, self.present * PRESENT_GROWTH)

    def price(self, rates: dict[int, float]) -> Price:
        """What the other end is told."""
        return Price(self.lasting, self.present, self.load(rates))


def charge(price: Price, *, capacity: float, rate: float, carried: bool) -> float:
    """What a link charges a topic, in mean costs of an arc.

    Args:
        price: Of the link.
        capacity: Of the link, slack included.
        rate: Of the topic.
        carried: Whether the link carries it already.
    """
    others = price.load - rate if carried else price.load
    lacking = min(1.0, max(0.0, (rate - (capacity - others)) / rate))
    if lacking < 1e-6:
        lacking = 0.0
    return price.lasting * (lacking > 0) + price.present * lacking * (1.0 + price.lasting)
