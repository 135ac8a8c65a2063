"""Control messages from other agents, handled a few at a time.

Source: docs/security.md, "Threats and answers".
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from mqtt5 import PublishPacket

from federator.protocol.trust.guard import claimed_sender
from federator.protocol.types import BrokerId

TURN_S = 0.01

SENDER_BYTES_MAX = 8 * 1024 * 1024
"""Bound of the waiting messages of one sender."""

BYTES_MAX = 32 * 1024 * 1024
"""Bound of all waiting messages."""


class Inbox:
    """Control messages wait here until they are handled, so that no flood blocks the event loop.

    A read may bring hundreds of messages, and each may cost milliseconds. What does not fit into
    ``TURN_S`` waits for the next turn of the loop. Senders take turns and each has its own room, so
    a hello gets through beside another sender's flood; messages of one sender stay in order. The
    sender is the one named in the seal, before the seal is verified: an agent that forges another's
    name uses up the other's room, which the broker's ACL prevents. Messages without a seal share
    one room.
    """

    def __init__(self, take: Callable[[PublishPacket], None]) -> None:
        self._take = take
        self._waiting: OrderedDict[BrokerId | None, deque[PublishPacket]] = OrderedDict()
        self._bytes: dict[BrokerId | None, int] = {}
        self._bytes_in_all = 0
        self._next_turn: asyncio.Handle | None = None

    def put(self, packet: PublishPacket) -> bool:
        """Queue ``packet`` for ``work``; ``False`` when there is no room."""
        sender, size = claimed_sender(packet.payload), len(packet.payload)
        waiting = self._bytes.get(sender, 0)
        if waiting + size > SENDER_BYTES_MAX or self._bytes_in_all + size > BYTES_MAX:
            return False
        self._bytes[sender] = waiting + size
        self._bytes_in_all += size
        self._waiting.setdefault(sender, deque()).append(packet)
        return True

    def work(self) -> None:
        """Handle waiting packets while there is time, the rest in later turns of the loop."""
        if self._waiting and self._next_turn is None:
            self._turn()

    def _turn(self) -> None:
        self._next_turn = None
        until_s = time.monotonic() + TURN_S
        while self._waiting:
            sender, packets = self._waiting.popitem(last=False)
            packet = packets.popleft()
            self._bytes_in_all -= len(packet.payload)
            if packets:
                self._waiting[sender] = packets
                self._bytes[sender] -= len(packet.payload)
            else:
                del self._bytes[sender]
            self._take(packet)
            if self._waiting and time.monotonic() > until_s:
                self._next_turn = asyncio.get_running_loop().call_soon(self._turn)
                return
