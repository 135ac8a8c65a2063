"""What a place on a full link costs: what those who would have to leave for it would lose.

Every broker that is fed over a link tells the link's owner what its requests would pay more on the
next best way. A newcomer is charged the least sum of such losses that makes enough room; it comes
only if it gains more than that, and then those leave. So each such move lowers the cost of all, as
far as the losses are true, although nobody sees more than a link. Losses are told too high rather
than too low: below a broker some might find a better way than all together.

Source: D. P. Bertsekas, "The auction algorithm" (1988), for places that have a price.
"""

from collections.abc import Sequence

from lab.papers.pricing.messages import Seat

ROUNDING = 1e-6


def for_sale(seats: Sequence[Seat], most: int) -> tuple[Seat, ...]:
    """The ``most`` seats that lose least by rate."""
    return tuple(sorted(seats, key=lambda seat: (seat.loss / seat.rate, seat.topic))[:most])


def leavers(seats: Sequence[Seat], lacking: float) -> tuple[float, frozenset[int]]:
    """Who leaves when ``lacking`` room is to be made, and what they lose together.

    The cheapest by rate one after the other, or one alone that is enough, whichever costs less.
    Infinite, and nobody, when all together do not make so much room.

    Args:
        seats: Sorted as ``for_sale`` does.
        lacking: In the unit of rates, positive.
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
