"""A client of one broker stays: one connection after another, and a pause before each next one.

A thousand agents that lost one broker must not come back in step. Full jitter spreads them over the
whole interval, which costs the broker the least work for the same mean time to success.

Source: M. Brooker, "Exponential Backoff And Jitter", 2015 (the "full jitter" variant).
"""

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from federator.errors import LinkError
from federator.runtime.mqtt.connection import Introduction, MqttConnection
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.transport import PacketTransport

_DOUBLINGS_MAX = 32
_EXPECTED = (OSError, UnicodeError, LinkError)  # UnicodeError: of an impossible host name


@dataclass(kw_only=True, eq=False, repr=False)
class Backoff:
    """Delays between attempts: exponential, capped, with full jitter.

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
        self._failures = min(self._failures + 1, _DOUBLINGS_MAX)
        return self.rng.uniform(0, ceiling_ms)

    def connection_lasted(self, lasted_ms: float) -> None:
        """Forget earlier failures when a connection was up long enough to be trusted."""
        if lasted_ms >= self.max_ms:
            self._failures = 0


@dataclass(kw_only=True, eq=False, repr=False)
class Reconnector:
    """Makes one connection to a broker after another, and backs off in between.

    Args:
        make_pipe: A fresh transport, which the client uses from now on.
        on_lost: The connection over a transport is gone; tells whether it was up.
    """

    endpoint: Endpoint
    introduction: Introduction
    make_pipe: Callable[[], PacketTransport]
    on_lost: Callable[[PacketTransport], bool]
    backoff: Backoff
    connect_timeout_s: float
    give_way_s: float

    def __post_init__(self) -> None:
        self._resume_at_s = 0.0
        self._due_s = math.inf  # by when run() attends to the link again; never, unless it runs
        self._stop = asyncio.Event()
        self.connection: MqttConnection | None = None
        self.attempts = 0

    @property
    def stopping(self) -> bool:
        """Whether the client leaves, or has left."""
        return self._stop.is_set()

    @property
    def overdue_s(self) -> float:
        """How long ``run`` is behind the time by which it meant to attend to the link again."""
        return max(0.0, time.monotonic() - self._due_s)

    async def run(self) -> None:
        """Connect again and again, until cancelled or closed; see ``MqttLink.run``."""
        self._stop.clear()
        while not self._stop.is_set():
            self.backoff.connection_lasted(await self._connect_once())
            delay_s = self.backoff.next_delay_ms() / 1000
            self._resume_at_s = max(self._resume_at_s, time.monotonic() + delay_s)
            # Asked again when the pause is over: it may have been made longer meanwhile.
            while not self._stop.is_set() and time.monotonic() < self._resume_at_s:
                self._due_s = self._resume_at_s
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._resume_at_s - time.monotonic()):
                        await self._stop.wait()
        self._due_s = math.inf

    def give_way(self) -> None:
        """Wait for a while, and then begin with a new session: the other has what was for us."""
        self.introduction.forget_session()
        self._resume_at_s = time.monotonic() + self.give_way_s

    async def close(self, *, with_will: bool, keep_session: bool) -> None:
        """Leave and make ``run`` return; ``with_will`` has the broker publish the Will."""
        self._stop.set()
        if self.connection is not None:
            await self.connection.leave(with_will=with_will, keep_session=keep_session)

    async def _connect_once(self) -> float:
        """Open a connection and serve it to its end; return how long it was up, in ms."""
        loop = asyncio.get_running_loop()
        pipe = self.make_pipe()
        connection = self.connection = MqttConnection(
            pipe, self.introduction, open_timeout_s=self.connect_timeout_s, promise=self._promise
        )
        self.attempts += 1
        up_since_s = loop.time()
        try:
            await connection.open(self.endpoint)
            up_since_s = loop.time()
            await connection.keep_alive()
        except asyncio.CancelledError:
            self._stop.set()
            await connection.leave(with_will=False)
            raise
        except _EXPECTED as error:
            pipe.abort(error)
        finally:
            pipe.abort()
            self.connection = None
            was_up = self.on_lost(pipe)
        if pipe.reason is not None and not isinstance(pipe.reason, _EXPECTED):
            raise pipe.reason
        return (loop.time() - up_since_s) * 1000 if was_up else 0.0

    def _promise(self, within_s: float) -> None:
        self._due_s = time.monotonic() + within_s
