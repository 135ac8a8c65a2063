"""Whether every line reached us, told by what the broker cannot leave out.

A broker whose queue for us is full drops what comes next, its own notice of that included. But it
counts packet identifiers up by one for each publication of QoS 1 that is meant for us, also for
those that it then drops. So a step of more than one is a loss, and its length is what was lost (up
to multiples of all identifiers there are). What comes again after a reconnect says so (DUP).

A loss shows with the next publication. **Marks**, our own publications to ourselves, see to it that
there is one soon, and that we notice when what we hear is old.

Source: docs/protocol.md 9; Mosquitto 2.0.11 to 2.1.2: ``mosquitto__mid_generate`` is called in
``subs.c`` before ``db__message_insert`` judges whether there is room. Measured: the sum of all
steps is the broker's own ``$SYS/broker/publish/messages/dropped``.
"""

from collections import deque

from federator.protocol.types import Millis

PACKET_IDS = 65_535
"""Identifiers run from 1 to this, and begin again."""

MARKS_MAX = 64
"""Marks remembered: more than are sent in ``LATE_MS``."""

LATE_MS = Millis(5_000)
"""After which a mark that has not come means that what we hear is too old to be relied on."""


class Continuity:
    """Follows the identifiers of one session, and the marks among its lines."""

    def __init__(self) -> None:
        self.last = 0  # the identifier heard last, 0 while there is none
        self.lost = 0  # publications, since the start
        self._sent_at_ms: deque[Millis] = deque(maxlen=MARKS_MAX)

    def on_up(self, *, session_present: bool) -> None:
        """Go on where the session was, or begin anew with a new one."""
        if not session_present:
            self.last = 0
        self._sent_at_ms.clear()

    def on_packet(self, packet_id: int, *, duplicate: bool) -> int:
        """How many publications were lost before this one."""
        step = (packet_id - self.last) % PACKET_IDS
        if duplicate and self.last and (step == 0 or step > PACKET_IDS // 2):
            return 0  # heard before, but our acknowledgement was not
        lost = (step - 1) % PACKET_IDS if self.last else 0
        self.last = packet_id
        self.lost += lost
        return lost

    def on_mark_sent(self, *, now_ms: Millis) -> None:
        """Note that a mark was published."""
        if len(self._sent_at_ms) < MARKS_MAX:
            self._sent_at_ms.append(now_ms)

    def on_mark(self, sent_at_ms: Millis) -> None:
        """Note that the mark of that time came, and with it all before it that ever will."""
        while self._sent_at_ms and self._sent_at_ms[0] <= sent_at_ms:
            self._sent_at_ms.popleft()

    def is_late(self, *, now_ms: Millis) -> bool:
        """Whether a mark is missing for so long that what we hear is old."""
        return bool(self._sent_at_ms) and now_ms - self._sent_at_ms[0] >= LATE_MS
