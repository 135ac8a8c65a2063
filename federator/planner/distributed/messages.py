"""What brokers tell their neighbours. All is soft: what is lost is made good by what follows."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Price:
    """What the owner of a link says about it.

    Attributes:
        lasting: Charge for having been too full before, in mean costs of an arc.
        present: Charge for what does not fit now, likewise.
        load: What it carries, in the unit of rates.
    """

    lasting: float
    present: float
    load: float


@dataclass(frozen=True, slots=True)
class Route:
    """How far the sender is from a topic's publisher, charges included.

    Attributes:
        seq: Number of the publisher's announcement.
        cost: Of the sender's way.
        rate: Of the topic, as its publisher measures it.
    """

    seq: int
    cost: float
    rate: float


@dataclass(frozen=True, slots=True)
class Announcement:
    """Routes by topic, and the price of the link it comes over if the sender owns it."""

    sender: int
    routes: dict[int, Route]
    prices: dict[int, Price]


@dataclass(frozen=True, slots=True)
class Joins:
    """Topics that the sender wants from the receiver.

    Attributes:
        topics: These, and if ``whole`` no others.
    """

    sender: int
    topics: frozenset[int]
    whole: bool
    prices: dict[int, Price]


Message = Announcement | Joins
