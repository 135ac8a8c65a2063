"""What the sharing of groups counts, in publications."""

from dataclasses import dataclass


@dataclass(slots=True)
class ShareCounters:
    """Plain integers; read by whoever is asked.

    Attributes:
        sent: Taken up for members elsewhere, those served again included.
        delivered: Published on our broker for its members.
        returned: Among those, published again: one of our stand-ins had got it.
        left_to_others: Not published for members here: ordinary subscribers get them, and so do
            they.
        passed_on: Came for members that had left, and went to others.
        resent: Sent again for want of a confirmation.
        reassigned: Given to others because their broker was gone.
        lost: Given up, or refused by our own connection.
        no_way: Parcels and confirmations for which no neighbour led to the receiver.
        malformed: Parcels that do not decode.
    """

    sent: int = 0
    delivered: int = 0
    returned: int = 0
    left_to_others: int = 0
    passed_on: int = 0
    resent: int = 0
    reassigned: int = 0
    lost: int = 0
    no_way: int = 0
    malformed: int = 0
