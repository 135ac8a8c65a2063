"""Answers gateways that ask whether a subscription is known across the federation.

``protocol.settling.waves`` decides; this module supplies the state of a running agent.

Source: docs/protocol.md 14.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from mqtt5 import PublishPacket, QoS

from federator.config.settings import Settings
from federator.errors import DecodeError
from federator.protocol.filters import is_match_all, validate_filter
from federator.protocol.messages import gateways, json_codec, topics
from federator.protocol.messages.control import Echo, SettlingMessage, Wave
from federator.protocol.node import Node
from federator.protocol.policy.broker_policy import BrokerPolicy
from federator.protocol.settling.routes import SettledRoutes, plain_filter
from federator.protocol.settling.waves import TIMEOUT_MS, Question, Settling, Standing
from federator.protocol.trust.words import is_signed
from federator.protocol.types import BrokerId, Millis
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms
from federator.runtime.process.notices import Complaints


@dataclass(kw_only=True, eq=False, repr=False)
class SettlingService:
    """Receives and answers gateways' questions: the context of ``Settling``."""

    settings: Settings
    node: Node
    policy: BrokerPolicy
    has_own_members: Callable[[str], bool]  # whether ours share a filter with members elsewhere
    covers: Callable[[str], bool]  # whether we receive what our clients publish below a filter
    tell: Callable[[BrokerId, Wave | Echo], None]  # sends to a neighbour, if there is a way
    link: MqttLink  # the control connection to our broker, over which gateways are answered
    is_gateways: Callable[[PublishPacket, str], bool]  # whether that gateway sent it
    sign: Callable[[str, bytes], bytes]  # adds our proof to a message on a topic

    def __post_init__(self) -> None:
        self.malformed = 0
        # tokens to be answered: by gateway, whether all is known, and whether the question was
        # signed
        self._answers: defaultdict[tuple[str, bool, bool], list[int]] = defaultdict(list)
        self.topic = topics.settle_topic(self.settings.federation)
        self._links = self.node.links
        self._routes = SettledRoutes(self.node)
        self.send = self.tell  # part of the machine's context, like the methods below
        self.settling = Settling(self.settings.broker_id, self._links.epoch, self._routes, self)
        self._timer = DeadlineTimer(self._on_time)
        self._complain = Complaints().complain

    def part(self) -> Part:
        return Part(
            subscriptions=[live_filter(self.topic, QoS.AT_MOST_ONCE, no_local=True)],
            topics={self.topic: self.on_question},
            messages=dict.fromkeys((Wave, Echo), self.on_message),
        )

    def on_question(self, packet: PublishPacket) -> None:
        """Handle a gateway's question; answer it when all is settled, or in vain."""
        now_ms = monotonic_ms()
        try:
            asked = json_codec.decode(gateways.Settle, packet.payload)
            if not self.is_gateways(packet, asked.gateway):
                return
            texts = [text for filter in asked.filters for text in self._texts(filter)]
        except (DecodeError, ValueError) as error:
            self.malformed += 1
            self._complain("settle.malformed", reason=str(error)[:200], so_far=self.malformed)
            return
        until_ms = Millis(now_ms + TIMEOUT_MS)
        filters, signed = tuple(dict.fromkeys(texts)), is_signed(packet.payload)
        refused = self.settling.refused
        question = Question(asked.gateway, asked.token, filters, until_ms, signed)
        self.settling.ask(question, now_ms=now_ms)
        if self.settling.refused > refused:
            self._complain("settle.refused", so_far=self.settling.refused)
        self._arm(now_ms)

    def on_message(self, message: SettlingMessage) -> None:
        """Handle a wave from a neighbour, or its answer to one."""
        if self._links.cost_to(message.sender) is None:
            return
        now_ms = monotonic_ms()
        if isinstance(message, Wave):
            self.settling.on_wave(message, now_ms=now_ms)
        else:
            self.settling.on_echo(message, now_ms=now_ms)
        self._arm(now_ms)

    def on_link_down(self, neighbour: BrokerId) -> None:
        """Stop waiting for a neighbour that is out of reach."""
        self.settling.on_link_down(neighbour, now_ms=monotonic_ms())

    def proceed(self) -> None:
        """Check whether something that a question waits for has come."""
        if self._timer.is_set:
            self._on_time()

    def _on_time(self) -> None:
        now_ms = monotonic_ms()
        self.settling.proceed(now_ms=now_ms)
        self._arm(now_ms)

    def _arm(self, now_ms: Millis) -> None:
        self._timer.set(self.settling.next_deadline_ms(now_ms))

    def _texts(self, filter: str) -> list[str]:
        """A client's filter as the federation gets it, in the form for waves."""
        validate_filter(filter)
        if is_match_all(filter) and self.settings.discovery.match_all == "local":
            return []
        return [self._routes.text(exported) for exported in self.policy.exported_filters(filter)]

    # The machine's context

    def neighbours(self) -> list[BrokerId]:
        return list(self._links.up)

    def standing(self, filter: str) -> Standing:
        """The state of a filter that our own clients want."""
        if self._routes.is_told(filter):
            return Standing.ANNOUNCED
        shared = self.has_own_members(plain_filter(filter))
        return Standing.NEEDLESS if shared else Standing.UNHEARD

    def is_routed(self, filter: str, to: BrokerId) -> bool:
        """Whether matching publications of our clients reach us, and go towards ``to``."""
        return self._routes.leads(filter, to) and self.covers(plain_filter(filter))

    def answer(self, question: Question, *, known: bool) -> None:
        """Tell the gateway whether all is settled, together with other answers of this turn."""
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._send_answers)
        self._answers[question.gateway, known, question.signed].append(question.token)

    def _send_answers(self) -> None:
        for (gateway, all_know, signed), tokens in self._answers.items():
            topic = topics.settled_topic(self.settings.federation, gateway)
            step = 1 + gateways.SETTLED_ALSO_MAX if signed else 1
            for first in range(0, len(tokens), step):
                token, *also = tokens[first : first + step]
                payload = json_codec.encode(gateways.Settled(token, all_know, tuple(also)))
                payload = self.sign(topic, payload) if signed else payload
                self.link.publish(topic, payload, urgent=True)
        self._answers.clear()
