"""Sessions that we prepare on our broker for the clients of one that died.

Source: docs/protocol.md 15; docs/failover.md, "Prepared sessions".
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import structlog

from federator.config.sections import AgentFailoverSettings
from federator.errors import LinkError
from federator.protocol.filters import without_share
from federator.protocol.messages.session_records import FlowRow
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.types import BrokerId, Millis
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.session_packets import end_session, prepare_session
from federator.runtime.process.clocks import beat, monotonic_ms, wall_clock_us

AT_ONCE_MAX = 16
TEND_S = 5.0
SUBSCRIBE_POLL_S = 0.05
SUBSCRIBE_POLLS = 100
"""How often we check whether a connected client has repeated its subscriptions."""

COMPLAINT_GAP_MS = Millis(60_000)
UNNOTICED_MS = 5_000
"""A broker may have died so long before it is missed, including clock differences."""

_log = structlog.get_logger()


@dataclass(kw_only=True, eq=False, repr=False)
class PreparedSessions:
    """Makes sessions, and ends those that no client will fetch."""

    settings: AgentFailoverSettings
    endpoint: Callable[[], Endpoint]
    connected_here: Callable[[str], bool]  # whether a client is connected to our broker now
    filters_here: Callable[[str], AbstractSet[str]]  # a client's subscriptions on our broker
    connected_elsewhere: Callable[[str], bool]  # to another broker in reach
    in_federation: Callable[[str], Iterable[str]]  # a local filter's names in the federation
    # Waits until everything acknowledged by now is in custody.
    caught_up: Callable[[], Awaitable[None]]
    # Announces clients that wanted filters since a time (wall clock, us).
    expect: Callable[[Sequence[str], int], None]
    # Delivers again what was published since that time.
    fetch_again: Callable[[Sequence[str], int], None]

    def __post_init__(self) -> None:
        self.waiting: dict[str, Millis] = {}  # clients, and when theirs were prepared
        self.prepared = 0  # sessions made so far
        self.refused = 0  # sessions that our broker refused
        self._work: dict[BrokerId, asyncio.Task[None]] = {}
        self._complaints: RateLimiter[str] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=16)

    def step_in(self, broker: BrokerId, missed_at_ms: Millis, rows: Sequence[FlowRow]) -> None:
        """Prepare these sessions, as the substitute of ``broker``."""
        if not self.settings.prepare_sessions or not rows:
            return
        self.step_back(broker)
        since_us = wall_clock_us() - 1_000 * (monotonic_ms() - missed_at_ms + UNNOTICED_MS)
        work = self._prepare_all(broker, rows, since_us)
        self._work[broker] = asyncio.get_running_loop().create_task(
            work, name=f"sessions of broker {broker}"
        )

    def step_back(self, broker: BrokerId) -> None:
        """Stop preparing: we are no longer the substitute of ``broker``.

        Prepared sessions stay: their clients may come.
        """
        work = self._work.pop(broker, None)
        if work is not None:
            work.cancel()

    def part(self) -> Part:
        return Part(tasks={"prepared sessions": self.run})

    async def run(self) -> None:
        """Tend waiting sessions until cancelled."""
        try:
            while True:
                await beat(TEND_S)
                await self._tend()
        finally:
            for work in self._work.values():
                work.cancel()

    async def _prepare_all(self, broker: BrokerId, rows: Sequence[FlowRow], since_us: int) -> None:
        clients: dict[str, dict[str, int]] = {}
        for row in rows:
            clients.setdefault(row.client, {})[row.topic] = row.qos
        plain_filters = {without_share(f) for filters in clients.values() for f in filters}
        there = sorted({name for f in plain_filters for name in self.in_federation(f)})
        self.expect(there, since_us)
        names = sorted(clients)
        before = self.prepared
        for at in range(0, len(names), AT_ONCE_MAX):
            part = names[at : at + AT_ONCE_MAX]
            await asyncio.gather(*(self._prepare(name, clients[name]) for name in part))
        if self.settings.repeat:
            await self.caught_up()  # our clients' last publications before the sessions existed
            self.fetch_again(there, since_us)
        made = self.prepared - before
        _log.info("failover.sessions_prepared", broker=broker, sessions=made, clients=len(names))
        self._work.pop(broker, None)

    async def _prepare(self, client: str, filters: Mapping[str, int]) -> None:
        if await self._comes_by_itself(client, filters):
            return
        try:
            refused = await prepare_session(
                self.endpoint(), client, filters, keep_s=self.settings.session_keep_s
            )
        except (OSError, LinkError, TimeoutError) as error:
            self.refused += 1
            self._complain(str(error) or "no answer")
            return
        if refused:
            self._complain(f"{len(refused)} subscriptions refused")
        self.prepared += 1
        self.waiting[client] = monotonic_ms()

    async def _comes_by_itself(self, client: str, filters: Mapping[str, int]) -> bool:
        """Whether the client was faster: it is connected here, and subscribes for itself."""
        for _ in range(SUBSCRIBE_POLLS):
            if not self.connected_here(client):
                return False
            if filters.keys() <= self.filters_here(client):
                return True
            await asyncio.sleep(SUBSCRIBE_POLL_S)
        return True  # it wants other filters now

    async def _tend(self) -> None:
        """Forget fetched sessions, and end those of clients that are elsewhere."""
        oldest_ms = monotonic_ms() - 1_000 * self.settings.session_keep_s
        for client, since_ms in list(self.waiting.items()):
            if self.connected_here(client) or since_ms < oldest_ms:
                del self.waiting[client]
            elif self.connected_elsewhere(client):
                del self.waiting[client]
                try:
                    await end_session(self.endpoint(), client)
                except (OSError, LinkError, TimeoutError) as error:
                    self._complain(str(error) or "no answer")

    def _complain(self, reason: str) -> None:
        if self._complaints.allow(reason, monotonic_ms()):
            _log.warning("failover.session_refused", reason=reason[:200], so_far=self.refused)
