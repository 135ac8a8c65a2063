"""The gateway's own connections to its brokers, its questions, and the sessions it ends there.

The gateway has one connection of its own to each broker: for the guide, for questions, and to
notice at once when the broker dies.

When a client's connection ends, its broker may have died or have disconnected this client alone; a
3.1.1 broker sends no reason. So the gateway probes the broker on its own connection, which ends
with the broker and for no other reason.

A persistent session whose client is attached elsewhere would queue messages for ever, and deliver
them all again if the client came back. So the gateway ends it: at once where the client was moved
away, or when a dead broker is back.

Source: docs/gateway.md, "Sessions".
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol, TypeVar

import msgspec
import structlog
from mqtt5 import PublishPacket, TopicFilter

from federator.config.gateway import GatewayBrokerSettings, GatewaySettings
from federator.errors import DecodeError, LinkError
from federator.gateway.metrics import GatewayCounters
from federator.gateway.wire import V5, Connect, Property, with_value, write_connect
from federator.protocol.discovery import RollCall
from federator.protocol.messages import gateways, topics
from federator.protocol.messages.guide import Guide
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.trust.words import Wanted, at
from federator.protocol.types import BrokerId
from federator.runtime.doctor.strangers import Speakers, StrangerWatch
from federator.runtime.mqtt.endpoint import endpoint_of
from federator.runtime.mqtt.inbox import Inbox
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink
from federator.runtime.mqtt.secret_names import secret_name
from federator.runtime.mqtt.session_packets import wipe_session
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.trust.words import SignedWords

PROBE_S: Final = 0.5
"""How long a broker may take to answer a probe; then it counts as dead."""

PROBE_POLL_S: Final = 0.01
PROBE_POLLS: Final = round(PROBE_S / PROBE_POLL_S)
UNANSWERED_MAX: Final = 3
"""After so many unanswered questions subscribers no longer wait, until an answer arrives."""

WAITING_MAX: Final = 10_000
"""Sessions to be ended that are remembered per broker while it is down."""

WIPES_AT_ONCE: Final = 16
WIPE_S: Final = 5.0

_Word = TypeVar("_Word", gateways.Claim, gateways.Recall, gateways.Recalled)

_log = structlog.get_logger()


class BrokerObserver(Protocol):
    """The observer of what happens at brokers."""

    counters: GatewayCounters

    def on_guide(self, guide: Guide) -> None:
        """Take a new guide from a broker's agent."""

    def on_roll_call(self, broker: BrokerId) -> None:
        """Subscribe again for all clients on ``broker``: its agent asks for it."""

    def on_settled(self, broker: BrokerId, token: int, known: bool) -> None:
        """Take the answer to ``Broker.ask_settled``: whether the filters are known everywhere."""

    def on_taken(self, broker: BrokerId, mark: int) -> None:
        """Take the answer to ``Broker.send_mark``: the agent has custody up to ``mark``."""

    def on_found(
        self, broker: BrokerId | None, answer: gateways.Fetched | gateways.Recalled
    ) -> None:
        """Take a part of the answer to ``Broker.ask_agent``; of no broker, to ``ask_others``."""

    def on_claim(self, claim: gateways.Claim) -> None:
        """Take another gateway's claim to a client; it arrives by several brokers."""

    def on_recall(self, recall: gateways.Recall, broker: "Broker") -> None:
        """Take a gateway's question what our clients published; several brokers deliver it."""

    def on_broker_up(self, broker: BrokerId) -> None:
        """Note that our connection to ``broker`` is up."""

    def on_broker_down(self, broker: BrokerId) -> None:
        """Note that our connection to ``broker`` ended."""


class Broker(LinkObserver):
    """One broker that clients may be attached to; events there are reported to the observer.

    Attributes:
        round_trip_s: How long the broker last took to answer; infinite before the first answer.
        clients: How many of our clients are attached to it.
        has_agent: Whether its agent ever answered us.
        generation: Grows when our connection opens or ends.
        strangers: Finds out whether other clients than gateways can ask what ours published.
    """

    def __init__(
        self,
        settings: GatewayBrokerSettings,
        gateway: GatewaySettings,
        observer: BrokerObserver,
        words: SignedWords,
    ) -> None:
        self.id = BrokerId(settings.id)
        self.clients = 0
        self.generation = 0
        self.has_agent = False
        self.round_trip_s = float("inf")
        self.endpoint = endpoint_of(settings)
        self._observer = observer
        self._verifier = words
        # checking signatures takes long: a flood must not hold the loop
        self._inbox = Inbox(self._take)
        self._gateway = gateway.name
        self._federation = gateway.federation
        self._unanswered = 0
        self._roll_call = RollCall()
        self._probe: asyncio.Task[bool] | None = None
        self._recalls_always = gateway.failover.recall == "always"
        self.strangers = StrangerWatch(
            settings,
            federation=gateway.federation,
            name=f"gateway-{gateway.name}",
            is_up=lambda: self.up,
        )
        self.link = MqttLink(
            self.endpoint,
            self,
            client_id=secret_name(f"gateway-{gateway.name}"),
            # The broker's silence is noticed after half of it, counted from a ping.
            keep_alive_s=max(1, gateway.failover.ping_ms * 3 // 1000),
            reconnect_max_ms=1_000,
        )
        answers = (
            topics.settled_topic,
            topics.taken_topic,
            topics.fetched_topic,
            topics.recalled_topic,
        )
        self.link.subscribe(
            [
                TopicFilter(topics.guide_topic(self._federation)),
                TopicFilter(topics.claims_topic(self._federation), no_local=True),
                TopicFilter(topics.recall_topic(self._federation), no_local=True),
                *(TopicFilter(topic(self._federation, self._gateway)) for topic in answers),
            ]
        )

    @property
    def up(self) -> bool:
        """Whether our connection to the broker is up."""
        return self.link.connected

    @property
    def may_recall(self) -> bool:
        """Whether gateways may exchange publications there: no other client can read them."""
        return self._recalls_always or self.strangers.speakers is Speakers.NOBODY

    async def connect(self, protocol: asyncio.BaseProtocol, *, within_s: float) -> bool:
        """Open a connection for a client's ``protocol``; return whether that succeeded."""
        try:
            async with asyncio.timeout(within_s):
                await self.endpoint.connect(lambda: protocol)
        except (OSError, TimeoutError, UnicodeError, LinkError):
            return False
        return True

    # -- events of the link ---------------------------------------------------------------------

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """Count the new connection: the broker accepted us."""
        self.generation += 1
        self._unanswered = 0
        self._roll_call.on_up()
        self._observer.on_broker_up(self.id)

    def on_subscribed(self, link: MqttLink) -> None:
        """Do nothing: the guide arrives by itself."""

    def on_down(self, link: MqttLink, reason: str) -> None:
        """Count the end of our connection."""
        self.generation += 1
        self._observer.on_broker_down(self.id)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Read messages of agents and other gateways."""
        for packet, _, _ in publishes:
            self._observer.counters.malformed += not self._inbox.put(packet)
        self._inbox.work()

    def _take(self, packet: PublishPacket) -> None:
        try:
            if self.up:  # otherwise it arrived before the connection ended
                self._read(packet.topic, packet.payload, retained=packet.retain)
        except DecodeError as error:
            self._observer.counters.malformed += 1
            _log.warning("gateway.malformed", broker=self.id, reason=str(error)[:200])

    def _read(self, topic: str, payload: bytes, *, retained: bool) -> None:
        if topic == topics.guide_topic(self._federation):
            if payload:
                guide = decode(Guide, payload)
                if self._verifier.is_agents(guide.broker, topic, payload, again=True):
                    self._observer.on_guide(guide)
                    if self._roll_call.asks(guide.roll, retained=retained, now_ms=monotonic_ms()):
                        self.link.subscribe_again()
                        self._observer.on_roll_call(self.id)
        elif topic == topics.claims_topic(self._federation):
            if claim := self._of_gateway(gateways.Claim, topic, payload):
                self._observer.on_claim(claim)
        elif topic == topics.recall_topic(self._federation):
            if self.may_recall and (recall := self._of_gateway(gateways.Recall, topic, payload)):
                self._observer.on_recall(recall, self)
        elif topic == topics.recalled_topic(self._federation, self._gateway):
            if self.may_recall and (
                recalled := self._of_gateway(gateways.Recalled, topic, payload)
            ):
                self._observer.on_found(None, recalled)
        elif self._is_agents(topic, payload):
            if topic == topics.taken_topic(self._federation, self._gateway):
                self.has_agent = True
                self._observer.on_taken(self.id, decode(gateways.Taken, payload).number)
            elif topic == topics.fetched_topic(self._federation, self._gateway):
                self._observer.on_found(self.id, decode(gateways.Fetched, payload))
            else:
                self._unanswered = 0
                settled = decode(gateways.Settled, payload)
                for token in (settled.token, *settled.also):
                    self._observer.on_settled(self.id, token, settled.known)

    def _is_agents(self, topic: str, payload: bytes) -> bool:
        """Whether the broker's agent sent the answer, signed if we sign our questions."""
        return not self._verifier.signs or self._verifier.is_agents(self.id, topic, payload)

    def _of_gateway(self, kind: type[_Word], topic: str, payload: bytes) -> _Word | None:
        """Decode another gateway's message; ``None`` unless recent and validly signed."""
        message = decode(kind, payload)
        expected = Wanted("gateway", message.gateway, to=at(self.id), place=self.id, ages=True)
        return message if self._verifier.believes(topic, payload, expected) else None

    # -- questions and messages -----------------------------------------------------------------

    def _publish_signed(
        self,
        topic: str,
        message: msgspec.Struct,
        *,
        qos: int = 0,
        urgent: bool = False,
        on_answer: Callable[[int], None] | None = None,
    ) -> bool:
        """Publish ``message``, signed for this broker if we have a key."""
        payload = self._verifier.sign(topic, encode(message), to=at(self.id))
        return self.link.publish(topic, payload, qos=qos, urgent=urgent, on_answer=on_answer)

    def ask_settled(self, token: int, filters: tuple[str, ...]) -> bool:
        """Ask the agent when ``filters`` are known; return ``False`` if no answer can be expected.

        Without an agent at the broker, every subscriber would wait in vain. Mosquitto's PUBACK to
        the question says at once that it has no receiver; with other brokers we count unanswered
        questions.
        """
        if not self.up:
            return False

        def on_puback(reason: int) -> None:
            if reason:  # no receiver, or the broker's access rules deny it
                self._unanswered = 0
                self._observer.on_settled(self.id, token, False)

        settle = gateways.Settle(self._gateway, token, filters)
        topic = topics.settle_topic(self._federation)
        asked = self._publish_signed(topic, settle, qos=1, on_answer=on_puback)
        self._unanswered += 1
        return asked and self._unanswered <= UNANSWERED_MAX

    def send_mark(self, number: int) -> None:
        """Ask the agent how far it took custody."""
        mark = gateways.Mark(self._gateway, number)
        self._publish_signed(topics.mark_topic(self._federation), mark, qos=1)

    def ask_agent(self, fetch: gateways.Fetch) -> None:
        """Ask the agent for publications that clients missed."""
        self._publish_signed(topics.fetch_topic(self._federation), fetch, urgent=True)

    def claim(self, claim: gateways.Claim) -> None:
        """Publish to other gateways that the client is ours."""
        self._publish_signed(topics.claims_topic(self._federation), claim)

    def ask_others(self, recall: gateways.Recall) -> None:
        """Ask other gateways what their clients published."""
        if self.may_recall:
            self._publish_signed(topics.recall_topic(self._federation), recall)

    def answer(self, gateway: str, answer: gateways.Recalled) -> None:
        """Answer another gateway's question."""
        self._publish_signed(topics.recalled_topic(self._federation, gateway), answer)

    def report(self, page: gateways.SessionReport) -> bool:
        """Send the agent a report of our clients here."""
        return self._publish_signed(topics.sessions_topic(self._federation), page, urgent=True)

    async def lives(self, generation: int) -> bool:
        """Whether the broker of connection ``generation`` is alive; measures its round trip."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._probe_alive(), name=f"probe of {self.id}")
        alive = await asyncio.shield(self._probe)
        return alive and generation == self.generation

    async def _probe_alive(self) -> bool:
        generation, link = self.generation, self.link
        loop = asyncio.get_running_loop()
        if not link.connected:
            return False
        start_s = loop.time()
        link.publish(topics.alive_topic(self._federation, self._gateway), b"", qos=1)
        position = link.offered
        # count polls, not time: while the loop was blocked, we read nothing
        for _ in range(PROBE_POLLS):
            if generation != self.generation:
                return False
            if link.settled_through >= position:
                self.round_trip_s = loop.time() - start_s
                return True
            await asyncio.sleep(PROBE_POLL_S)
        return False


class SessionCleanup:
    """The sessions to be ended, by broker."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._waiting: dict[BrokerId, dict[str, Connect]] = {}
        self._limit = asyncio.Semaphore(WIPES_AT_ONCE)

    def add(self, connect: Connect, broker: Broker) -> None:
        """End the session that ``connect`` began at ``broker``."""
        waiting = self._waiting.setdefault(broker.id, {})
        if len(waiting) < WAITING_MAX:
            waiting[connect.client_id] = connect
        if broker.up:
            self.on_up(broker)

    def cancel(self, client_id: str, broker: BrokerId) -> None:
        """Keep the session: the client is at ``broker`` again."""
        self._waiting.get(broker, {}).pop(client_id, None)

    def on_up(self, broker: Broker) -> None:
        """End the sessions left behind at ``broker``, which is up."""
        for client_id in [*self._waiting.get(broker.id, {})]:
            self._tasks.create_task(self._end(client_id, broker), name=f"wipe {client_id}")

    async def _end(self, client_id: str, broker: Broker) -> None:
        async with self._limit:
            connect = self._waiting.get(broker.id, {}).pop(client_id, None)
            if connect is None:  # cancelled while other sessions were ended
                return
            blank = replace(connect, clean=True, will=None)
            if blank.version == V5:
                properties = with_value(blank.properties, Property.SESSION_EXPIRY, 0)
                blank = replace(blank, properties=properties)
            try:
                async with asyncio.timeout(WIPE_S):
                    done = await wipe_session(broker.endpoint, write_connect(blank))
            except (OSError, TimeoutError, UnicodeError, LinkError):
                done = False
            if not done:
                _log.info("gateway.session_left", client=client_id, broker=broker.id)
