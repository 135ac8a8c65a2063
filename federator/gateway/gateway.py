"""One gateway: its clients, its brokers, and the messages between them besides publications.

Source: docs/gateway.md.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import structlog

from federator.config.gateway import GatewaySettings
from federator.gateway import wire
from federator.gateway.brokers import PROBE_POLL_S, PROBE_POLLS, Broker, SessionCleanup
from federator.gateway.clients.catch_up import CatchUp
from federator.gateway.clients.listener import ConnectingClient, Listener
from federator.gateway.clients.multi_broker_client import Upstreams
from federator.gateway.clients.ports import End, Port
from federator.gateway.clients.proxied_client import ProxiedClient
from federator.gateway.clients.settlings import Settlings
from federator.gateway.clients.unsafe_publications import UnsafePublications
from federator.gateway.metrics import GatewayCounters
from federator.gateway.session.attachment import Attachment, Candidate, Claims
from federator.gateway.session.guide_book import GuideBook
from federator.gateway.session.journal import Journal
from federator.gateway.session.recent_deliveries import Allowance, RecentDeliveries
from federator.gateway.session.reports import Reports
from federator.gateway.session.session import ClientSession
from federator.gateway.split.session import SUFFIX
from federator.gateway.wire.kinds import MalformedError, Reason
from federator.protocol.messages.gateways import Claim
from federator.protocol.messages.guide import Guide
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.antechamber import Antechamber, Place
from federator.runtime.process.clocks import monotonic_ms, wall_clock_ms
from federator.runtime.trust.words import FollowedWords

TEND_S: Final = 1.0
QUIET_MS: Final = 60_000
"""Least time between two log lines about overload."""

POLL_S: Final = 0.02
RECENT_SLACK_MS: Final = 2_000
"""Deliveries are remembered longer than publications: they may arrive before the PUBACK."""

MOVES_AT_ONCE: Final = 16
ROLL_FILTERS: Final = 100
ROLL_PAUSE_S: Final = 0.05
"""So many subscriptions are repeated at a time: each is a line in the broker's log, and the broker
drops lines beyond a thousand that the agent has not read yet.
"""

ROLL_GAP_MS: Final = 30_000
"""Least time between roll calls: a 3.1.1 broker repeats retained values, and calls may be forged.
"""

OUR_NAMES: Final = "federator-"
READ_BYTES_MAX: Final = 262_144
"""How much one socket read may bring beyond the packet that it ends."""

_log = structlog.get_logger()


class Gateway:
    """One gateway: its listeners, clients, broker connections, and memory.

    Long-running work is in ``tasks``. A client that sent CONNECT stays in ``connecting`` until a
    broker accepts it: before that, its client id is only a claim.
    """

    def __init__(self, settings: GatewaySettings, tasks: asyncio.TaskGroup) -> None:
        failover, clients = settings.failover, settings.clients
        self.settings = settings
        self.epoch = wall_clock_ms()
        self.counters = GatewayCounters()
        self.clients: dict[str, ProxiedClient] = {}
        self.connecting: dict[ProxiedClient, Place] = {}  # no broker has accepted them
        self.antechamber = Antechamber(
            self.counters,
            unfinished_max=clients.unfinished_max,
            per_address_max=clients.connecting_per_address_max,
            bytes_max=max(clients.connecting_bytes_max, clients.packet_bytes_max + READ_BYTES_MAX),
            shared=clients.shared_addresses,
        )
        self._verifier = FollowedWords(
            settings.federation,
            settings.keys,
            own_file=settings.keys.gateway_file,
            read_own=lambda: settings.keys.own_keys(settings.name),
            required=("agent", "gateway") if settings.keys.roles == "required" else ("agent",),
        )
        self.brokers = {
            BrokerId(broker.id): Broker(broker, settings, self, self._verifier)
            for broker in settings.brokers
        }
        self.guides = GuideBook()
        self.journal = Journal(
            recent_ms=failover.recent_ms,
            bytes_max=failover.recent_bytes_max,
            first_mark=self.epoch << 16,
        )
        self.listeners: list[Listener] = []
        self._recent_bytes = Allowance(failover.recent_bytes_max)
        policy = settings.attachment
        assignments = [(pattern, BrokerId(id)) for pattern, id in policy.assignments]
        self._upstreams = Upstreams(settings.upstreams, self)
        self.attachment = Attachment(policy.policy, [*self._upstreams.assignments, *assignments])
        self._tasks = tasks
        self._reports = Reports(settings.name, self.epoch)
        self._cleanup = SessionCleanup(tasks)
        self._claims = Claims(settings.name, self.epoch << 16)
        self._settlings = Settlings(first=self.epoch << 16)
        self._unsafe = UnsafePublications(self)
        catch_up = self._catch_up = CatchUp(self, first=self.epoch << 16, start=tasks.create_task)
        # Bound methods: brokers and clients call the owner of each task directly.
        self.fetch_missed, self.on_found = catch_up.ask, catch_up.on_found
        self.on_recall = catch_up.on_recall
        self.ask_settled, self.on_settled = self._settlings.ask, self._settlings.on_answer
        self.ask_until_known = self._settlings.ask_until_known
        self.acknowledged, self.on_taken = self._unsafe.acknowledged, self.journal.on_taken
        self._moving: set[BrokerId] = set()
        self._called_ms: dict[BrokerId, Millis] = {}  # when their clients last subscribed again
        self._moves_logged = 0
        self._crowds_logged, self._log_crowds_ms = 0, Millis(0)
        self._draining = False

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the brokers and open the listeners.

        Raises:
            ConfigError: A listener's port is taken.
        """
        for broker in self.brokers.values():
            self._tasks.create_task(broker.link.run(), name=f"control connection to {broker.id}")
            self._tasks.create_task(broker.strangers.run(), name=f"strangers at {broker.id}")
        now = datetime.now(UTC)
        for listener_settings in self.settings.listeners:
            listener = Listener(self, listener_settings, listener_settings.context(now))
            await listener.open()
            self.listeners.append(listener)
        self._tasks.create_task(self._tend(), name="tending")
        self._tasks.create_task(self._verifier.run(), name="keys")

    async def leave(self, *, patience_s: float) -> None:
        """Admit no more clients, wait for acknowledgements, and disconnect the clients."""
        self._draining = True
        for listener in self.listeners:
            listener.close()
        self.antechamber.clear()
        end_s = asyncio.get_running_loop().time() + patience_s
        await _until(lambda: not any(a.session.up.in_flight for a in self.every), end_s)
        for client in self.every:
            client.dismiss(Reason.SERVER_SHUTTING_DOWN, "the gateway stops", with_will=False)
        agents = [broker.id for broker in self.brokers.values() if broker.has_agent]
        await _until(lambda: not any(map(self.journal.unsafe, agents)), end_s)
        for broker in self.brokers.values():
            with contextlib.suppress(TimeoutError):
                await broker.link.close()

    @property
    def every(self) -> list[ProxiedClient]:
        """A copy of all clients, with those connecting; each leg of a split client is one."""
        return [*self.clients.values(), *self.connecting]

    async def _tend(self) -> None:
        """Dismiss silent clients, forget old entries and send due reports, once a second."""
        while True:
            await asyncio.sleep(TEND_S)
            now_ms = monotonic_ms()
            self.journal.forget(now_ms)
            for client in self.every:
                client.check_keep_alive()
                client.session.recent.forget(now_ms)
            for broker in self.brokers.values():
                if broker.up:
                    self._report(broker, now_ms)
                    measured = broker.lives(broker.generation)
                    self._tasks.create_task(measured, name=f"round trip to {broker.id}")
            for id in (*self.guides.in_state("draining"), *self.guides.in_state("gone")):
                self._drain(id)  # again, for clients that were busy when they were to move
            self._log_moves()
            self._log_crowds(now_ms)

    def _log_crowds(self, now_ms: Millis) -> None:
        """Log overload, at most once per ``QUIET_MS``."""
        crowded, refused = self.counters.gave_way, self.counters.over_share
        if crowded + refused > self._crowds_logged and now_ms >= self._log_crowds_ms:
            self._log_crowds_ms = Millis(now_ms + QUIET_MS)
            self._crowds_logged = crowded + refused
            _log.warning(
                "gateway.crowded",
                gave_way=crowded,
                over_share=refused,
                unfinished=len(self.antechamber),
                bytes=self.antechamber.bytes,
            )

    def _log_moves(self) -> None:
        """Log one line for all clients that moved since the last one."""
        moved, self._moves_logged = self.counters.moved - self._moves_logged, self.counters.moved
        if moved:
            waiting = sum(client.broker is None for client in self.every)
            _log.info("gateway.moved", clients=moved, waiting=waiting)

    def _report(self, broker: Broker, now_ms: Millis) -> None:
        here = [a for a in self.every if a.broker is broker and a.session.attached]
        for page in self._reports.due(broker.id, (a.session for a in here), now_ms):
            broker.report(page)

    # -- clients come and go ----------------------------------------------------------------------

    def admit(
        self, connect: wire.Connect, port: Port, splitter: wire.Splitter, place: Place
    ) -> ConnectingClient:
        """Admit the client that sent ``connect``; a broker then decides on it.

        Raises:
            MalformedError: The client is refused; the error carries its version.
        """
        room = self.settings.clients.clients_max * self._upstreams.legs
        if self._draining or len(self.clients) + len(self.connecting) >= room:
            raise _refusal(connect, Reason.SERVER_BUSY, "no room for another client")
        if any(name == wire.Property.AUTHENTICATION_METHOD for name, _ in connect.properties):
            text = "enhanced authentication, which cannot be repeated elsewhere"
            raise _refusal(connect, Reason.BAD_AUTHENTICATION_METHOD, text)
        if connect.client_id.startswith(OUR_NAMES) or SUFFIX in connect.client_id:
            raise _refusal(connect, Reason.CLIENT_ID_NOT_VALID, "a client id of ours")
        if not connect.client_id:
            name = f"gateway-{self.settings.name}-{secrets.token_hex(8)}"
            connect = replace(connect, client_id=name, assigned=True)
        if self._upstreams.legs > 1:
            return self._upstreams.admit(connect, port, splitter, place)
        client = self.proxy(connect, port, splitter, place)
        client.start()
        return client

    def proxy(
        self, connect: wire.Connect, end: End, splitter: wire.Splitter, place: Place
    ) -> ProxiedClient:
        """Make the proxied client for a client, or for one of its legs."""
        clients, failover = self.settings.clients, self.settings.failover
        session = ClientSession(
            connect,
            packet_bytes_max=clients.packet_bytes_max,
            filters_max=clients.filters_max,
            settles=failover.settle_ms > 0,
            recent=RecentDeliveries(failover.recent_ms + RECENT_SLACK_MS, self._recent_bytes),
        )
        client = ProxiedClient(self, session, end, splitter)
        self.connecting[client] = place
        return client

    def on_early(self, client: ProxiedClient, count: int) -> None:
        """Count bytes that ``client`` sent before a broker accepted it; may dismiss the client."""
        if client in self.connecting:
            self.connecting[client].receive(count)

    def on_accepted(self, client: ProxiedClient) -> None:
        """Register the accepted ``client``; a former client with its id is dismissed."""
        self.counters.admitted += 1
        self.connecting.pop(client).leave()
        former = self.clients.get(client.client_id)
        if former is not None:
            self.counters.takeovers += 1
            former.dismiss(Reason.SESSION_TAKEN_OVER, "its client id came again")
        self.clients[client.client_id] = client

    def on_gone(self, client: ProxiedClient) -> None:
        """Forget a client that is gone for good."""
        client.session.recent.close()
        place = self.connecting.pop(client, None)
        if place is not None:
            place.leave()
        if self.clients.get(client.client_id) is client:
            del self.clients[client.client_id]
        self._settlings.forget(client)

    def on_left(self, client: ProxiedClient, broker: Broker) -> None:
        """End the session of a client that no longer uses ``broker``."""
        if client.session.persistent:
            self._cleanup.add(client.session.connect, broker)

    def on_attached(self, client: ProxiedClient, *, moved: bool) -> None:
        """Claim a client that a broker accepted; ``moved``: it came from another broker."""
        assert client.broker is not None
        self.counters.moved += moved
        # the session there is in use again
        self._cleanup.cancel(client.client_id, client.broker.id)
        lasts = client.session.persistent
        claim = self._claims.of(client.client_id, client.broker.id, came=not moved, lasts=lasts)
        for broker in self.brokers.values():
            if broker.up:
                broker.claim(claim)

    def on_claim(self, claim: Claim) -> None:
        """Dismiss a client that is now attached to another gateway."""
        client = self.clients.get(claim.client)
        if self._claims.is_news(claim) and claim.came and client is not None:
            self.counters.takeovers += 1
            client.dismiss(Reason.SESSION_TAKEN_OVER, f"it came to gateway {claim.gateway}")

    # -- which broker -----------------------------------------------------------------------------

    def brokers_for(self, client: ProxiedClient, avoid: Iterable[BrokerId]) -> Sequence[Broker]:
        """Brokers that could take the client, best first, without those in ``avoid``.

        Brokers that seem to be alive come first, then the others: perhaps only our own connection
        to them is broken.
        """
        avoided, client_id = set(avoid), client.client_id
        home = self._claims.home(client_id)
        if home is None and client.broker is not None:
            home = client.broker.id
        if home is None and self.attachment.policy == "assigned":
            home = self.attachment.rank(client_id, [Candidate(id) for id in self.brokers])[0]
        preferred = (home, *self.guides.substitutes(home)) if home is not None else ()
        alive = [b for b in self.serving if b.id not in avoided]
        others = [b for b in self.brokers.values() if b not in alive and b.id not in avoided]
        ranked = []
        for group in (alive, others):
            candidates = [
                Candidate(b.id, max(b.clients, self.guides.clients(b.id)), b.round_trip_s)
                for b in group
            ]
            ranked += self.attachment.rank(client_id, candidates, preferred=preferred)
        return [self.brokers[id] for id in ranked]

    @property
    def serving(self) -> list[Broker]:
        """The brokers that take clients now."""
        return [b for b in self.brokers.values() if b.up and self.guides.state(b.id) == "up"]

    # -- events of brokers ------------------------------------------------------------------------

    def on_broker_up(self, broker: BrokerId) -> None:
        """End the sessions left behind at ``broker``: our connection is up."""
        self._cleanup.on_up(self.brokers[broker])

    def on_roll_call(self, broker: BrokerId) -> None:
        """Repeat the subscriptions of all clients there, a few at a time."""
        now_ms, last_ms = monotonic_ms(), self._called_ms.get(broker)
        if last_ms is None or now_ms - last_ms >= ROLL_GAP_MS:
            self._called_ms[broker] = now_ms
            self._tasks.create_task(self._answer_roll_call(broker), name=f"roll call of {broker}")

    async def _answer_roll_call(self, id: BrokerId) -> None:
        broker, made = self.brokers[id], 0
        for client in [c for c in self.every if c.broker is broker]:
            if client.broker is broker:  # not moved meanwhile
                made += client.subscribe_again()
            if made >= ROLL_FILTERS:
                await asyncio.sleep(ROLL_PAUSE_S * made / ROLL_FILTERS)
                made = 0

    def on_broker_down(self, broker: BrokerId) -> None:
        """Examine a broker after its connection ended: if it is dead, its clients must move."""
        self.guides.forget(broker)
        self._tasks.create_task(self._examine(broker), name=f"examine {broker}")

    async def _examine(self, broker: BrokerId) -> None:
        """Move the clients of a broker unless our connection is back soon."""
        for _ in range(PROBE_POLLS):
            if self.brokers[broker].up:
                return
            await asyncio.sleep(PROBE_POLL_S)
        self._on_death(broker)
        for client in self.every:
            if client.broker is not None and client.broker.id == broker:
                client.broker_is_dead()

    def on_guide(self, guide: Guide) -> None:
        """Learn an agent's new guide, and move clients away from brokers that are now gone."""
        if guide.federation != self.settings.federation:
            return
        before = set(self.guides.in_state("gone"))
        self.guides.learn(guide)
        for id in set(self.guides.in_state("gone")) - before:
            self._drain(id)  # no agent serves the subscriptions there

    def _drain(self, id: BrokerId) -> None:
        """Move all clients away from a broker, a few at a time."""
        broker = self.brokers.get(id)
        others = any(other is not broker for other in self.serving)
        if broker is None or not broker.up or id in self._moving or not others:
            return
        self._moving.add(id)
        self._tasks.create_task(self._move_all(broker), name=f"move from {id}")

    async def _move_all(self, broker: Broker) -> None:
        try:
            here = [a for a in self.every if a.broker is broker]
            if here:
                _log.info("gateway.moving", broker=broker.id, clients=len(here))
            for at in range(0, len(here), MOVES_AT_ONCE):
                await asyncio.gather(*(client.move() for client in here[at : at + MOVES_AT_ONCE]))
        finally:
            self._moving.discard(broker.id)

    # -- custody ----------------------------------------------------------------------------------

    def unsafe_of(self, client: ProxiedClient, lost: BrokerId | None) -> list[bytes]:
        """Take the publications that a dead broker acknowledged to ``client`` and may have lost."""
        if lost is not None:
            self._on_death(lost)
        return self._unsafe.take(client)

    def _on_death(self, broker: BrokerId) -> None:
        self._catch_up.on_death()
        self._unsafe.on_death(broker)


def _refusal(connect: wire.Connect, reason: Reason, text: str) -> MalformedError:
    """The error that refuses ``connect``, in the client's MQTT version."""
    return MalformedError(text, reason, version=connect.version)


async def _until(done: Callable[[], bool], end_s: float) -> None:
    """Wait until ``done()`` is true, or until ``end_s`` of the loop's clock."""
    loop = asyncio.get_running_loop()
    while loop.time() < end_s:
        if done():
            return
        await asyncio.sleep(POLL_S)
