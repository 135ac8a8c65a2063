"""The search for a client's broker: for the first, and for another one when that is lost.

When a connection ends, its broker may have died or have disconnected this client alone. So the
gateway probes the broker on its own connection; what a living broker did is final.

Source: docs/gateway.md, "What is promised".
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from federator.gateway.brokers import Broker
from federator.gateway.session.orders import State
from federator.gateway.session.session import ClientSession
from federator.gateway.wire import Reason
from federator.protocol.types import BrokerId

RETRY_S: Final = 0.1
"""The pause after every broker failed, before they are tried again."""

REJECTIONS_MAX: Final = 3
"""How often living brokers may close the connection of a client that they have not accepted."""

BROKER_SECOND_MS: Final = 1_000
"""A broker counts silence in whole seconds, so it may end a client this much earlier."""


class Seeker(Protocol):
    """The client that needs a broker."""

    session: ClientSession

    @property
    def moving(self) -> bool:
        """Whether its old broker still serves it, in a planned move."""

    def is_too_silent(self, *, after_ms: int) -> bool:
        """Whether its silence, ``after_ms`` from now, exceeds its keep-alive."""

    def dismiss(self, reason: Reason, text: str) -> None:
        """End the client and send it the reason."""

    async def attach_to(self, broker: Broker, *, lost: Broker | None) -> bool:
        """Connect to ``broker`` and introduce the client; return whether the search may end."""


class BrokerSearch:
    """The searches of one client, one at a time.

    Args:
        brokers: Returns the brokers that could take the client, best first, without those given.
        hold_s: How long the client is kept without a broker.
    """

    def __init__(
        self,
        client: Seeker,
        brokers: Callable[[Iterable[BrokerId]], Sequence[Broker]],
        *,
        hold_s: float,
    ) -> None:
        self._client = client
        self._brokers = brokers
        self._hold_s = hold_s
        self._task: asyncio.Task[None] | None = None
        self._since_s: float | None = None
        self._failed: set[BrokerId] = set()
        self._rejections = 0

    def start(self, *, lost: Broker | None, generation: int = 0) -> None:
        """Search, unless a search is running.

        ``lost`` is the broker whose connection ended; it may have died. ``generation`` is that of
        our own connection to it when the client was attached.
        """
        running = self._task is not None and not self._task.done()
        if running and self._task is not asyncio.current_task():
            return
        name = f"broker for {self._client.session.connect.client_id}"
        self._task = asyncio.create_task(self._run(lost, generation), name=name)

    def on_failed(self, broker: Broker) -> None:
        """Try ``broker`` only after all others have failed, too."""
        self._failed.add(broker.id)

    def on_attached(self) -> None:
        """Forget earlier failures: a broker accepted the client."""
        self._since_s = None
        self._failed.clear()

    def cancel(self) -> None:
        """Cancel the search, unless it is the caller."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self, lost: Broker | None, generation: int) -> None:
        loop, session = asyncio.get_running_loop(), self._client.session
        if self._since_s is None:
            self._since_s = loop.time()
        end_s = self._since_s + self._hold_s
        if lost is not None and self._client.moving:
            self._failed.add(lost.id)  # the old broker serves the client until another does
            lost = None
        if lost is not None and await self._was_thrown_out(lost, generation):
            return
        # a client that was not accepted has left nothing there
        dead = lost if session.accepted else None
        while session.state is not State.GONE:
            for broker in self._brokers(self._failed):
                if await self._client.attach_to(broker, lost=dead):
                    return
                self._failed.add(broker.id)
            if loop.time() > end_s:
                reason = Reason.SERVER_BUSY if session.accepted else Reason.SERVER_UNAVAILABLE
                self._client.dismiss(reason, f"no broker within {self._hold_s:g} s")
                return
            await asyncio.sleep(RETRY_S)
            self._failed.clear()

    async def _was_thrown_out(self, lost: Broker, generation: int) -> bool:
        """Dismiss the client if a living broker ended its connection; return whether it did."""
        client, accepted = self._client, self._client.session.accepted
        if lost.id not in self._failed:
            if accepted and await lost.lives(generation):
                if client.is_too_silent(after_ms=BROKER_SECOND_MS):
                    client.dismiss(Reason.KEEP_ALIVE_TIMEOUT, "silent for too long")
                else:
                    client.dismiss(Reason.UNSPECIFIED, "its broker closed its connection")
                return True
            self._failed.add(lost.id)
        if not accepted:
            # A rejected client does not prove that the broker died: it may be full.
            self._rejections += 1
            if self._rejections >= REJECTIONS_MAX and await lost.lives(generation):
                client.dismiss(Reason.UNSPECIFIED, "its broker closes its connection")
                return True
        return False
