"""One link's book, kept by one of its two ends: what it carries, and what it charges.

At first a link negotiates, as ``negotiation`` does: a **present** charge for what would be too much
if the topic came (or stayed), and a **lasting** one that grows in every round in which the link
carries more than it can, and fades while it has no trouble. The first keeps topics away from links
that are full now; the second decides who leaves those that everybody wants. That finds a way for
everybody, but not a cheap one: who came first keeps a place that is worth more to others.

So then places are sold: what does not fit may come all the same if it pays for those who have to
leave. Every broker that is fed over a link tells its owner what its requests would pay more on the
next best way; a newcomer is charged the least sum of such losses that makes enough room, comes only
if it gains more than that, and then those leave. So each such move lowers the cost of all, as far
as the losses are true, although nobody sees more than a link. Losses are told too high rather than
too low: below a broker some might find a better way than all together. What a newcomer must gain
beyond them grows with the age of demand.

Rates are means of noisy measurements. What fits is judged leniently towards those who are here, and
less so towards newcomers: a load that errs around the capacity lets nobody in and drives nobody
out.

Source: D. P. Bertsekas, "The auction algorithm" (1988), for places that have a price.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lab.papers.pricing.messages import Price, Seat

PRESENT_FIRST = 0.5  # in mean costs of an arc, for a topic that does not fit at all
PRESENT_GROWTH = 1.1
"""By a round: whoever has a cheap way out leaves first, in the end everybody must."""
PRESENT_MAX = 100.0  # or what an unmet request costs, if that is more
RISE = 0.02  # added to the lasting charge by a round of overload
FADE = 0.97  # what a round without overload leaves of the lasting charge
LEASE_ROUNDS = 3  # rounds after which a topic that nobody asks for any more is forgotten
NEGOTIATED_ROUNDS = 24  # after which places are sold
WHOLE_ROUNDS = 52
"""After which a newcomer pays for all the room that is made for it; before, for a share of it."""
CLOSED_ROUNDS = 64
"""After which whoever is fed stays unless it must leave or gains much (``holding``)."""
STAYS = 4.0  # standard errors of a load by which a link may seem too full to those whom it carries
COMES = 2.0  # the same for a newcomer, whose own error counts too
PRESSURE_GROWTH = 1.15
"""By a round of overload: whoever should leave does so in the end, unless there is no other way."""
PRESSURE_FADE = 0.93
"""By a round without: a topic that goes to and fro between two full links is pressed ever more."""
PRESSURE_MAX = 1e4
SEATS_MAX = 12  # told about at most; more would not be cheap
MARGIN_FIRST = 0.01
"""Beyond others' loss, in mean costs of an arc: nobody moves for next to nothing."""
MARGIN_GROWTH = 1.06  # by a round of selling: in the end nobody moves for a small gain either
HOLD_GROWTH = 1.15  # the same after ``CLOSED_ROUNDS``
MARGIN_MAX = 10.0
"""Ways seldom differ by more, but what a full link charges those who are to leave it does."""
AGE_MAX = 1_000  # rounds of age that still count
ROUNDING = 1e-6


class Rate(NamedTuple):
    """A topic's rate."""

    mean: float  # as its publisher measures it
    error: float  # standard error of that


Rates = dict[int, Rate]  # by topic


@dataclass(slots=True)
class Channel:
    """The book of one link."""

    capacity: float  # in the unit of rates
    # Round in which each (topic, arc) was last asked for.
    asked: dict[tuple[int, int], int] = field(default_factory=dict)
    # What each would lose, see ``Seat``.
    losses: dict[tuple[int, int], float] = field(default_factory=dict)
    lasting: float = 0.0
    present: float = PRESENT_FIRST
    margin: float = 0.0
    whole: float = 1.0
    pressure: float = 1.0
    present_max: float = PRESENT_MAX
    quoted: Price | None = None  # what was last told, while it holds

    def renew(self, topic: int, arc: int, round_: int, *, loss: float) -> None:
        if self.losses.get((topic, arc)) != loss:
            self.quoted = None
        self.asked[topic, arc] = round_
        self.losses[topic, arc] = loss

    def release(self, topic: int, arc: int) -> None:
        self.quoted = None
        self.asked.pop((topic, arc), None)
        self.losses.pop((topic, arc), None)

    def load(self, rates: Rates) -> float:
        return sum(rates[topic].mean for topic, _ in self.asked if topic in rates)

    def spread(self, rates: Rates) -> float:
        """Standard error of the load."""
        return math.hypot(*(rates[topic].error for topic, _ in self.asked if topic in rates))

    def end_round(self, round_: int, age: int, rates: Rates) -> None:
        """Begin ``round_``: forget what nobody asked for, charge as the ``age`` of demand says."""
        for topic, arc in [k for k, asked in self.asked.items() if round_ - asked > LEASE_ROUNDS]:
            self.release(topic, arc)
        if self.load(rates) > self.capacity + STAYS * self.spread(rates) + 1e-6:
            self.lasting += RISE
            self.pressure = min(PRESSURE_MAX, self.pressure * PRESSURE_GROWTH)
        else:
            self.lasting *= FADE
            self.pressure = max(1.0, self.pressure * PRESSURE_FADE)
        grown = PRESENT_FIRST * PRESENT_GROWTH ** (1 + min(age, AGE_MAX))
        self.present = min(self.present_max, grown)
        self.margin = margin(age)
        self.whole = min(1.0, max(0, age - NEGOTIATED_ROUNDS) / (WHOLE_ROUNDS - NEGOTIATED_ROUNDS))
        self.quoted = None

    def price(self, rates: Rates) -> Price:
        """What the other end is told."""
        if self.quoted is None:
            self.quoted = self._quote(rates)
        return self.quoted

    def _quote(self, rates: Rates) -> Price:
        seats: tuple[Seat, ...] = ()
        if self.margin:
            taken = [
                Seat(t, rates[t].mean, loss) for (t, _), loss in self.losses.items() if t in rates
            ]
            seats = for_sale(taken, SEATS_MAX)
        return Price(
            lasting=self.lasting,
            present=self.present,
            load=self.load(rates),
            seats=seats,
            margin=self.margin,
            whole=self.whole,
            pressure=self.pressure,
            spread=self.spread(rates),
        )


def margin(age: int) -> float:
    """What a move must gain, in mean costs of an arc, when demand has lasted ``age`` rounds."""
    if age < NEGOTIATED_ROUNDS:
        return 0.0
    sold = min(age, CLOSED_ROUNDS) - NEGOTIATED_ROUNDS
    held = min(max(0, age - CLOSED_ROUNDS), AGE_MAX)
    return min(MARGIN_MAX, MARGIN_FIRST * MARGIN_GROWTH**sold * HOLD_GROWTH**held)


def charge(
    price: Price, *, capacity: float, topic: int, rate: Rate, carried: bool, requests: int
) -> float:
    """What a link charges each request of a topic, in mean costs of an arc.

    The ``requests`` of a topic pay for a place together. ``carried``: the topic is there already.
    Infinite where it does not fit though it were alone.
    """
    if rate.mean > capacity + STAYS * rate.error + ROUNDING * capacity:
        return math.inf
    if carried:
        others, borne = price.load - rate.mean, STAYS * price.spread
    else:
        others, borne = price.load, COMES * math.hypot(price.spread, rate.error)
    lacking = rate.mean - (capacity + borne - others)
    if lacking <= ROUNDING * rate.mean:
        return 0.0
    share = min(1.0, lacking / rate.mean)
    wall = price.lasting + price.present * share * (1.0 + price.lasting)
    if not price.seats:
        return wall
    if carried and not leaves(price, capacity=capacity, topic=topic):
        return 0.0
    loss, who = leavers([seat for seat in price.seats if seat.topic != topic], lacking)
    if not carried and who:
        made = sum(seat.rate for seat in price.seats if seat.topic in who)
        loss *= price.whole + (1.0 - price.whole) * min(1.0, lacking / made)
    share = loss / requests + price.margin
    return min(wall, share * price.pressure if carried else share)


def leaves(price: Price, *, capacity: float, topic: int) -> bool:
    lacking = price.load - capacity - STAYS * price.spread
    if lacking <= ROUNDING * capacity or not price.seats:
        return False
    _, who = leavers(price.seats, lacking)
    return topic in who or not who


def for_sale(seats: Sequence[Seat], most: int) -> tuple[Seat, ...]:
    """The ``most`` seats that lose least by rate."""
    return tuple(sorted(seats, key=lambda seat: (seat.loss / seat.rate, seat.topic))[:most])


def leavers(seats: Sequence[Seat], lacking: float) -> tuple[float, frozenset[int]]:
    """Who leaves when ``lacking`` room is to be made, and what they lose together.

    The cheapest by rate one after the other, or one alone that is enough, whichever costs less.
    Infinite, and nobody, when all together do not make so much room. ``seats`` are sorted as
    ``for_sale`` does; ``lacking`` is positive.
    """
    best, who = float("inf"), frozenset[int]()
    made = loss = 0.0
    before: list[int] = []
    for seat in seats:
        made, loss = made + seat.rate, loss + seat.loss
        before.append(seat.topic)
        if made >= lacking - ROUNDING:
            best, who = loss, frozenset(before)
            break
    for seat in seats:
        if seat.rate >= lacking - ROUNDING and seat.loss < best:
            best, who = seat.loss, frozenset({seat.topic})
    return best, who
