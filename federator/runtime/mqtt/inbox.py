"""What others say to us, taken a little at a time.

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
"""Of messages of one sender that wait."""

BYTES_MAX = 32 * 1024 * 1024
"""Of all of them."""


class Inbox:
    """What others say waits here until they are taken: no flood holds the loop.

    A read may bring hundreds of messages, and each may cost milliseconds. What does not fit into
    ``TURN_S`` waits for the next turn of the loop. Senders take turns, and each has room of its
    own, so that a hello is heard beside another's flood; what one sender says stays in order. Whose
    message it is says its seal, before anybody judged that: who writes another's name there takes
    that one's room, which the broker's ACL prevents. What bears no seal waits as if it were of one
    more sender.
    """

    def __init__(self, take: Callable[[PublishPacket], None]) -> None:
        self._take = take
        self._waiting: OrderedDict[BrokerId | None, deque[PublishPacket]] = OrderedDict()
        self._bytes: dict[BrokerId | None, int] = {}
        self._bytes_in_all = 0
        self._next_turn: asyncio.Handle | None = None

    def put(self, packet: PublishPacket) -> bool:
        """Let ``packet`` wait for ``work``; ``False`` when there is no room."""
        sender, size = claimed_sender(packet.payload), len(packet.payload)
        waiting = self._bytes.get(sender, 0)
        if waiting + size > SENDER_BYTES_MAX or self._bytes_in_all + size > BYTES_MAX:
            return False
        self._bytes[sender] = waiting + size
        self._bytes_in_all += size
        self._waiting.setdefault(sender, deque()).append(packet)
        return True

    def work(self) -> None:
        """Look at what waits, as much as there is time for; at the rest in turns to come."""
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
