"""Detects lost log lines by gaps in the packet identifiers.

When the broker's queue for us is full, the broker drops further messages, its own notice of that
included. But it increments the packet identifier for each QoS 1 publication meant for us, also for
those that it then drops. So a step of more than one is a loss, and the step's length is the number
of lost publications (modulo the number of identifiers). Publications resent after a reconnect carry
the DUP flag.

A loss shows with the next publication. **Marks**, publications that we send to ourselves, ensure
that one comes soon, and show when the messages we receive are old.

Source: docs/protocol.md 9; Mosquitto 2.0.11 to 2.1.2: ``mosquitto__mid_generate`` is called in
``subs.c`` before ``db__message_insert`` judges whether there is room. Measured: the sum of all
steps is the broker's own ``$SYS/broker/publish/messages/dropped``.
"""

from collections import deque

from federator.protocol.types import Millis

PACKET_IDS = 65_535
"""Identifiers run from 1 to this value, then start again at 1."""

MARKS_MAX = 64
"""Marks remembered: more than we send in ``LATE_MS``."""

LATE_MS = Millis(5_000)
"""If a mark has not come back after this time, received messages are too old to rely on."""


class Continuity:
    """Follows the packet identifiers of one session, and the marks among its log lines."""

    def __init__(self) -> None:
        self.last = 0  # the identifier received last, 0 while there is none
        self.lost = 0  # lost publications, since the start
        self._sent_at_ms: deque[Millis] = deque(maxlen=MARKS_MAX)

    def on_up(self, *, session_present: bool) -> None:
        """Continue the resumed session, or start anew with a new one."""
        if not session_present:
            self.last = 0
        self._sent_at_ms.clear()

    def on_packet(self, packet_id: int, *, duplicate: bool) -> int:
        """Return the number of publications lost before this one."""
        step = (packet_id - self.last) % PACKET_IDS
        if duplicate and self.last and (step == 0 or step > PACKET_IDS // 2):
            return 0  # received before, but our acknowledgement was lost
        lost = (step - 1) % PACKET_IDS if self.last else 0
        self.last = packet_id
        self.lost += lost
        return lost

    def on_mark_sent(self, *, now_ms: Millis) -> None:
        """Note that a mark was published."""
        if len(self._sent_at_ms) < MARKS_MAX:
            self._sent_at_ms.append(now_ms)

    def on_mark(self, sent_at_ms: Millis) -> None:
        """Note that a mark came back: messages sent before it came, or never will."""
        while self._sent_at_ms and self._sent_at_ms[0] <= sent_at_ms:
            self._sent_at_ms.popleft()

    def is_late(self, *, now_ms: Millis) -> bool:
        """Whether a mark is missing for so long that received messages are old."""
        return bool(self._sent_at_ms) and now_ms - self._sent_at_ms[0] >= LATE_MS
