"""The gateway at its brokers: its own connections, what it asks, and what it leaves tidy there.

It has one connection to each broker, for the guide, for questions, and to know at once when a
broker dies.

A client's connection that ends says little: its broker may have died, or thrown out this client
alone, and a 3.1.1 broker tells neither. So the gateway asks on its own connection, which ends with
the broker and with nothing else.

A persistent session whose client lives elsewhere would gather messages for ever, and would give
them all again should the client come back. So the gateway ends it: at once where the client was
moved, or when a dead broker is there again.

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
from federator.runtime.mqtt.link import Inbound, MqttLink
from federator.runtime.mqtt.secret_names import secret_name
from federator.runtime.mqtt.session_packets import wipe_session
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.trust.words import SignedWords

PROBE_S: Final = 0.5
"""How long a broker may take to answer whether it lives; then it counts as dead."""

PROBE_POLL_S: Final = 0.01
PROBE_POLLS: Final = round(PROBE_S / PROBE_POLL_S)
UNANSWERED_MAX: Final = 3
"""After so many questions without an answer nobody is waited for, until one is answered."""

WAITING_MAX: Final = 10_000
"""Sessions per broker that are remembered while it is away."""

WIPES_AT_ONCE: Final = 16
WIPE_S: Final = 5.0

_Word = TypeVar("_Word", gateways.Claim, gateways.Recall, gateways.Recalled)

_log = structlog.get_logger()


class BrokerObserver(Protocol):
    """Whoever is told what happens at brokers."""

    counters: GatewayCounters

    def on_guide(self, guide: Guide) -> None:
        """Take the new guide of a broker's agent."""

    def on_roll_call(self, broker: BrokerId) -> None:
        """Have the subscriptions of all clients there made again: the agent there asks for it."""

    def on_settled(self, broker: BrokerId, token: int, known: bool) -> None:
        """Take the answer to ``Broker.ask_settled``: whether the filters are known everywhere."""

    def on_taken(self, broker: BrokerId, mark: int) -> None:
        """Take the answer to ``Broker.send_mark``: the agent has custody of what came before."""

    def on_fetched(self, broker: BrokerId, answer: gateways.Fetched) -> None:
        """Take a part of the answer to ``Broker.ask_agent``."""

    def on_claim(self, claim: gateways.Claim) -> None:
        """Take another gateway's claim to a client, which comes by several brokers."""

    def on_recall(self, recall: gateways.Recall, broker: "Broker") -> None:
        """Take another gateway's question what our clients published, told by several brokers."""

    def on_recalled(self, answer: gateways.Recalled) -> None:
        """Take another gateway's answer to ``Broker.ask_others``."""

    def on_broker_up(self, broker: BrokerId) -> None:
        """Note that our connection to ``broker`` stands."""

    def on_broker_down(self, broker: BrokerId) -> None:
        """Note that our connection to ``broker`` ended."""


class Broker:
    """One broker that clients may be attached to; the observer is told what happens there.

    Attributes:
        round_trip_s: How long the broker last took to answer; infinite before.
        clients: How many of ours are attached there.
        has_agent: Whether an agent there ever spoke to us.
        generation: Counts our connections: a broker that came back is another one.
        strangers: Knows whether others than gateways can ask what our clients published.
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
        self._words = words
        self._inbox = Inbox(self._take)  # to judge a word takes long: no flood holds the loop
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
            # Silence is noticed after half of it, counted from a ping.
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
        """Whether our connection to the broker stands."""
        return self.link.connected

    @property
    def may_recall(self) -> bool:
        """Whether what clients published may be asked and told there: only gateways hear it."""
        return self._recalls_always or self.strangers.speakers is Speakers.NOBODY

    async def connect(self, protocol: asyncio.BaseProtocol, *, within_s: float) -> bool:
        """Open a connection for a client's ``protocol``; whether there is one."""
        try:
            async with asyncio.timeout(within_s):
                await self.endpoint.connect(lambda: protocol)
        except (OSError, TimeoutError, UnicodeError, LinkError):
            return False
        return True

    # -- what the link tells --------------------------------------------------------------------

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """Count the new connection: the broker accepted us."""
        self.generation += 1
        self._unanswered = 0
        self._roll_call.on_up()
        self._observer.on_broker_up(self.id)

    def on_subscribed(self, link: MqttLink) -> None:
        """Do nothing: the guide comes by itself."""

    def on_down(self, link: MqttLink, reason: str) -> None:
        """Count the end of our connection."""
        self.generation += 1
        self._observer.on_broker_down(self.id)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Read what agents and other gateways say."""
        for packet, _, _ in publishes:
            self._observer.counters.malformed += not self._inbox.put(packet)
        self._inbox.work()

    def _take(self, packet: PublishPacket) -> None:
        try:
            if self.up:  # otherwise it was said before the connection ended
                self._read(packet.topic, packet.payload, retained=packet.retain)
        except DecodeError as error:
            self._observer.counters.malformed += 1
            _log.warning("gateway.malformed", broker=self.id, reason=str(error)[:200])

    def _read(self, topic: str, payload: bytes, *, retained: bool) -> None:
        if topic == topics.guide_topic(self._federation):
            if payload:
                guide = decode(Guide, payload)
                if self._words.is_agents(guide.broker, topic, payload, again=True):
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
            if self.may_recall and (told := self._of_gateway(gateways.Recalled, topic, payload)):
                self._observer.on_recalled(told)
        elif self._is_agents(topic, payload):
            if topic == topics.taken_topic(self._federation, self._gateway):
                self.has_agent = True
                self._observer.on_taken(self.id, decode(gateways.Taken, payload).number)
            elif topic == topics.fetched_topic(self._federation, self._gateway):
                self._observer.on_fetched(self.id, decode(gateways.Fetched, payload))
            else:
                self._unanswered = 0
                settled = decode(gateways.Settled, payload)
                for token in (settled.token, *settled.also):
                    self._observer.on_settled(self.id, token, settled.known)

    def _is_agents(self, topic: str, payload: bytes) -> bool:
        """Whether the agent there answers us: signed, if we sign what we ask."""
        return not self._words.signs or self._words.is_agents(self.id, topic, payload)

    def _of_gateway(self, kind: type[_Word], topic: str, payload: bytes) -> _Word | None:
        """What another gateway said just now, if it is the one it says it is."""
        word = decode(kind, payload)
        wanted = Wanted("gateway", word.gateway, to=at(self.id), place=self.id, ages=True)
        return word if self._words.believes(topic, payload, wanted) else None

    # -- what it is asked -----------------------------------------------------------------------

    def _say(
        self,
        topic: str,
        message: msgspec.Struct,
        *,
        qos: int = 0,
        urgent: bool = False,
        on_answer: Callable[[int], None] | None = None,
    ) -> bool:
        """Say it as ours, if we have a key, and for nobody elsewhere."""
        payload = self._words.sign(topic, encode(message), to=at(self.id))
        return self.link.publish(topic, payload, qos=qos, urgent=urgent, on_answer=on_answer)

    def ask_settled(self, token: int, filters: tuple[str, ...]) -> bool:
        """Ask the agent when ``filters`` are known; ``False`` when an answer is not to be expected.

        A broker without an agent would make every subscriber wait for nothing. Mosquitto tells at
        once that nobody hears a question of QoS 1; of others the agent's silence tells.
        """
        if not self.up:
            return False

        def on_puback(reason: int) -> None:
            if reason:  # nobody is there, or the broker keeps it from them
                self._unanswered = 0
                self._observer.on_settled(self.id, token, False)

        settle = gateways.Settle(self._gateway, token, filters)
        topic = topics.settle_topic(self._federation)
        asked = self._say(topic, settle, qos=1, on_answer=on_puback)
        self._unanswered += 1
        return asked and self._unanswered <= UNANSWERED_MAX

    def send_mark(self, number: int) -> None:
        """Ask the agent how far it took custody."""
        mark = gateways.Mark(self._gateway, number)
        self._say(topics.mark_topic(self._federation), mark, qos=1)

    def ask_agent(self, fetch: gateways.Fetch) -> None:
        """Ask the agent for what clients missed."""
        self._say(topics.fetch_topic(self._federation), fetch, urgent=True)

    def claim(self, claim: gateways.Claim) -> None:
        """Tell other gateways whom we have."""
        self._say(topics.claims_topic(self._federation), claim)

    def ask_others(self, recall: gateways.Recall) -> None:
        """Ask other gateways what their clients published."""
        if self.may_recall:
            self._say(topics.recall_topic(self._federation), recall)

    def answer(self, gateway: str, answer: gateways.Recalled) -> None:
        """Answer another gateway's question."""
        self._say(topics.recalled_topic(self._federation, gateway), answer)

    def report(self, page: gateways.SessionReport) -> bool:
        """Tell the agent who is here."""
        return self._say(topics.sessions_topic(self._federation), page, urgent=True)

    async def lives(self, generation: int) -> bool:
        """Whether the broker we were connected to as ``generation`` lives; measures how fast."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._ask_alive(), name=f"probe of {self.id}")
        alive = await asyncio.shield(self._probe)
        return alive and generation == self.generation

    async def _ask_alive(self) -> bool:
        generation, link = self.generation, self.link
        loop = asyncio.get_running_loop()
        if not link.connected:
            return False
        start_s = loop.time()
        link.publish(topics.alive_topic(self._federation, self._gateway), b"", qos=1)
        position = link.offered
        for _ in range(PROBE_POLLS):  # counted: while we stood still, we did not listen
            if generation != self.generation:
                return False
            if link.settled_through >= position:
                self.round_trip_s = loop.time() - start_s
                return True
            await asyncio.sleep(PROBE_POLL_S)
        return False


class SessionCleanup:
    """The sessions that are to be ended, and where."""

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
        """Keep a session after all: the client is at ``broker`` again."""
        self._waiting.get(broker, {}).pop(client_id, None)

    def on_up(self, broker: Broker) -> None:
        """End the sessions that wait for ``broker``, which is there."""
        for client_id in [*self._waiting.get(broker.id, {})]:
            self._tasks.create_task(self._end(client_id, broker), name=f"wipe {client_id}")

    async def _end(self, client_id: str, broker: Broker) -> None:
        async with self._limit:
            connect = self._waiting.get(broker.id, {}).pop(client_id, None)
            if connect is None:  # cancelled while others were ended
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
