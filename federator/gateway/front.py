"""One client whose topics belong to several brokers: its connection, and an attendant for each way.

To each attendant its strand is the client. What they write there the split puts together; what it
has for a way is handed to that way's attendant as if the client had said it. When one way ends the
client, all end.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from federator.gateway.attendant import Attendant
from federator.gateway.ports import Port
from federator.gateway.split import Split
from federator.gateway.wire import (
    FROM_SERVER,
    MalformedError,
    Packet,
    Splitter,
    Version,
    write_disconnect,
)
from federator.protocol.types import Millis

_NO_LIMIT: Final = 2**31


class Strand:
    """The client, as the attendant of one way sees it."""

    __slots__ = ("_front", "_way", "closed")

    def __init__(self, front: "Front", way: int) -> None:
        self._front = front
        self._way = way
        self.closed = False

    @property
    def open(self) -> bool:
        """Whether the client hears what is written."""
        return not self.closed and self._front.open

    @property
    def full(self) -> bool:
        """The client takes no more just now."""
        return self._front.full

    def block(self, why: str, blocked: bool) -> None:
        """Read no more of the client while there is any reason not to."""
        self._front.block(f"{why} {self._way}", blocked)

    def write(self, packets: list[bytes]) -> None:
        """Give ``packets`` to the client, as far as they are for it."""
        if not self.closed:
            self._front.on_written(self._way, b"".join(packets))

    def close(self) -> None:
        """This way has ended."""
        if not self.closed:
            self.closed = True
            self._front.on_closed()


class Front:
    """One client.

    Args:
        port: Its connection.
        splitter: Of what it sends.
        split: Which puts it together.
        version: Of the protocol.
        buffer_bytes_max: Of what waits until all ways have accepted it.
        now_ms: Monotonic time.
        on_torn: Told the attendants whose brokers are to keep no session.
        on_over: Told when the client is gone.
    """

    def __init__(
        self,
        port: Port,
        splitter: Splitter,
        split: Split,
        *,
        version: Version,
        buffer_bytes_max: int,
        now_ms: Callable[[], Millis],
        on_torn: Callable[[list[Attendant]], None],
        on_over: Callable[[Split], None],
    ) -> None:
        self._port = port
        self._splitter = splitter
        self._split = split
        self._version = version
        self._buffer_bytes_max = buffer_bytes_max
        self._now_ms = now_ms
        self._on_torn = on_torn
        self._on_over = on_over
        self._over = False
        self._early: list[tuple[bytes, list[Packet]]] = []
        self._due: asyncio.Handle | None = None
        self._attendants: Sequence[Attendant] = ()
        self.strands = [Strand(self, way) for way in range(len(split.to_ways))]
        self._from_ways = [Splitter(limit=_NO_LIMIT, firsts=FROM_SERVER) for _ in self.strands]

    @property
    def open(self) -> bool:
        """Whether the client is there."""
        return self._port.open and not self._over

    @property
    def full(self) -> bool:
        """It takes no more just now."""
        return self._port.full

    def start(self, attendants: Sequence[Attendant]) -> None:
        """Let the attendants of all ways find their brokers."""
        self._attendants = attendants
        for attendant in attendants:
            attendant.start()

    # -- the client -------------------------------------------------------------------------------

    def go_on(self, block: bytes, packets: list[Packet]) -> None:
        """The client sent more than its CONNECT at once."""
        self._hear(block, packets)

    def on_data(self, port: Port, data: bytes) -> None:
        """The client sent something."""
        try:
            self._hear(*self._splitter.feed(data))
        except MalformedError as error:
            self._refuse(error)

    def on_lost(self, port: Port, error: Exception | None) -> None:
        """The client's connection broke, or it left."""
        self._end()
        for attendant, strand in zip(self._attendants, self.strands, strict=True):
            attendant.on_lost(strand, error)

    def on_room(self, port: Port, room: bool) -> None:
        """The client takes more, or no more: so with what all brokers have for it."""
        for attendant, strand in zip(self._attendants, self.strands, strict=True):
            attendant.on_room(strand, room)

    def _hear(self, block: bytes, packets: list[Packet]) -> None:
        now_ms = self._now_ms()
        for attendant in self._attendants:
            attendant.heard_ms = now_ms
        if not self._split.accepted:
            self._early.append((block, packets))
            waits = sum(len(each) for each, _ in self._early)
            self._port.block("early", waits > self._buffer_bytes_max)
            return
        try:
            self._split.from_client(block, packets, now_ms)
            if self._splitter.fault is not None:
                raise self._splitter.fault
        except MalformedError as error:
            self._feed()
            self._refuse(error)
            return
        self._flush()
        self._feed()

    def _refuse(self, error: MalformedError) -> None:
        for attendant in self._attendants[:1]:
            attendant.dismiss(error.reason, str(error))

    # -- the ways ---------------------------------------------------------------------------------

    def block(self, why: str, blocked: bool) -> None:
        """Read no more of the client while any way has a reason not to."""
        self._port.block(why, blocked)

    def on_written(self, way: int, data: bytes) -> None:
        """A way has something for the client."""
        if self._over:
            return
        accepted = self._split.accepted
        try:
            self._split.from_way(way, *self._from_ways[way].feed(data))
        except MalformedError:
            self._soon(self._attendants[way].broker_is_dead)
            return
        self._flush()
        if self._split.torn:
            self._refuse_torn()
        elif not self._split.accepted:
            full = self._split.early_bytes > self._buffer_bytes_max
            self._attendants[way].on_room(self.strands[way], not full)
        elif not accepted:
            self._soon(self._catch_up)
        if any(self._split.to_ways) and self._due is None:
            # Not now: the attendant that wrote this is in the midst of it.
            self._due = self._soon(self._feed)

    def on_closed(self) -> None:
        """A way has ended: with it the client, unless it only says goodbye to all."""
        if self._over or (self._split.leaving and not all(s.closed for s in self.strands)):
            return
        self._port.close()
        refused = not self._split.accepted
        self._end()
        self._soon(self._leave_quietly if refused else self._leave)

    def _refuse_torn(self) -> None:
        """No broker keeps anything of a session that others have not, nor one begun just now."""
        self._port.close()
        self._end()

        def leave() -> None:
            self._leave_quietly()
            self._on_torn([*self._attendants])

        self._soon(leave)

    def _leave(self) -> None:
        """The client is gone without a word: where its will is, it is due."""
        for attendant, strand in zip(self._attendants, self.strands, strict=True):
            if not strand.closed:
                attendant.on_lost(strand, None)

    def _leave_quietly(self) -> None:
        """The client was never let in, so nothing of it is left behind."""
        goodbye = write_disconnect(0, self._version)
        for attendant, strand in zip(self._attendants, self.strands, strict=True):
            if not strand.closed:
                attendant.on_data(strand, goodbye)

    def _catch_up(self) -> None:
        """All ways are there: hear what the client said meanwhile."""
        for attendant, strand in zip(self._attendants, self.strands, strict=True):
            attendant.on_room(strand, not self._port.full)
        early, self._early = self._early, []
        self._port.block("early", False)
        for block, packets in early:
            self._hear(block, packets)

    def _feed(self) -> None:
        """Hand to each way what the split has for it."""
        self._due = None
        for way, out in enumerate(self._split.to_ways):
            if out:
                data = b"".join(out)
                out.clear()
                self._attendants[way].on_data(self.strands[way], data)

    def _flush(self) -> None:
        out = self._split.to_client
        if out and not self._over:
            self._port.write(out)
        out.clear()

    def _soon(self, do: Callable[[], None]) -> asyncio.Handle:
        return asyncio.get_running_loop().call_soon(do)

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._on_over(self._split)
