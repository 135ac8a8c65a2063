"""What brokers tell their neighbours. All is soft: what is lost is made good by what follows."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seat:
    """A topic's place on a link."""

    topic: int  # which
    rate: float  # of the topic
    # What its requests would pay more without it, together, in mean costs of an arc; infinite when
    # they know no other way.
    loss: float


@dataclass(frozen=True, slots=True)
class Price:
    """What the owner of a link says about it."""

    lasting: float  # charge for having been too full before, in mean costs of an arc
    present: float  # charge for what does not fit now, likewise
    load: float  # what it carries, in the unit of rates
    seats: tuple[Seat, ...] = ()  # that would soonest leave for a price; empty: none is for sale
    margin: float = 0.0  # beyond that price, in mean costs of an arc
    whole: float = 1.0  # share of its price that a newcomer pays for room it does not need
    pressure: float = 1.0  # on those who should leave: multiplies the charge for staying
    spread: float = 0.0  # standard error of ``load``


@dataclass(frozen=True, slots=True)
class Route:
    """How far the sender is from a topic's publisher, charges included."""

    seq: int  # number of the publisher's announcement
    cost: float  # of the sender's way
    rate: float  # of the topic, as its publisher measures it
    path: tuple[int, ...]  # from the publisher to the sender; whoever is on it would go in a circle
    error: float = 0.0  # standard error of ``rate``
    # Whether this is not the sender's way, which leads over the receiver, but what would be its way
    # if the receiver were not there.
    spare: bool = False
    pressed: bool = False  # whether somebody on the way is to leave the link that feeds it

    def leads_over(self, receiver: int) -> bool:
        """Whether ``receiver`` would go in a circle if it followed."""
        return self.spare or receiver in self.path


@dataclass(frozen=True, slots=True)
class Announcement:
    """Routes by topic, and the price of the link it comes over if the sender owns it."""

    sender: int
    routes: dict[int, Route]
    prices: dict[int, Price]
    began: int = 0  # round in which demand last changed, as far as the sender knows


@dataclass(frozen=True, slots=True)
class Want:
    """What hangs on one topic."""

    requests: int  # served through the sender
    loss: float  # see ``Seat``
    apart: float = math.inf  # the same if the receiver were not there at all
    over: frozenset[int] = frozenset()  # brokers that the ways lead over that ``apart`` counts on
    hurry: bool = False  # the topic is to leave a link: its publisher should soon number it anew


@dataclass(frozen=True, slots=True)
class Joins:
    """Topics that the sender wants from the receiver."""

    sender: int
    topics: dict[int, Want]  # these, and if ``whole`` no others
    whole: bool
    prices: dict[int, Price]


Message = Announcement | Joins
