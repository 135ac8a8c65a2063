"""One connection to a broker: how we introduce ourselves, keep it alive, and leave.

It ends for good. What outlives it, the session and the next attempt, is the link's; its bytes and
queues are the transport's. Here stands what takes time: how long the broker may be silent before it
is given up, while it lets us in, while it serves us, and when we say good-bye; and how long to wait
before the next attempt.

A session that must be new and must outlast its broker takes two connections: Mosquitto up to 2.0
saves, when it stops in order, only the sessions that did not begin with a clean start (measured on
2.0.11). So the first connection begins with a clean start and leaves at once, which wipes what was
there, and the second, which stays, begins without one.

Source: OASIS MQTT 5.0, sections 3.1 (CONNECT), 3.1.2.10 (Keep Alive), 3.2.2.3.14 (Server Keep
Alive), 3.14 (DISCONNECT); M. Brooker, "Exponential Backoff And Jitter", 2015 ("full jitter").
"""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from mqtt5 import ConnAckPacket, ConnectPacket, DisconnectPacket, Will
from mqtt5 import DisconnectReasonCode as Code

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

    A thousand agents that lost one broker must not come back in step. Full jitter spreads them over
    the whole interval, which costs the broker the least work for the same mean time to success.

    Args:
        min_ms: Upper bound of the first delay.
        max_ms: Upper bound of every delay. A connection that lasted this long starts afresh.
    """

    min_ms: int
    max_ms: int
    rng: random.Random
    _failures: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not 0 < self.min_ms <= self.max_ms:
            wanted = "0 < min_ms <= max_ms wanted"
            raise ValueError(f"back-off: {wanted}, got {self.min_ms} and {self.max_ms}")

    def next_delay_ms(self) -> float:
        """The delay before the next attempt."""
        ceiling_ms = min(self.max_ms, self.min_ms << self._failures)
        self._failures = min(self._failures + 1, DOUBLINGS_MAX)
        return self.rng.uniform(0, ceiling_ms)

    def connection_lasted(self, lasted_ms: float) -> None:
        """Forget earlier failures when a connection was up long enough to be trusted."""
        if lasted_ms >= self.max_ms:
            self._failures = 0


@dataclass(slots=True, kw_only=True)
class Introduction:
    """What a client says of itself in CONNECT, for one connection after another.

    Attributes:
        keep_alive_s: After one and a half times this long without a word from us the broker gives
            us up.
        packet_bytes_max: The broker must send nothing longer.
        must_wipe: Whether another connection is to wipe what is kept of us before the next.
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
        """Have what the broker keeps for us wiped before the next connection."""
        self.must_wipe = self.session_expiry_s > 0

    def connect(self, *, to_wipe: bool = False) -> bytes:
        """The CONNECT of a connection that stays.

        Or, ``to_wipe``, of one that leaves at once, with no Will and no session left.
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
    """One connection: open it, then keep it alive; leave it at any time.

    Args:
        promise: Told within how many seconds the connection will be attended to again.
    """

    pipe: PacketTransport
    introduction: Introduction
    open_timeout_s: float
    promise: Callable[[float], None]

    def __post_init__(self) -> None:
        self._accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer_in_s = self.introduction.keep_alive_s / 2

    async def open(self, endpoint: Endpoint) -> None:
        """Connect, introduce ourselves, and wait until the broker accepts or the connection ends.

        Raises:
            OSError: Nobody there.
            UnicodeError: Its host is no name of a host.
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
        """Note that the broker lets us in; its own keep-alive holds, if it named one."""
        if ack.server_keep_alive is not None:
            self._answer_in_s = ack.server_keep_alive / 2
        self._accepted.set_result(None)

    async def keep_alive(self) -> None:
        """Ping until the connection is lost.

        A sign of life is any byte received or, with a backlog, any byte the broker's side took: a
        PINGREQ behind a long backlog is answered late.

        Raises:
            LinkError: When half a keep-alive passed without a sign of life.
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

    async def leave(self, *, with_will: bool, keep_session: bool = True) -> None:
        """Send DISCONNECT and what the transport holds, within ``CLOSE_TIMEOUT_S``."""
        code = Code.DISCONNECT_WITH_WILL_MESSAGE if with_will else Code.NORMAL_DISCONNECTION
        try:
            if self._accepted.done():
                expiry_s = None if keep_session else 0
                packet = DisconnectPacket(reason_code=code, session_expiry_interval=expiry_s)
                self.pipe.close(packet.write())
                await asyncio.wait({self.pipe.lost}, timeout=CLOSE_TIMEOUT_S)
        finally:
            self.pipe.abort()
