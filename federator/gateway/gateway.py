"""One gateway: its clients, its brokers, and what passes between them beside publications.

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

from federator.config import GatewaySettings
from federator.gateway.attachment import Attachment, Candidate
from federator.gateway.attendant import Attendant
from federator.gateway.brokers import PROBE_POLL_S, PROBE_POLLS, Broker
from federator.gateway.claims import Claims
from federator.gateway.counters import GatewayCounters
from federator.gateway.door import Door, Guest
from federator.gateway.guide_book import GuideBook
from federator.gateway.journal import Journal, Publication
from federator.gateway.lookout import Lookout
from federator.gateway.ports import End, Port
from federator.gateway.recent import Allowance, Recent
from federator.gateway.reports import Reports
from federator.gateway.session import Session, State
from federator.gateway.settlings import Settlings
from federator.gateway.split import SUFFIX
from federator.gateway.strays import republish
from federator.gateway.ways import Ways
from federator.gateway.wipes import Wipes
from federator.gateway.wire import (
    Connect,
    MalformedError,
    Property,
    Reason,
    Splitter,
    text_in,
)
from federator.protocol.guide import Claim, Guide, Recall, Recalled
from federator.protocol.types import BrokerId, Millis
from federator.runtime.clocks import wall_clock_ms

TEND_S: Final = 1.0
POLL_S: Final = 0.02
RECENT_SLACK_MS: Final = 2_000
"""Deliveries are remembered longer than publications: they may come before their PUBACK."""

MARK_LOST_S: Final = 0.5
STRAYS_S: Final = 1.0
"""How long what a departed client published waits for its client, after its broker died."""

MOVES_AT_ONCE: Final = 16
OUR_NAMES: Final = "federator-"

_log = structlog.get_logger()


class Gateway:
    """All of it.

    Args:
        settings: What the operator said.
        tasks: Runs everything that lasts.
    """

    def __init__(self, settings: GatewaySettings, tasks: asyncio.TaskGroup) -> None:
        failover, clients = settings.failover, settings.clients
        self.settings = settings
        self.packet_bytes_max = clients.packet_bytes_max
        self.buffer_bytes_max = clients.buffer_bytes_max
        self.attempt_s = failover.attempt_ms / 1000
        self.hold_s = failover.hold_ms / 1000
        self.unseen_topics = failover.heal == "all"
        self.epoch = wall_clock_ms()
        self.counters = GatewayCounters()
        self.attendants: dict[str, Attendant] = {}
        self.brokers = {
            BrokerId(each.id): Broker(each, settings, self) for each in settings.brokers
        }
        self.book = GuideBook()
        self.journal = Journal(
            recent_ms=failover.recent_ms,
            bytes_max=failover.recent_bytes_max,
            first_mark=self.epoch << 16,
        )
        self.doors: list[Door] = []
        self._time_s = asyncio.get_running_loop().time
        self._recent_bytes = Allowance(failover.recent_bytes_max)
        policy = settings.attachment
        assignments = [(pattern, BrokerId(id)) for pattern, id in policy.assignments]
        self._ways = Ways(settings.upstreams, self)
        self.attachment = Attachment(policy.policy, [*self._ways.assignments, *assignments])
        self._tasks = tasks
        self._reports = Reports(settings.name, self.epoch)
        self._wipes = Wipes()
        self._claims = Claims(settings.name, self.epoch << 16)
        self._stash: dict[str, list[Publication]] = {}  # acknowledged by a broker that died
        self._settlings = Settlings(
            settle_s=settings.failover.settle_ms / 1000,
            recent_s=settings.failover.recent_ms / 1000,
            counters=self.counters,
        )
        self._marking: dict[BrokerId, asyncio.Handle] = {}
        self._lookout = Lookout(
            self, name=settings.name, first=self.epoch << 16, start=tasks.create_task
        )
        self._moving: set[BrokerId] = set()
        self._moves_told = 0
        self._draining = False

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the brokers and let clients in.

        Raises:
            ConfigError: A listener's port is taken.
        """
        for broker in self.brokers.values():
            self._tasks.create_task(broker.link.run(), name=f"control connection to {broker.id}")
        now = datetime.now(UTC)
        for listener in self.settings.listeners:
            door = Door(self, listener, listener.context(now))
            await door.open()
            self.doors.append(door)
        self._tasks.create_task(self._tend(), name="tending")

    async def leave(self, *, patience_s: float) -> None:
        """Let nobody in, let publications be acknowledged, and tell clients that we stop."""
        self._draining = True
        for door in self.doors:
            door.close()
        end_s = asyncio.get_running_loop().time() + patience_s
        await _until(lambda: not any(a.session.up.in_flight for a in self.every), end_s)
        for attendant in self.every:
            attendant.dismiss(Reason.SERVER_SHUTTING_DOWN, "the gateway stops", with_will=False)
        agents = [broker.id for broker in self.brokers.values() if broker.has_agent]
        await _until(lambda: not any(map(self.journal.unsafe, agents)), end_s)
        for broker in self.brokers.values():
            with contextlib.suppress(TimeoutError):
                await broker.link.close()

    @property
    def connect_timeout_s(self) -> float:
        """How long a CONNECT may take."""
        return self.settings.clients.connect_timeout_ms / 1000

    @property
    def every(self) -> list[Attendant]:
        """All clients."""
        return [*self.attendants.values()]

    def now_ms(self) -> Millis:
        """Monotonic time."""
        return Millis(int(self._time_s() * 1000))

    async def _tend(self) -> None:
        """Once a second: who is silent, what is too old, which reports are due."""
        while True:
            await asyncio.sleep(TEND_S)
            now_ms = self.now_ms()
            self.journal.forget(now_ms)
            for attendant in self.every:
                attendant.check_keep_alive(now_ms)
                attendant.session.recent.forget(now_ms)
            for broker in self.brokers.values():
                if broker.up:
                    self._report(broker, now_ms)
                    self._tasks.create_task(broker.measure(), name=f"round trip to {broker.id}")
            for id in (*self.book.in_state("draining"), *self.book.in_state("gone")):
                self._drain(id)  # also whoever was not quiet when he was to move
            self._tell_moves()

    def _tell_moves(self) -> None:
        """One line for all clients that moved since the last."""
        moved, self._moves_told = self.counters.moved - self._moves_told, self.counters.moved
        if moved:
            waiting = sum(attendant.broker is None for attendant in self.every)
            _log.info("gateway.moved", clients=moved, waiting=waiting)

    def _report(self, broker: Broker, now_ms: Millis) -> None:
        here = [a for a in self.every if a.broker is broker and a.session.attached]
        for page in self._reports.due(broker.id, (a.session for a in here), now_ms):
            broker.report(page)

    # -- clients come and go ----------------------------------------------------------------------

    def admit(self, connect: Connect, port: Port, splitter: Splitter) -> Guest:
        """A client said CONNECT.

        Raises:
            MalformedError: It is not let in; its version is in it.
        """
        room = self.settings.clients.clients_max * self._ways.count
        if self._draining or len(self.attendants) >= room:
            raise _no(connect, Reason.SERVER_BUSY, "no room for another client")
        if text_in(connect.properties, Property.AUTHENTICATION_METHOD) is not None:
            text = "enhanced authentication, which cannot be repeated elsewhere"
            raise _no(connect, Reason.BAD_AUTHENTICATION_METHOD, text)
        if connect.client_id.startswith(OUR_NAMES) or SUFFIX in connect.client_id:
            raise _no(connect, Reason.CLIENT_ID_NOT_VALID, "a client id of ours")
        assigned = not connect.client_id
        if assigned:
            name = f"gateway-{self.settings.name}-{secrets.token_hex(8)}"
            connect = replace(connect, client_id=name)
        self.counters.admitted += 1
        if self._ways.count > 1:
            return self._ways.admit(connect, port, splitter, assigned=assigned)
        attendant = self.attend(connect, port, splitter, assigned=assigned)
        attendant.start()
        return attendant

    def attend(
        self, connect: Connect, end: End, splitter: Splitter, *, assigned: bool
    ) -> Attendant:
        """An attendant for a client, or for one way of it; who had its name before has to go."""
        self.evict(connect.client_id)
        session = Session(
            connect,
            assigned=assigned,
            packet_bytes_max=self.packet_bytes_max,
            filters_max=self.settings.clients.filters_max,
            settles=self.settings.failover.settle_ms > 0,
            recent=Recent(self.settings.failover.recent_ms + RECENT_SLACK_MS, self._recent_bytes),
        )
        attendant = Attendant(self, session, end, splitter)
        self.attendants[connect.client_id] = attendant
        return attendant

    def evict(self, client_id: str) -> None:
        """Whoever has this name hears that it came again."""
        former = self.attendants.get(client_id)
        if former is not None:
            self.counters.takeovers += 1
            former.dismiss(Reason.SESSION_TAKEN_OVER, "its client id came again")

    def on_gone(self, attendant: Attendant) -> None:
        """A client is gone for good."""
        attendant.session.recent.close()
        if self.attendants.get(attendant.client_id) is attendant:
            del self.attendants[attendant.client_id]
        self._settlings.forget(attendant)

    def on_healed(self, attendant: Attendant, given: int) -> None:
        """A client was given what it missed."""
        self.counters.healed += given

    def on_dismissed(self, attendant: Attendant) -> None:
        """We ended a client's connection."""
        self.counters.dismissed += 1

    def on_left(self, attendant: Attendant, broker: Broker) -> None:
        """A client has nothing to do with ``broker`` any more: nor has its session."""
        if attendant.session.persistent:
            self._wipes.add(attendant.session.connect, broker, self._tasks)

    def on_attached(self, attendant: Attendant, *, moved: bool) -> None:
        """A broker accepted a client, which has ``moved`` there from another."""
        assert attendant.broker is not None
        self.counters.moved += moved
        if attendant.session.persistent:
            self._wipes.cancel(attendant.client_id, attendant.broker.id)
        claim = self._claims.of(
            attendant.client_id,
            attendant.broker.id,
            came=not moved,
            lasts=attendant.session.persistent,
        )
        for broker in self.brokers.values():
            if broker.up:
                broker.claim(claim)

    def on_claim(self, claim: Claim) -> None:
        """Another gateway has a client: it is not ours any more."""
        attendant = self.attendants.get(claim.client)
        if self._claims.is_news(claim) and claim.came and attendant is not None:
            self.counters.takeovers += 1
            attendant.dismiss(Reason.SESSION_TAKEN_OVER, f"it came to gateway {claim.gateway}")

    def on_recall(self, recall: Recall, broker: Broker) -> None:
        """Another gateway asks what our clients published."""
        self._lookout.on_recall(recall, broker)

    def on_recalled(self, answer: Recalled) -> None:
        """Another gateway answers that."""
        self._lookout.on_recalled(answer)

    def on_malformed(self) -> None:
        """What should be a word of an agent or a gateway is none."""
        self.counters.malformed += 1

    # -- which broker -----------------------------------------------------------------------------

    def brokers_for(self, attendant: Attendant, avoid: Iterable[BrokerId]) -> Sequence[Broker]:
        """Brokers that could take the client, best first, without ``avoid``.

        Those that seem to live come first; when there are none, the others are tried: our own
        connection may be the one that is broken.
        """
        avoided = set(avoid)
        client = attendant.client_id
        home = self._claims.home(client)
        if home is None and attendant.broker is not None:
            home = attendant.broker.id
        if home is None and self.attachment.by_name:
            home = self.attachment.home(client, self.brokers)
        preferred = (home, *self.book.substitutes(home)) if home is not None else ()
        alive = [b for b in self.brokers.values() if self._serves(b) and b.id not in avoided]
        others = [b for b in self.brokers.values() if b not in alive and b.id not in avoided]
        ranked = []
        for group in (alive, others):
            candidates = [self._candidate(broker) for broker in group]
            ranked += self.attachment.rank(client, candidates, preferred=preferred)
        return [self.brokers[id] for id in ranked]

    def _serves(self, broker: Broker) -> bool:
        return broker.up and self.book.state(broker.id) == "up"

    def _candidate(self, broker: Broker) -> Candidate:
        clients = 0
        if self.attachment.by_load:  # counting takes long when thousands move at once
            ours = sum(1 for each in self.attendants.values() if each.broker is broker)
            clients = max(ours, self.book.clients(broker.id))
        return Candidate(broker.id, clients, broker.round_trip_s)

    # -- what brokers tell ------------------------------------------------------------------------

    def on_broker_up(self, broker: BrokerId) -> None:
        """Our connection stands."""
        self._wipes.on_up(self.brokers[broker], self._tasks)

    def on_broker_down(self, broker: BrokerId) -> None:
        """Our connection ended: if the broker is dead, so are its clients' connections."""
        self.book.forget(broker)
        self._tasks.create_task(self._examine(broker), name=f"examine {broker}")

    async def _examine(self, broker: BrokerId) -> None:
        """Move the clients of a broker that does not take our connection back soon."""
        for _ in range(PROBE_POLLS):
            if self.brokers[broker].up:
                return
            await asyncio.sleep(PROBE_POLL_S)
        self._collect(broker)
        for attendant in self.every:
            if attendant.broker is not None and attendant.broker.id == broker:
                attendant.broker_is_dead()

    def on_guide(self, guide: Guide) -> None:
        """An agent's guide is new."""
        if guide.federation != self.settings.federation:
            return
        before = set(self.book.in_state("gone"))
        self.book.learn(guide)
        for id in set(self.book.in_state("gone")) - before:
            self._drain(id)  # nobody serves what its clients subscribe to

    def _drain(self, id: BrokerId) -> None:
        """Move everybody away from a broker, a few at a time."""
        broker = self.brokers.get(id)
        others = any(self._serves(b) for b in self.brokers.values() if b is not broker)
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
                await asyncio.gather(*(each.move() for each in here[at : at + MOVES_AT_ONCE]))
        finally:
            self._moving.discard(broker.id)

    # -- subscriptions known everywhere -----------------------------------------------------------

    def ask_settled(
        self, attendant: Attendant, token: int, filters: tuple[str, ...], *, client_waits: bool
    ) -> None:
        """Have ``attendant`` told when ``filters`` are known; see ``settlings``."""
        self._settlings.ask(attendant, token, filters, client_waits=client_waits)

    def on_settled(self, number: int, known: bool) -> None:
        """An agent answered."""
        self._settlings.on_answer(number, known=known)

    # -- what is safe -----------------------------------------------------------------------------

    def acknowledged(self, attendant: Attendant, broker: BrokerId) -> None:
        """A broker acknowledged publications of a client."""
        up = attendant.session.up
        for again, packets in enumerate((up.acknowledged, up.acknowledged_again)):
            if packets:
                self.journal.acknowledged(
                    packets,
                    client=attendant.client_id,
                    version=attendant.session.version,
                    broker=broker,
                    now_ms=self.now_ms(),
                    again=bool(again),
                )
                packets.clear()
        if broker not in self._marking:
            self._mark_in(broker, self.settings.failover.custody_mark_ms / 1000)

    def _mark_in(self, broker: BrokerId, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._marking[broker] = loop.call_later(delay_s, self._mark, broker)

    def _mark(self, id: BrokerId) -> None:
        self._marking.pop(id, None)
        if not self.brokers[id].up:
            return
        number = self.journal.mark(id)
        if number is not None:
            self.brokers[id].send_mark(number)
            asyncio.get_running_loop().call_later(MARK_LOST_S, self._mark_again, id, number)

    def _mark_again(self, id: BrokerId, number: int) -> None:
        """Send another mark for one that got lost."""
        if self.journal.last_mark(id) == number and self.journal.unsafe(id) and self.brokers[id].up:
            anew = self.journal.mark(id, anew=True)
            if anew is not None:
                self.brokers[id].send_mark(anew)
                asyncio.get_running_loop().call_later(MARK_LOST_S, self._mark_again, id, anew)

    def on_taken(self, broker: BrokerId, number: int) -> None:
        """An agent has custody of what came before a mark."""
        self.journal.on_taken(broker, number)

    def recently(self, from_ms: Millis, to_ms: Millis) -> Iterable[Publication]:
        """What clients published lately, by when it was acknowledged."""
        return self.journal.between(from_ms, to_ms)

    def unsafe_of(self, attendant: Attendant, lost: BrokerId | None) -> list[bytes]:
        """What a lost broker acknowledged and may have taken along."""
        if lost is not None:
            self._collect(lost)
        version = attendant.session.version
        stash = self._stash.pop(attendant.client_id, [])
        others = [each for each in stash if each.version != version]
        if others:
            self._stash[attendant.client_id] = others
        kept = [each.packet for each in stash if each.version == version]
        self.counters.republished += len(kept)
        return kept

    def _collect(self, lost: BrokerId) -> None:
        """``lost`` died: give back to its clients what is not safe, and see to the rest."""
        self._lookout.on_death(lost)
        taken = self.journal.take_unsafe(lost)
        for client, publications in taken.items():
            self._stash.setdefault(client, []).extend(publications)
        if taken:
            asyncio.get_running_loop().call_later(STRAYS_S, self._publish_strays)

    def _publish_strays(self) -> None:
        """Publish for clients that are gone, or live elsewhere by now."""
        for client in [*self._stash]:
            attendant = self.attendants.get(client)
            if attendant is not None and attendant.session.state in (State.AWAY, State.JOINING):
                asyncio.get_running_loop().call_later(STRAYS_S, self._publish_strays)
                continue
            publications = self._stash.pop(client)
            self.counters.republished += len(publications)
            republish(publications, [b for b in self.brokers.values() if self._serves(b)])


def _no(connect: Connect, reason: Reason, text: str) -> MalformedError:
    return MalformedError(reason, text, version=connect.version)


async def _until(done: Callable[[], bool], end_s: float) -> None:
    """Wait for ``done``, at most until ``end_s`` of the loop's clock."""
    loop = asyncio.get_running_loop()
    while loop.time() < end_s:
        if done():
            return
        await asyncio.sleep(POLL_S)
