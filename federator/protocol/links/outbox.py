"""Outboxes: how an agent sends to another one without reaching its broker.

A broker behind NAT can dial and cannot be dialled. Its agent announces in its hellos, instead of
its broker's address, that it fetches its messages. The other end then keeps an *outbox* for it, a
topic of its own on its own broker, and the agent that dials subscribes to that topic over the
connection that it dialled anyway. It is a letter box: a customer whose door the postman cannot
reach calls at the post office.

To links this is an address like any other, and an outbox is a connection like any other: hellos,
Wills and counts of ups mean what they always do. One thing is missing. Over TCP a sender notices
how fast the other end receives; here the sender's own broker accepts everything at once, and would
keep it, or drop it. So the sender has a *credit*: so much may be under way. Among its messages it
publishes marks that say how much it has sent so far; the receiver of a mark returns it, and by then
has received everything sent before. Marks count from the beginning, so neither lost data nor lost
marks make the two ends disagree.

Source: docs/protocol.md 19.
"""

from typing import Final

PREFIX: Final = "outbox:"

WINDOW_BYTES: Final = 1_048_576
"""What may be under way. Our broker keeps as much for a receiver that does not read. With a round
trip of 100 ms it allows 80 Mbit/s.
"""

WINDOW_PACKETS: Final = 800
"""The same in packets: Mosquitto drops messages for a client for which 1,000 wait."""

MARKS: Final = 8
"""Marks per window: credit comes back in pieces, and marks cost next to nothing."""


def outbox_of(address: str) -> str:
    """The address of an agent that fetches its messages; its broker is at ``address``."""
    return PREFIX + address


def is_outbox(address: str) -> bool:
    """Whether an agent with this address must be sent to by an outbox."""
    return address.startswith(PREFIX)


def place_of(address: str) -> str:
    """The broker's address, whether or not its agent fetches its messages."""
    return address.removeprefix(PREFIX)


class Credit:
    """What one sender may still publish for one receiver, and when it must send a mark.

    Args:
        window_bytes: While less than this is under way, another packet may be sent.
        window_packets: The same in packets.
    """

    def __init__(
        self, *, window_bytes: int = WINDOW_BYTES, window_packets: int = WINDOW_PACKETS
    ) -> None:
        self._bytes_max, self._packets_max = window_bytes, window_packets
        self.sent_bytes = self.sent_packets = 0
        self.taken_bytes = self.taken_packets = 0
        self._marked_bytes = self._marked_packets = 0

    @property
    def owed_bytes(self) -> int:
        """Sent, and not yet confirmed as taken."""
        return self.sent_bytes - self.taken_bytes

    @property
    def owed_packets(self) -> int:
        """The same in packets."""
        return self.sent_packets - self.taken_packets

    @property
    def open(self) -> bool:
        """Whether another packet may be sent now."""
        return self.owed_bytes < self._bytes_max and self.owed_packets < self._packets_max

    def on_sent(self, size: int) -> bool:
        """Count a packet of ``size`` bytes; return whether a mark is to follow it."""
        self.sent_bytes += size
        self.sent_packets += 1
        since_bytes = self.sent_bytes - self._marked_bytes
        since_packets = self.sent_packets - self._marked_packets
        return (
            not self.open
            or since_bytes * MARKS >= self._bytes_max
            or since_packets * MARKS >= self._packets_max
        )

    def mark(self) -> tuple[int, int]:
        """The bytes and packets sent so far, for a mark that is sent now."""
        self._marked_bytes, self._marked_packets = self.sent_bytes, self.sent_packets
        return self.sent_bytes, self.sent_packets

    def on_taken(self, taken_bytes: int, taken_packets: int) -> None:
        """Handle a returned mark; an old one, or one that was never sent, changes nothing."""
        if taken_bytes <= self.sent_bytes and taken_packets <= self.sent_packets:
            self.taken_bytes = max(self.taken_bytes, taken_bytes)
            self.taken_packets = max(self.taken_packets, taken_packets)
