"""One connection to a broker: opened, kept alive, and left.

It ends for good. What outlives it, the session and the next attempt, is ``mqtt_link``'s; its bytes
and queues are ``mqtt_transport``'s. Here stands what takes time: how long the broker may be silent
before it is given up, while it lets us in, while it serves us, and when we say good-bye.

Source: OASIS MQTT 5.0, sections 3.1.2.10 (Keep Alive), 3.2.2.3.14 (Server Keep Alive), 3.14.
"""

import asyncio
import math
from collections.abc import Callable

from mqtt5 import ConnAckPacket, DisconnectPacket, DisconnectReasonCode

from federator.errors import LinkError
from federator.runtime.mqtt_endpoint import Endpoint
from federator.runtime.mqtt_introduction import Introduction
from federator.runtime.mqtt_transport import PacketTransport
from federator.runtime.mqtt_wire import PINGREQ
from federator.runtime.session_wipe import wipe_session

CLOSE_TIMEOUT_S = 1.0


class Connection:
    """Open it, then keep it alive; leave it at any time.

    Args:
        pipe: Carries it: fresh, not connected yet.
        introduction: Who we are. It offers the keep-alive.
        open_timeout_s: From the first SYN to CONNACK.
        promise: Told within how many seconds the connection will be looked after again.
    """

    def __init__(
        self,
        pipe: PacketTransport,
        introduction: Introduction,
        *,
        open_timeout_s: float,
        promise: Callable[[float], None],
    ) -> None:
        self._pipe = pipe
        self._introduction = introduction
        self._open_timeout_s = open_timeout_s
        self._promise = promise
        self._accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer_in_s = introduction.keep_alive_s / 2

    async def open(self, endpoint: Endpoint) -> None:
        """Connect, introduce ourselves, and wait until the broker accepts or the connection ends.

        Raises:
            OSError: Nobody there.
            UnicodeError: Its host is no name of a host.
            LinkError: No answer in time.
        """
        pipe, introduction = self._pipe, self._introduction
        self._promise(self._open_timeout_s)
        try:
            async with asyncio.timeout(self._open_timeout_s):
                if introduction.must_wipe:
                    connect = introduction.connect_to_wipe()
                    wiped = await wipe_session(endpoint, connect)
                    introduction.must_wipe = not wiped
                await endpoint.connect(lambda: pipe)
                pipe.send(introduction.connect(), urgent=True, refusable=False)
                await asyncio.wait({self._accepted, pipe.lost}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            raise LinkError(f"no answer within {self._open_timeout_s:g} s") from error

    def on_accepted(self, ack: ConnAckPacket) -> None:
        """The broker lets us in; its own keep-alive holds, if it named one."""
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
        pipe = self._pipe
        while not pipe.lost.done():
            received, backlog = pipe.bytes_in, pipe.backlog_bytes
            taken = pipe.bytes_out - backlog
            pipe.send(PINGREQ, urgent=True, refusable=False)
            self._promise(self._answer_in_s or math.inf)
            await asyncio.wait({pipe.lost}, timeout=self._answer_in_s or None)
            draining = backlog > 0 and pipe.bytes_out - pipe.backlog_bytes > taken
            if not pipe.lost.done() and pipe.bytes_in == received and not draining:
                raise LinkError(f"no sign of life for {self._answer_in_s:g} s")

    async def leave(self, *, with_will: bool) -> None:
        """Send DISCONNECT and what the transport holds, within ``CLOSE_TIMEOUT_S``.

        Args:
            with_will: The broker publishes our Will.
        """
        code = (
            DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE
            if with_will
            else DisconnectReasonCode.NORMAL_DISCONNECTION
        )
        try:
            if self._accepted.done():
                self._pipe.close(DisconnectPacket(reason_code=code).write())
                await asyncio.wait({self._pipe.lost}, timeout=CLOSE_TIMEOUT_S)
        finally:
            self._pipe.abort()
