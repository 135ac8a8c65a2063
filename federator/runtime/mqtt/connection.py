"""One connection to a broker: CONNECT, keep-alive and DISCONNECT.

A connection ends for good. The session and the next attempt belong to the link; bytes and queues
belong to the transport. This module holds the time limits: how long the broker may be silent while
it accepts us, while it serves us and when we disconnect, and how long to wait before the next
attempt.

A session that must be new and must outlast its broker takes two connections: when Mosquitto up to
2.0 stops in order, it saves only the sessions that did not begin with a clean start (measured on
2.0.11). So the first connection begins with a clean start and disconnects at once, which wipes the
old session; the second connection, which stays, begins without one.

Source: OASIS MQTT 5.0, sections 3.1 (CONNECT), 3.1.2.10 (Keep Alive), 3.2.2.3.14 (Server Keep
Alive), 3.14 (DISCONNECT); M. Brooker, "Exponential Backoff And Jitter", 2015 ("full jitter").
"""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from mqtt5 import ConnAckPacket, ConnectPacket, DisconnectPacket, Will

from federator.errors import LinkError
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.failures import NoAnswerError
from federator.runtime.mqtt.session import RECEIVE_MAX
from federator.runtime.mqtt.session_packets import wipe_session
from federator.runtime.mqtt.transport import PacketTransport
from federator.runtime.mqtt.wire import PINGREQ

CLOSE_TIMEOUT_S = 1.0
DOUBLINGS_MAX = 32


@dataclass(kw_only=True, eq=False, repr=False)
class Backoff:
    """Delays between attempts: exponential, capped, with full jitter.

    A thousand agents that lost one broker must not reconnect in step. Full jitter spreads them over
    the whole interval, which costs the broker the least work for the same mean time to success.

    Args:
        min_ms: Upper bound of the first delay.
        max_ms: Upper bound of every delay. A connection that lasted this long resets the back-off.
    """

    min_ms: int
    max_ms: int
    rng: random.Random
    _failures: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not 0 < self.min_ms <= self.max_ms:
            condition = "0 < min_ms <= max_ms wanted"
            raise ValueError(f"back-off: {condition}, got {self.min_ms} and {self.max_ms}")

    def next_delay_ms(self) -> float:
        ceiling_ms = min(self.max_ms, self.min_ms << self._failures)
        self._failures = min(self._failures + 1, DOUBLINGS_MAX)
        return self.rng.uniform(0, ceiling_ms)

    def connection_lasted(self, lasted_ms: float) -> None:
        """Reset the back-off if a connection lasted at least ``max_ms``."""
        if lasted_ms >= self.max_ms:
            self._failures = 0


@dataclass(slots=True, kw_only=True)
class Introduction:
    """What a client sends in its CONNECT, for one connection after another.

    Attributes:
        keep_alive_s: The broker gives us up after 1.5 times this long without a packet from us.
        packet_bytes_max: The broker must send no longer packet.
        must_wipe: Whether to wipe our session by a separate connection before the next one.
    """

    client_id: str
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    clean_start: bool
    session_expiry_s: int
    keep_alive_s: int
    will: Will | Callable[[], Will | None] | None
    packet_bytes_max: int
    must_wipe: bool = field(init=False)

    def __post_init__(self) -> None:
        self.must_wipe = self.clean_start and self.session_expiry_s > 0

    def forget_session(self) -> None:
        """Wipe the session that the broker keeps for us before the next connection."""
        self.must_wipe = self.session_expiry_s > 0

    def connect(self, *, to_wipe: bool = False) -> bytes:
        """The CONNECT of a connection that stays.

        With ``to_wipe``: of one that disconnects at once and leaves no Will and no session.
        """
        will: Will | None = None
        if not to_wipe:
            will = self.will() if callable(self.will) else self.will
        return ConnectPacket(
            self.client_id,
            username=self.username,
            password=self.password,
            clean_start=to_wipe or (self.clean_start and self.session_expiry_s == 0),
            will=will,
            keep_alive=self.keep_alive_s,
            session_expiry_interval=0 if to_wipe else self.session_expiry_s,
            receive_max=RECEIVE_MAX,
            max_packet_size=self.packet_bytes_max,
        ).write()


@dataclass(eq=False, repr=False)
class MqttConnection:
    """One connection: open it, keep it alive, and leave it at any time.

    Args:
        promise: Called with the seconds within which we will attend to the connection again.
    """

    pipe: PacketTransport
    introduction: Introduction
    open_timeout_s: float
    promise: Callable[[float], None]

    def __post_init__(self) -> None:
        self._accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer_in_s = self.introduction.keep_alive_s / 2

    async def open(self, endpoint: Endpoint) -> None:
        """Connect, send CONNECT, and wait until the broker accepts or the connection ends.

        Raises:
            OSError: Nothing listens there.
            UnicodeError: The host is not a valid host name.
            LinkError: No answer in time.
        """
        pipe, introduction = self.pipe, self.introduction
        self.promise(self.open_timeout_s)
        try:
            async with asyncio.timeout(self.open_timeout_s):
                if introduction.must_wipe:
                    wiped = await wipe_session(endpoint, introduction.connect(to_wipe=True))
                    introduction.must_wipe = not wiped
                await endpoint.connect(lambda: pipe)
                pipe.send(introduction.connect(), urgent=True, refusable=False)
                await asyncio.wait({self._accepted, pipe.lost}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            kind = NoAnswerError if pipe.peer else LinkError
            raise kind(f"no answer within {self.open_timeout_s:g} s") from error

    def on_accepted(self, ack: ConnAckPacket) -> None:
        """Note that the broker accepted us. Its own keep-alive holds, if it named one."""
        if ack.server_keep_alive is not None:
            self._answer_in_s = ack.server_keep_alive / 2
        self._accepted.set_result(None)

    async def keep_alive(self) -> None:
        """Ping until the connection is lost.

        A sign of life is any byte received or, with a backlog, any byte the broker's side took: the
        broker answers a PINGREQ behind a long backlog late.

        Raises:
            LinkError: Half a keep-alive passed without a sign of life.
        """
        pipe = self.pipe
        while not pipe.lost.done():
            received, backlog = pipe.bytes_in, pipe.backlog_bytes
            taken = pipe.bytes_out - backlog
            pipe.send(PINGREQ, urgent=True, refusable=False)
            self.promise(self._answer_in_s or math.inf)
            await asyncio.wait({pipe.lost}, timeout=self._answer_in_s or None)
            draining = backlog > 0 and pipe.bytes_out - pipe.backlog_bytes > taken
            if not pipe.lost.done() and pipe.bytes_in == received and not draining:
                raise LinkError(f"no sign of life for {self._answer_in_s:g} s")

    async def leave(self, *, keep_session: bool = True) -> None:
        """Send DISCONNECT and what the transport holds, within ``CLOSE_TIMEOUT_S``."""
        try:
            if self._accepted.done():
                expiry_s = None if keep_session else 0
                packet = DisconnectPacket(session_expiry_interval=expiry_s)
                self.pipe.close(packet.write())
                await asyncio.wait({self.pipe.lost}, timeout=CLOSE_TIMEOUT_S)
        finally:
            self.pipe.abort()
