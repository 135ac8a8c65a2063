"""The port at which neighbours' agents deliver their frames directly to us.

It implements the part of a broker's MQTT that such an agent uses: it accepts a caller with the
token that we made for that neighbour, takes PUBLISH packets of QoS 0, confirms how many came, and
answers pings. In a federation with keys a caller must first send a packet under the neighbour's
seal before it takes that neighbour's place, and each later packet opens in its position or ends the
connection. A caller without a valid packet may send little, and is soon disconnected; there are
never many of them. So strangers cost us a socket each for a moment, and nothing else.

Source: docs/direct.md; OASIS MQTT 5.0, sections 3.1 to 3.3, 3.12 to 3.14.
"""

import asyncio
import contextlib
import hmac
import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mqtt5 import ConnAckPacket, PingRespPacket, PublishPacket

from federator.errors import ConfigError, DecodeError, LinkError
from federator.protocol.trust.guard import Guard
from federator.protocol.trust.sealed_connection import DRAWN_BYTES, SealedConnection, welcome
from federator.protocol.types import BrokerId
from federator.runtime.direct.wire import (
    CONFIRM_TOPIC,
    CONFIRMATION,
    URGENT_TOPIC,
    Greeting,
    read_greeting,
    read_packets,
)
from federator.runtime.mqtt.link import PACKETS_PER_TURN_MAX
from federator.runtime.mqtt.transport import PacketTransport
from federator.runtime.process.antechamber import Antechamber, Place
from federator.runtime.process.listening import bound, place_taken

GREETING_S: Final = 3.0
"""The time limit for a caller to send its token."""

STRANGERS_MAX: Final = 64
"""Callers without a valid token: beyond, the oldest gives way,"""

STRANGERS_PER_ADDRESS_MAX: Final = 16
"""and beyond this among those of one address: it displaces only itself."""

GREETING_BYTES_MAX: Final = 512
FRAME_PACKET_BYTES_MAX: Final = 16 * 1024 * 1024
"""The same bound as for a broker."""

ANSWERS_BYTES_MAX: Final = 65_536
"""What may wait for a caller that does not read."""

CONFIRM_S: Final = 0.02
CONFIRM_FRAMES: Final = 256
"""So many frames are confirmed before that time has passed."""


class DirectPort:
    """The port for neighbours' agents.

    Args:
        listen: ``host:port`` for TCP.
        path: An additional Unix socket, if wanted.
        on_frames: Handles a neighbour's frames, in order.
        guard: Knows the neighbours' keys; ``None`` in an open federation.
        on_refused: Called for each packet without a seal for its position.

    Raises:
        ConfigError: An address is not available.

    Attributes:
        refused: Callers refused or disconnected.
        frames: Count of received frames.
    """

    def __init__(
        self,
        listen: str,
        path: Path | None,
        on_frames: Callable[[Sequence[bytes], BrokerId], None],
        guard: Guard | None = None,
        on_refused: Callable[[DecodeError], None] = lambda _: None,
    ) -> None:
        self._path = path
        self.on_frames, self.guard, self.on_refused = on_frames, guard, on_refused
        self.refused = self.frames = 0
        self._tokens: dict[BrokerId, bytes] = {}
        self._callers: dict[BrokerId, _Caller] = {}
        self.gave_way = self.over_share = 0
        self.antechamber = Antechamber(
            self, unfinished_max=STRANGERS_MAX, per_address_max=STRANGERS_PER_ADDRESS_MAX
        )
        self._servers: list[asyncio.AbstractServer] = []
        self._sockets = [bound(listen, socket.SOCK_STREAM, key="direct.listen")]
        self.port: int = self._sockets[0].getsockname()[1]
        if path is not None:
            try:
                self._sockets.append(_unix_socket(path))
            except ConfigError:
                self.close()
                raise

    async def open(self) -> None:
        """Accept neighbours from now on."""
        loop = asyncio.get_running_loop()
        tcp, *unix = self._sockets
        self._servers.append(await loop.create_server(self._on_call, sock=tcp))
        for unix_socket in unix:
            self._servers.append(await loop.create_unix_server(self._on_call, sock=unix_socket))

    def close(self) -> None:
        """Stop listening, and close all connections."""
        for server in self._servers:
            server.close()
        for unserved in self._sockets[len(self._servers) :]:  # those without a server
            unserved.close()
        self.antechamber.clear()
        for caller in self._callers.values():
            caller.abort()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def expect(self, neighbour: BrokerId, token: bytes) -> None:
        """Accept ``neighbour`` with ``token``."""
        self._tokens[neighbour] = token

    def forget(self, neighbour: BrokerId) -> None:
        """Stop accepting ``neighbour``, and end its connection."""
        self._tokens.pop(neighbour, None)
        caller = self._callers.pop(neighbour, None)
        if caller is not None:
            caller.abort()

    def is_called_by(self, neighbour: BrokerId) -> bool:
        """Whether a neighbour's agent is connected to us."""
        return neighbour in self._callers

    # -- callers ----------------------------------------------------------------------------------

    def _on_call(self) -> PacketTransport:
        return _Caller(self)

    def check_token(self, greeting: Greeting) -> None:
        """Check the token of a caller.

        Raises:
            LinkError: It is no neighbour.
        """
        token = self._tokens.get(greeting.sender)
        if token is None or not hmac.compare_digest(greeting.token, token):
            raise LinkError("a caller without the token of a neighbour")

    def admit(self, caller: "_Caller", neighbour: BrokerId) -> None:
        """Admit a caller; a neighbour that connects again has lost its former connection."""
        former = self._callers.get(neighbour)
        if former is not None:
            former.abort()
        caller.place.leave()
        self._callers[neighbour] = caller
        caller.admitted = True

    def on_lost(self, caller: "_Caller") -> None:
        """A connection ended; count it as refused if it was never admitted."""
        caller.place.leave()
        if not caller.admitted:
            self.refused += 1
        elif caller.neighbour is not None and self._callers.get(caller.neighbour) is caller:
            del self._callers[caller.neighbour]


class _Caller(PacketTransport):
    """One connection to the port; ``neighbour`` is set once the token is verified."""

    place: Place

    def __init__(self, port: DirectPort) -> None:
        super().__init__(
            self._on_chunk,
            packet_bytes_max=GREETING_BYTES_MAX,
            queue_bytes_max=ANSWERS_BYTES_MAX,
        )
        self.neighbour: BrokerId | None = None
        self.admitted = False
        self._port = port
        self._line: SealedConnection | None = None  # once admitted, in a federation with keys
        self._came = self._came_urgent = self._confirmed = 0
        self._timer: asyncio.TimerHandle | None = None
        self.lost.add_done_callback(lambda _: self._on_lost())
        self._patience = asyncio.get_running_loop().call_later(GREETING_S, self.abort)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place among the callers without a valid packet."""
        super().connection_made(transport)
        place = self._port.antechamber.enter(self.peer, self.abort)
        assert place is not None, "nobody among them waits for us"
        self.place = place

    def _on_chunk(self, chunk: memoryview) -> int:
        if self.neighbour is None:
            return self._on_greeting(chunk)
        read = read_packets(chunk, packets_max=PACKETS_PER_TURN_MAX)
        if read.messages:
            self._on_messages(self.neighbour, read.messages)
        for _ in range(read.pings):
            self.send(PingRespPacket().write(), urgent=True, refusable=False)
        return read.used

    def _on_greeting(self, chunk: memoryview) -> int:
        read = read_greeting(chunk)
        if read is None:
            return 0
        used, greeting = read
        self._port.check_token(greeting)
        self.neighbour = greeting.sender
        if self._port.guard is None:
            self._admit(self.neighbour)
        self.send(ConnAckPacket().write(), urgent=True, refusable=False)
        return used

    def _admit(self, neighbour: BrokerId) -> None:
        self._port.admit(self, neighbour)
        self._patience.cancel()
        self.packet_bytes_max = FRAME_PACKET_BYTES_MAX

    def _on_messages(self, neighbour: BrokerId, messages: list[tuple[str, bytes]]) -> None:
        guard = self._port.guard
        try:
            if guard is not None and self._line is None:
                self._on_first(guard, neighbour, *messages.pop(0))
            line, frames, urgent = self._line, list[bytes](), 0
            for sort, payload in messages:
                if sort == CONFIRM_TOPIC:
                    raise DecodeError("a publication that is no frame")
                frames.append(payload if line is None else line.open(sort, payload))
                urgent += sort == URGENT_TOPIC
        except DecodeError as error:  # all frames of this read will be resent by the broker
            self._port.on_refused(error)
            raise LinkError(str(error)) from error
        if frames:
            self._on_frames(neighbour, frames, urgent)

    def _on_first(self, guard: Guard, neighbour: BrokerId, sort: str, payload: bytes) -> None:
        if sort != CONFIRM_TOPIC:
            raise DecodeError("frames before a greeting under seal")
        drawn = secrets.token_bytes(DRAWN_BYTES)
        answer, self._line = welcome(guard, neighbour, payload, drawn)
        self._admit(neighbour)
        self.send(PublishPacket(CONFIRM_TOPIC, answer).write(), refusable=False)

    def _on_frames(self, neighbour: BrokerId, frames: Sequence[bytes], urgent: int) -> None:
        self._came_urgent += urgent
        self._came += len(frames) - urgent
        self._port.frames += len(frames)
        self._port.on_frames(frames, neighbour)
        if self._came + self._came_urgent - self._confirmed >= CONFIRM_FRAMES:
            self._confirm()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CONFIRM_S, self._confirm)

    def _confirm(self) -> None:
        """Confirm how many frames have come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._confirmed = self._came + self._came_urgent
        counts = CONFIRMATION.pack(self._came, self._came_urgent)
        payload = counts if self._line is None else self._line.seal(CONFIRM_TOPIC, counts)
        if payload is not None:
            self.send(PublishPacket(CONFIRM_TOPIC, payload).write(), refusable=False)

    def _on_lost(self) -> None:
        self._patience.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._port.on_lost(self)


def _unix_socket(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)  # from an earlier process
        made.bind(str(path))
        path.chmod(0o660)
    except OSError as error:
        made.close()
        mend = "name a folder that agents may write to"
        raise place_taken("direct.folder", str(path.parent), error, mend) from error
    return made
