"""Outboxes: how an agent speaks to one whose broker it cannot reach.

A broker behind NAT can dial and cannot be dialled. Its agent says in its hellos, instead of where
its broker is, that it comes for what is said to it: then the other end keeps an *outbox* for it, a
topic of its own on its own broker, and the agent that dials subscribes that over the connection
that it dialled anyway. It is a letter box: who has no door that the postman can reach calls at the
post office.

To links this is an address as any other, and an outbox is a connection as any other: hellos, Wills
and counts of ups mean what they always do. One thing is missing. Over TCP a sender feels how fast
the other end takes what it is sent; here the sender's own broker takes everything at once, and
would keep it, or drop it. So the sender has a *credit*: so much may be on its way. Among what it
publishes are marks that say how much that was so far; whoever hears one says so back, and by then
has all that came before. Marks count from the beginning, so neither lost data nor lost marks leave
the two with different ideas.

Source: docs/protocol.md 19.
"""

from typing import Final

PREFIX: Final = "outbox:"

WINDOW_BYTES: Final = 1_048_576
"""What may be on its way. Our broker keeps as much for one that does not read. Over 100 ms it makes
80 Mbit/s."""

WINDOW_PACKETS: Final = 800
"""The same in packets: Mosquitto drops what comes for a client for which 1,000 wait."""

MARKS: Final = 8
"""So many in a window: credit comes back in pieces, and what carries it is next to nothing."""


def outbox_of(address: str) -> str:
    """The address of an agent that comes for what is said to it; its broker is at ``address``."""
    return PREFIX + address


def is_outbox(address: str) -> bool:
    """Whether an agent with this address must be spoken to in an outbox."""
    return address.startswith(PREFIX)


def place_of(address: str) -> str:
    """Where the broker is: the same however its agent wants to be spoken to."""
    return address.removeprefix(PREFIX)


class Credit:
    """What one sender may still publish for one receiver, and when to mark how far it is.

    Args:
        window_bytes: While less than this is on its way, another packet may go.
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
        """Sent, and not yet known to be taken."""
        return self.sent_bytes - self.taken_bytes

    @property
    def owed_packets(self) -> int:
        """The same in packets."""
        return self.sent_packets - self.taken_packets

    @property
    def open(self) -> bool:
        """Whether another packet may go now."""
        return self.owed_bytes < self._bytes_max and self.owed_packets < self._packets_max

    def on_sent(self, size: int) -> bool:
        """Count a packet of ``size`` bytes; whether a mark is to follow it."""
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
        """How much was sent so far, in bytes and packets; it is marked now."""
        self._marked_bytes, self._marked_packets = self.sent_bytes, self.sent_packets
        return self.sent_bytes, self.sent_packets

    def on_taken(self, taken_bytes: int, taken_packets: int) -> None:
        """The receiver heard the mark that says so; an old one, or one never made, says nothing."""
        if taken_bytes <= self.sent_bytes and taken_packets <= self.sent_packets:
            self.taken_bytes = max(self.taken_bytes, taken_bytes)
            self.taken_packets = max(self.taken_packets, taken_packets)
