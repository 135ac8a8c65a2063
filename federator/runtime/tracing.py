"""Traces at one agent: sent for an operator, carried on for others, answered home.

What is decided, is decided in ``protocol.tracing``; this knows where in a running agent things are.

Source: docs/observability.md, "A topic on its way".
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import structlog
from mqtt5 import PublishPacket, QoS, RetainHandling, TopicFilter

from federator.errors import DecodeError
from federator.protocol import guide
from federator.protocol.filters import validate_topic
from federator.protocol.forwarding import FrameRoute, Sends
from federator.protocol.frames import Frame
from federator.protocol.messages import TraceEcho
from federator.protocol.repeats import Repeats
from federator.protocol.tracing import (
    Allowance,
    Logbook,
    Onward,
    Stop,
    echo,
    read_logbook,
    towards_origin,
    write_logbook,
)
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.clocks import monotonic_ms, wall_clock_us

if TYPE_CHECKING:
    from federator.runtime.agent import Agent

TRACES_PER_S: Final = 5
"""Of operators here."""
ECHOES_PER_S: Final = 200
"""Our own and those passed on; more are dropped."""
ASKED_MAX: Final = 64
"""Traces whose echoes are awaited; the oldest is given up first."""
COMPLAINT_GAP_MS = Millis(60_000)

_log = structlog.get_logger()


class TraceDesk:
    """Where traces begin, pass and come home.

    Args:
        agent: Whose.

    Attributes:
        malformed: Orders that could not be read.
    """

    def __init__(self, agent: "Agent") -> None:
        self.malformed = 0
        self._agent = agent
        self._federation = agent.settings.federation
        self._topic = guide.trace_topic(self._federation)
        self._asked: OrderedDict[tuple[Epoch, int], str] = OrderedDict()  # tokens
        self._orders = Allowance(TRACES_PER_S)
        self._echoes = Allowance(ECHOES_PER_S)
        self._complaints: Repeats[str] = Repeats(gap_ms=COMPLAINT_GAP_MS, keys_max=1)

    def subscription(self) -> TopicFilter:
        """What to subscribe on the control connection. A retained order is nobody's: none."""
        return TopicFilter(
            self._topic,
            max_qos=QoS.AT_LEAST_ONCE,
            no_local=True,
            retain_handling=RetainHandling.SEND_NEVER,
        )

    def hears(self, packet: PublishPacket) -> bool:
        """Whether ``packet`` is an order to trace; if so, it is carried out."""
        if packet.topic != self._topic:
            return False
        try:
            order = guide.decode(guide.Trace, packet.payload)
            validate_topic(order.topic)
        except (DecodeError, ValueError) as error:
            self.malformed += 1
            if self._complaints.allow("malformed", monotonic_ms()):
                _log.warning("trace.malformed", reason=str(error)[:200], so_far=self.malformed)
            return True
        if self._orders.take(monotonic_ms()):
            self._begin(order)
        return True

    def _begin(self, order: guide.Trace) -> None:
        agent, us = self._agent, self._agent.settings.broker_id
        border, forwarder = agent.border, agent.forwarder
        name = border.renames.outward(order.topic)
        topic = order.topic if name is None else name
        why_not = border.why_not(order.topic)
        route = forwarder.route_topic(topic) if why_not is None else None
        sends = self._let_out(topic, () if route is None else route.sends)
        now_us = wall_clock_us()
        onward = Onward(
            first=True,
            delivers=False,
            next_hops=self._waiting(sends),
            why=why_not or forwarder.explain(topic).why,
        )
        if route is not None and sends:
            body = write_logbook(Logbook(topic, (Stop(us, now_us),)))
            number = agent.data_path.trace(route, sends, body)
            self._asked[agent.epoch, number] = order.token
            if len(self._asked) > ASKED_MAX:
                self._asked.popitem(last=False)
        told = echo(Logbook(topic, (Stop(us, now_us),)), onward, epoch=agent.epoch, number=0)
        self._answer(order.token, told, now_us)

    def on_frame(self, frame: Frame, route: FrameRoute | None) -> tuple[Sends, bytes]:
        """A trace came; see ``Traces``."""
        agent = self._agent
        logbook = read_logbook(frame.body, sender=frame.sender)
        logbook = logbook.at(agent.settings.broker_id, wall_clock_us())
        sends: Sends = ()
        delivers, why = False, ""
        if route is not None and not agent.gates.rules_of(frame.sender).lets_in(logbook.topic):
            why = "our rules for this link let it not in"
        elif route is not None:
            sends, delivers = self._let_out(logbook.topic, route.sends), route.deliver
            if not delivers and not sends:
                why = "nobody here wants it" if not route.sends else "rules of links stop it"
        if frame.hops + 1 >= frame.hop_limit:
            sends, why = (), "its hops are spent"
        onward = Onward(route is not None, delivers, self._waiting(sends), why)
        told = echo(logbook, onward, epoch=frame.epoch, number=frame.seq)
        self._send(frame.sender, told)
        return sends, write_logbook(logbook)

    def on_echo(self, heard: TraceEcho) -> None:
        """Pass an echo on, or tell who asked."""
        if self._agent.node.links.cost_to(heard.sender) is None:
            return
        told = towards_origin(heard, self._agent.settings.broker_id)
        if told is None:
            return
        if told.at > 0:
            self._send(told.path[told.at - 1], told)
            return
        token = self._asked.get((told.epoch, told.number))
        if token is not None:
            self._answer(token, told, wall_clock_us())

    # Within

    def _let_out(self, topic: str, sends: Sends) -> Sends:
        gates = self._agent.gates
        return tuple(each for each in sends if gates.rules_of(each[0]).lets_out(topic))

    def _waiting(self, sends: Sends) -> list[tuple[BrokerId, int]]:
        """Next hops, and what waits to be sent there."""
        links = self._agent.node.links.neighbours
        found = []
        for hop, _ in sends:
            known = links.get(hop)
            link = self._agent.neighbours.data_of(known.conn) if known and known.conn else None
            found.append((hop, 0 if link is None else link.queued_bytes))
        return found

    def _send(self, neighbour: BrokerId, told: TraceEcho) -> None:
        known = self._agent.node.links.neighbours.get(neighbour)
        link = self._agent.neighbours.control_of(known.conn) if known and known.conn else None
        if link is not None and self._echoes.take(monotonic_ms()):
            self._agent.traffic.send(link, told)

    def _answer(self, token: str, told: TraceEcho, now_us: int) -> None:
        word = guide.Traced(
            path=told.path,
            times_us=told.times_us,
            back_us=now_us,
            first=told.first,
            delivers=told.delivers,
            next_hops=told.next_hops,
            why=told.why,
        )
        topic = guide.traced_topic(self._federation, token)
        self._agent.control_link.publish(topic, guide.encode(word), urgent=True)
