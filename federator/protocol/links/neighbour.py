"""The state of one neighbour and its link, and what crossing that link costs.

Where cost is delay, it is the smoothed round trip.

Every hello brings a round trip. A busy machine answers late now and then, and never early, so of a
few round trips the smallest counts, as a hurried postman is late more often than he is early; their
moving average is the delay. The cost follows only when the delay has moved well away from it:
routes that move make copies late or lost, and two links of nearly the same delay are equally good.

Source: RFC 9616 (delay-based metric for Babel: smoothing, and hysteresis against oscillation);
docs/protocol.md 14.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from federator.protocol.links.outbox import outbox_of
from federator.protocol.messages.control import HeardNeighbour, Hello
from federator.protocol.types import BrokerId, ConnId, Cost, Epoch, Millis

ROUND_TRIPS: Final = 4
"""The smallest of so many counts."""

WEIGHT: Final = 0.25
"""The weight of the newest round trip in the moving average."""

SLACK_SHARE: Final = 0.25
SLACK_MS: Final = 2.0
"""The cost changes only if the delay differs from it by more than both."""

COST_MAX: Final = 1_000_000


class LinkDelay:
    """The round trips of one link."""

    def __init__(self) -> None:
        # The smoothed round trip; ``None`` before the first one.
        self.smoothed_ms: float | None = None
        self.cost = Cost(1)  # one unit per millisecond of round trip, at least 1
        self._latest: deque[int] = deque(maxlen=ROUND_TRIPS)

    def measure(self, round_trip_ms: int) -> None:
        """Take a round trip; the cost follows when it is far enough from the delay."""
        self._latest.append(round_trip_ms)
        least_ms = min(self._latest)
        before_ms = self.smoothed_ms
        if before_ms is None:
            self.smoothed_ms = float(least_ms)
        else:
            self.smoothed_ms = before_ms + WEIGHT * (least_ms - before_ms)
        off_ms = abs(self.smoothed_ms - self.cost)
        if before_ms is None or off_ms > max(SLACK_MS, SLACK_SHARE * self.cost):
            self.cost = Cost(max(1, min(COST_MAX, round(self.smoothed_ms))))


@dataclass(slots=True)
class LinkConnection:
    """One of our connections to a neighbour's broker."""

    conn: ConnId
    address: str
    expected_id: BrokerId | None
    cost: Cost
    neighbour: BrokerId | None = None  # unknown until a hello returns ``conn``
    measured: bool = False  # the cost is the link's delay
    # Not used until then: it leads where no connection is wanted.
    shelved_until_ms: Millis = Millis(0)
    found: BrokerId | None = None  # the broker that answered there, link or not
    since_ms: Millis = Millis(0)  # when it was opened
    takes_outbox: bool = False  # on it we subscribe to our outbox there

    def announced_address(self, ours: str) -> str:
        """The address to announce to the neighbour behind it; our broker is at ``ours``."""
        return outbox_of(ours) if self.takes_outbox else ours


@dataclass(slots=True)
class Neighbour:
    """A broker with an agent that published a hello on ours.

    ``hello`` is the last one received, ``None`` once it went silent or sent a bye.
    """

    id: BrokerId
    epoch: Epoch
    first_heard_ms: Millis
    hello: Hello | None = None
    heard_at_ms: Millis = Millis(0)
    conn: ConnId | None = None
    up: bool = False
    ups: int = 0  # how often our end came up
    peer_ups: int = 0  # how often its end came up, by its last hello; 0 while that end is down
    round_trip_ms: int | None = None
    delay: LinkDelay = field(default_factory=LinkDelay)
    dialled: str | None = None  # the address we asked the driver to dial
    # Since when its hellos do not list us although we have a connection to it.
    deaf_since_ms: Millis | None = None
    unheard_since_ms: Millis | None = None  # since when its hellos do not list us at all
    namesake: tuple[str, Millis] | None = None  # where another agent used its id, and when
    let_be_until_ms: Millis = Millis(0)  # not dialled back before: the operator gave it up
    reason: str = "not heard yet"

    def note_whether_it_hears(self, self_id: BrokerId, epoch: Epoch) -> None:
        """Update since when its hellos do not list us."""
        assert self.hello is not None
        if any((entry.id, entry.epoch) == (self_id, epoch) for entry in self.hello.hears):
            self.unheard_since_ms = None
        elif self.unheard_since_ms is None:
            self.unheard_since_ms = self.heard_at_ms

    def as_heard(self, now_ms: Millis, *, for_ms: Millis) -> HeardNeighbour | None:
        """The entry for it in our hellos, if it sends hellos; ``for_ms`` as for ``namesakes``."""
        if self.hello is None:
            return None
        return HeardNeighbour(
            self.id,
            self.epoch,
            self.hello.conn,
            self.hello.sent_at_ms,
            held_ms=now_ms - self.heard_at_ms,
            ups=self.ups if self.up else 0,
            namesakes=self.namesakes(now_ms, for_ms=for_ms),
        )

    def namesakes(self, now_ms: Millis, *, for_ms: Millis) -> tuple[str, ...]:
        """The addresses of two agents that used its id in the last ``for_ms``, if any."""
        if self.hello is None or self.namesake is None:
            return ()
        address, at_ms = self.namesake
        return (self.hello.address, address) if now_ms - at_ms < for_ms else ()
