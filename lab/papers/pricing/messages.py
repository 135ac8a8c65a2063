"""What brokers tell their neighbours. All is soft: what is lost is made good by what follows."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seat:
    """A topic's place on a link.

    Attributes:
        topic: Which.
        rate: Of the topic.
        loss: What its requests would pay more without it, together, in mean costs of an arc;
            infinite when they know no other way.
    """

    topic: int
    rate: float
    loss: float


@dataclass(frozen=True, slots=True)
class Price:
    """What the owner of a link says about it.

    Attributes:
        lasting: Charge for having been too full before, in mean costs of an arc.
        present: Charge for what does not fit now, likewise.
        load: What it carries, in the unit of rates.
        seats: Those that would soonest leave, for a price; empty while none is for sale.
        margin: Beyond that price, in mean costs of an arc.
        whole: Share of its price that room costs which is made for a newcomer, but not needed.
        pressure: On those who should leave, by which the charge for staying is multiplied.
        spread: Standard error of ``load``.
    """

    lasting: float
    present: float
    load: float
    seats: tuple[Seat, ...] = ()
    margin: float = 0.0
    whole: float = 1.0
    pressure: float = 1.0
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Route:
    """How far the sender is from a topic's publisher, charges included.

    Attributes:
        seq: Number of the publisher's announcement.
        cost: Of the sender's way.
        rate: Of the topic, as its publisher measures it.
        path: Brokers from the publisher to the sender: whoever is among them would go in a circle.
        error: Standard error of ``rate``.
        spare: Whether this is not the sender's way, which leads over the receiver, but what would
            be its way if the receiver were not there.
        pressed: Whether somebody on the way is to leave the link that feeds it.
    """

    seq: int
    cost: float
    rate: float
    path: tuple[int, ...]
    error: float = 0.0
    spare: bool = False
    pressed: bool = False

    def leads_over(self, receiver: int) -> bool:
        """Whether ``receiver`` would go in a circle if it followed."""
        return self.spare or receiver in self.path


@dataclass(frozen=True, slots=True)
class Announcement:
    """Routes by topic, and the price of the link it comes over if the sender owns it.

    Attributes:
        began: Round in which demand last changed, as far as the sender knows.
    """

    sender: int
    routes: dict[int, Route]
    prices: dict[int, Price]
    began: int = 0


@dataclass(frozen=True, slots=True)
class Want:
    """What hangs on one topic.

    Attributes:
        requests: Served through the sender.
        loss: See ``Seat``.
        apart: The same if the receiver were not there at all.
        over: Brokers that the ways lead over that ``apart`` counts on.
        hurry: Whether the topic is to leave a link: its publisher should soon number it anew.
    """

    requests: int
    loss: float
    apart: float = math.inf
    over: frozenset[int] = frozenset()
    hurry: bool = False


@dataclass(frozen=True, slots=True)
class Joins:
    """Topics that the sender wants from the receiver.

    Attributes:
        topics: These, and if ``whole`` no others.
    """

    sender: int
    topics: dict[int, Want]
    whole: bool
    prices: dict[int, Price]


Message = Announcement | Joins
