"""One link's book, kept by one of its two ends: what it carries, and what it charges.

At first a link negotiates, as ``negotiation`` does: a **present** charge for what would be too much
if the topic came (or stayed), and a **lasting** one that grows in every round in which the link
carries more than it can, and fades while it has no trouble. The first keeps topics away from links
that are full now; the second decides who leaves those that everybody wants. That finds a way for
everybody, but not a cheap one: who came first keeps a place that is worth more to others.

So then places are sold (``seats``): what does not fit may come all the same if it pays for those
who have to leave.
"""

from dataclasses import dataclass, field

from federator.planner.distributed.messages import Price, Seat
from federator.planner.distributed.seats import ROUNDING, for_sale, leavers

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
NEGOTIATED_ROUNDS = 24
"""After which places are sold."""
PRESSURE_GROWTH = 1.15
"""By a round of overload: whoever should leave does so in the end, unless there is no other way."""
PRESSURE_MAX = 1e4
SEATS_MAX = 12
"""Told about at most; more would not be cheap."""
MARGIN_FIRST = 0.01
"""Beyond others' loss, in mean costs of an arc: nobody moves for next to nothing."""
MARGIN_GROWTH = 1.06
"""By a round of selling: in the end nobody moves for a small gain either."""


@dataclass(slots=True)
class Channel:
    """Attributes:
    capacity: In the unit of rates.
    slack: Share of the capacity by which measured rates may exceed it unnoticed.
    asked: Round in which each (topic, arc) was last asked for.
    losses: What each would lose, see ``Seat``.
    """

    capacity: float
    slack: float
    asked: dict[tuple[int, int], int] = field(default_factory=dict)
    losses: dict[tuple[int, int], float] = field(default_factory=dict)
    lasting: float = 0.0
    present: float = PRESENT_FIRST
    margin: float = 0.0
    pressure: float = 1.0

    def renew(self, topic: int, arc: int, round_: int, *, loss: float) -> None:
        """``topic`` is carried on ``arc``."""
        self.asked[topic, arc] = round_
        self.losses[topic, arc] = loss

    def release(self, topic: int, arc: int) -> None:
        """``topic`` is not carried on ``arc`` any more."""
        self.asked.pop((topic, arc), None)
        self.losses.pop((topic, arc), None)

    def load(self, rates: dict[int, float]) -> float:
        """What is carried, by measured ``rates``."""
        return sum(rates.get(topic, 0.0) for topic, _ in self.asked)

    def end_round(self, round_: int, rates: dict[int, float]) -> None:
        """Forget what nobody asked for, and set the lasting charge."""
        for topic, arc in [k for k, asked in self.asked.items() if round_ - asked > LEASE_ROUNDS]:
            self.release(topic, arc)
        if self.load(rates) > self.capacity * (1 + self.slack) + 1e-6:
            self.lasting += RISE
            self.pressure = min(PRESSURE_MAX, self.pressure * PRESSURE_GROWTH)
        else:
            self.lasting *= FADE
            self.pressure = 1.0
        self.present = min(PRESENT_MAX, self.present * PRESENT_GROWTH)
        if round_ >= NEGOTIATED_ROUNDS:
            self.margin = max(MARGIN_FIRST, min(PRESENT_MAX, self.margin * MARGIN_GROWTH))

    def price(self, rates: dict[int, float]) -> Price:
        """What the other end is told."""
        seats: tuple[Seat, ...] = ()
        if self.margin:
            taken = [Seat(t, rates[t], loss) for (t, _), loss in self.losses.items() if t in rates]
            seats = for_sale(taken, SEATS_MAX)
        return Price(
            self.lasting, self.present, self.load(rates), seats, self.margin, self.pressure
        )


def charge(
    price: Price, *, capacity: float, topic: int, rate: float, carried: bool, requests: int
) -> float:
    """What a link charges each request of a topic, in mean costs of an arc.

    Args:
        price: Of the link.
        capacity: Of the link, slack included.
        topic: Which.
        rate: Of the topic.
        carried: Whether the link carries it already.
        requests: Of the topic, which pay for a place together.
    """
    others = price.load - rate if carried else price.load
    lacking = rate - (capacity - others)
    if lacking <= ROUNDING * rate:
        return 0.0
    wall = price.lasting + price.present * min(1.0, lacking / rate) * (1.0 + price.lasting)
    if not price.seats:
        return wall
    if carried and not leaves(price, capacity=capacity, topic=topic):
        return 0.0
    loss, _ = leavers([seat for seat in price.seats if seat.topic != topic], lacking)
    share = loss / requests + price.margin
    return min(wall, share * price.pressure if carried else share)


def leaves(price: Price, *, capacity: float, topic: int) -> bool:
    """Whether ``topic``, which is carried, is among those who should leave a full link."""
    lacking = price.load - capacity
    if lacking <= ROUNDING * capacity or not price.seats:
        return False
    _, who = leavers(price.seats, lacking)
    return topic in who or not who
