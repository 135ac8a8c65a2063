"""Traces at one agent: sent for an operator, passed on for others, answered to the origin.

``protocol.telemetry.tracing`` decides; this module supplies the parts of a running agent.

Source: docs/observability.md, "A topic on its way".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mqtt5 import PublishPacket

from federator.errors import DecodeError
from federator.protocol.bounded_cache import Recent
from federator.protocol.data.transports import Transports
from federator.protocol.filters import validate_topic
from federator.protocol.forwarding.explanation import explain
from federator.protocol.forwarding.forwarding import Forwarder, FrameRoute, Sends, TopicRoute
from federator.protocol.forwarding.frames import Frame
from federator.protocol.messages import json_codec, operators, topics
from federator.protocol.messages.control import TraceEcho
from federator.protocol.policy.broker_policy import BrokerPolicy
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.rate_limiter import TokenBucket
from federator.protocol.telemetry import tracing
from federator.protocol.telemetry.tracing import Logbook, Onward, Stop
from federator.protocol.types import BrokerId, Epoch
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us
from federator.runtime.process.notices import Complaints

TRACES_PER_S: Final = 5
"""Bound of the orders of operators at this broker."""
ECHOES_PER_S: Final = 200
"""Bound of the echoes sent, our own and those passed on; more are dropped."""
ASKED_MAX: Final = 64
"""Traces that wait for echoes; the oldest is given up first."""


@dataclass(kw_only=True, eq=False, repr=False)
class TraceService:
    """Handles traces where they begin, pass and come home."""

    traffic: ControlTraffic
    link: MqttLink  # the control connection to our broker, over which operators are answered
    policy: BrokerPolicy
    link_policies: LinkPolicies
    forwarder: Forwarder
    name_of: Callable[[BrokerId], str]  # of a broker, empty without one
    transports: Transports
    send: Callable[[TopicRoute, Sends, bytes], int]  # a trace's body to next hops; its number
    on_home: Callable[[TraceEcho], None]  # gets other agents' reports on traces of ours

    def __post_init__(self) -> None:
        self.malformed = 0  # orders that could not be read
        self._links = self.traffic.links
        self._self_id = self._links.self_id
        self.topic = topics.trace_topic(self.traffic.federation)
        self._open_traces: Recent[tuple[Epoch, int], str] = Recent(ASKED_MAX)  # tokens
        self._orders = TokenBucket(TRACES_PER_S)
        self._echoes = TokenBucket(ECHOES_PER_S)
        self._complain = Complaints().complain

    def part(self) -> Part:
        return Part(
            # Without retained orders: they have no sender.
            subscriptions=[live_filter(self.topic, no_local=True)],
            topics={self.topic: self.on_order},
            messages={TraceEcho: self.on_echo},
        )

    def on_order(self, packet: PublishPacket) -> None:
        """Carry out an operator's order to trace."""
        try:
            order = json_codec.decode(operators.Trace, packet.payload)
            validate_topic(order.topic)
        except (DecodeError, ValueError) as error:
            self.malformed += 1
            self._complain("trace.malformed", reason=str(error)[:200], so_far=self.malformed)
            return
        if self._orders.take(monotonic_ms()):
            self._begin(order)

    def _begin(self, order: operators.Trace) -> None:
        epoch = self._links.epoch
        name = self.policy.renames.outward(order.topic)
        topic = order.topic if name is None else name
        why_not = self.policy.why_not(order.topic)
        route = self.forwarder.route_topic(topic) if why_not is None else None
        sends = self._allowed(topic, () if route is None else route.sends)
        now_us = wall_clock_us()
        logbook = Logbook(topic, (Stop(self._self_id, now_us),))
        why = why_not or explain(self.forwarder, topic).why
        onward = Onward(True, False, self._waiting(sends), why, self._transports(sends))
        if route is not None and sends:
            number = self.send(route, sends, tracing.write_logbook(logbook))
            self._open_traces.put((epoch, number), order.token)
        echo = tracing.echo(logbook, onward, epoch=epoch, number=0)
        self._answer(order.token, echo, now_us)

    def on_frame(self, frame: Frame, route: FrameRoute | None) -> tuple[Sends, bytes]:
        """Pass a trace on, and report to its origin; see ``Traces``."""
        logbook = tracing.read_logbook(frame.body, sender=frame.sender)
        logbook = logbook.at(self._self_id, wall_clock_us())
        sends: Sends = ()
        delivers, why = False, ""
        rules = self.link_policies.rules_of(frame.sender)
        if route is not None and not rules.allows_import(logbook.topic):
            why = "our rules for this link let it not in"
        elif route is not None:
            sends, delivers = self._allowed(logbook.topic, route.sends), route.deliver
            if not delivers and not sends:
                why = "nobody here wants it" if not route.sends else "rules of links stop it"
        if frame.hops + 1 >= frame.hop_limit:
            sends, why = (), "its hops are spent"
        transports = self._transports(sends)
        onward = Onward(route is not None, delivers, self._waiting(sends), why, transports)
        echo = tracing.echo(logbook, onward, epoch=frame.epoch, number=frame.seq)
        self._send(frame.sender, echo)
        return sends, tracing.write_logbook(logbook)

    def on_echo(self, received: TraceEcho) -> None:
        """Pass an echo on, or answer the operator."""
        if self._links.cost_to(received.sender) is None:
            return
        echo = tracing.towards_origin(received, self._self_id)
        if echo is None:
            return
        if echo.at > 0:
            self._send(echo.path[echo.at - 1], echo)
            return
        if echo.epoch == self._links.epoch:
            self.on_home(echo)
        token = self._open_traces.get((echo.epoch, echo.number))
        if token is not None:
            self._answer(token, echo, wall_clock_us())

    # Within

    def _allowed(self, topic: str, sends: Sends) -> Sends:
        rules_of = self.link_policies.rules_of
        return tuple(send for send in sends if rules_of(send[0]).allows_export(topic))

    def _waiting(self, sends: Sends) -> list[tuple[BrokerId, int]]:
        """Next hops, and the bytes that wait to be sent there."""
        known_neighbours = self._links.neighbours
        queued = []
        for hop, _ in sends:
            neighbour = known_neighbours.get(hop)
            queue = self.transports.queue_to(hop)
            if queue is None and neighbour and neighbour.conn:
                queue = self.traffic.connections.data_of(neighbour.conn)
            queued.append((hop, 0 if queue is None else queue.queued_bytes))
        return queued

    def _transports(self, sends: Sends) -> list[str]:
        return [self.transports.used_to(hop) for hop, _ in sends]

    def _send(self, neighbour: BrokerId, echo: TraceEcho) -> None:
        link = self.traffic.link_to(neighbour)
        if link is not None and self._echoes.take(monotonic_ms()):
            self.traffic.send(link, echo)

    def _answer(self, token: str, echo: TraceEcho, now_us: int) -> None:
        brokers = {*echo.path, *(hop for hop, _ in echo.next_hops)}
        names = {str(id): name for id in sorted(brokers) if (name := self.name_of(id))}
        answer = operators.Traced(
            path=echo.path,
            times_us=echo.times_us,
            back_us=now_us,
            first=echo.first,
            delivers=echo.delivers,
            next_hops=echo.next_hops,
            why=echo.why,
            transports=echo.transports,
            names=names,
        )
        topic = topics.traced_topic(self.traffic.federation, token)
        self.link.publish(topic, json_codec.encode(answer), urgent=True)
