"""Answers gateways that ask whether a subscription is known across the federation.

What is decided, is decided in ``protocol.settling``; this knows where in a running agent its
questions are answered.

Source: docs/protocol.md section 14.
"""

import asyncio
from typing import TYPE_CHECKING

import structlog
from mqtt5 import PublishPacket, QoS, RetainHandling, TopicFilter

from federator.errors import DecodeError
from federator.protocol import guide
from federator.protocol.filters import is_match_all, validate_filter
from federator.protocol.messages import Echo, SettlingMessage, Wave
from federator.protocol.repeats import Repeats
from federator.protocol.settled_routes import SettledRoutes, plain_filter
from federator.protocol.settling import TIMEOUT_MS, Question, Settling, Standing
from federator.protocol.types import BrokerId, Millis

if TYPE_CHECKING:
    from federator.runtime.agent import Agent

COMPLAINT_GAP_MS = Millis(60_000)

_log = structlog.get_logger()


class SettlingDesk:
    """Where gateways' questions are asked and answered: the surroundings of ``Settling``.

    Args:
        agent: Whose clients' subscriptions are asked about.

    Attributes:
        settling: The machine.
        malformed: Questions that could not be read.
    """

    def __init__(self, agent: "Agent") -> None:
        self.malformed = 0
        self._agent = agent
        self._routes = SettledRoutes(agent.node)
        self.settling = Settling(agent.settings.broker_id, agent.epoch, self)
        self._federation = agent.settings.federation
        self._topic = guide.settle_topic(self._federation)
        self._timer: asyncio.Handle | None = None
        self._complaints: Repeats[str] = Repeats(gap_ms=COMPLAINT_GAP_MS, keys_max=1)

    def subscription(self) -> TopicFilter:
        """What to subscribe on the control connection."""
        return TopicFilter(
            self._topic,
            max_qos=QoS.AT_LEAST_ONCE,
            no_local=True,
            retain_handling=RetainHandling.SEND_NEVER,
        )

    def hears(self, packet: PublishPacket) -> bool:
        """Whether ``packet`` is a gateway's question; if so, it is on its way to an answer."""
        if packet.topic != self._topic:
            return False
        now_ms = _now_ms()
        try:
            asked = guide.decode(guide.Settle, packet.payload)
            texts = [text for filter in asked.filters for text in self._texts(filter)]
        except (DecodeError, ValueError) as error:
            self.malformed += 1
            if self._complaints.allow("malformed", now_ms):
                _log.warning("settle.malformed", reason=str(error)[:200], so_far=self.malformed)
            return True
        until_ms = Millis(now_ms + TIMEOUT_MS)
        filters = tuple(dict.fromkeys(texts))
        self.settling.ask(Question(asked.gateway, asked.token, filters, until_ms), now_ms=now_ms)
        self._arm(now_ms)
        return True

    def on_message(self, message: SettlingMessage) -> None:
        """A neighbour passes a wave on, or answers one."""
        if self._agent.node.links.cost_to(message.sender) is None:
            return
        now_ms = _now_ms()
        if isinstance(message, Wave):
            self.settling.on_wave(message, now_ms=now_ms)
        else:
            self.settling.on_echo(message, now_ms=now_ms)
        self._arm(now_ms)

    def on_link_down(self, neighbour: BrokerId) -> None:
        """A neighbour is out of reach."""
        self.settling.on_link_down(neighbour, now_ms=_now_ms())

    def look(self) -> None:
        """Something may have come that was waited for."""
        if self._timer is not None:
            self._on_time()

    def _on_time(self) -> None:
        now_ms = _now_ms()
        self.settling.look(now_ms=now_ms)
        self._arm(now_ms)

    def _arm(self, now_ms: Millis) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self.settling.next_deadline_ms(now_ms)
        if due_ms is not None:
            delay_s = (due_ms - now_ms) / 1_000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_time)

    def _texts(self, filter: str) -> list[str]:
        """What of a client's filter the federation hears, as it stands in waves."""
        agent = self._agent
        validate_filter(filter)
        if is_match_all(filter) and agent.settings.discovery.match_all == "local":
            return []
        return [self._routes.text(each) for each in agent.border.asked_for(filter)]

    # What the machine asks

    def neighbours(self) -> list[BrokerId]:
        """Those with live links."""
        return list(self._agent.node.links.up)

    def send(self, neighbour: BrokerId, message: Wave | Echo) -> None:
        """Send to a neighbour."""
        known = self._agent.node.links.neighbours.get(neighbour)
        link = self._agent.neighbours.control_of(known.conn) if known and known.conn else None
        if link is not None:
            self._agent.traffic.send(link, message)

    def standing(self, filter: str) -> Standing:
        """What has become of a filter that our own clients want."""
        if self._routes.is_told(filter):
            return Standing.ANNOUNCED
        shared = self._agent.sharing.has_own_members(plain_filter(filter))
        return Standing.NEEDLESS if shared else Standing.UNHEARD

    def is_routed(self, filter: str, to: BrokerId) -> bool:
        """Whether matching publications of our clients come to us, and go towards ``to``."""
        return self._routes.leads(filter, to) and self._agent.covers(plain_filter(filter))

    def core_of(self, filter: str) -> BrokerId | None:
        """The core of its mesh, unless that is us, or the filter has none."""
        return self._routes.core_of(filter)

    def parent_to(self, core: BrokerId) -> BrokerId | None:
        """Our first parent towards ``core``."""
        return self._routes.parent_to(core)

    def has_child(self, core: BrokerId, child: BrokerId, filter: str) -> bool:
        """Whether ``child`` is ours for ``filter`` around ``core``."""
        return self._routes.has_child(core, child, filter)

    def answer(self, question: Question, *, known: bool) -> None:
        """Tell the gateway."""
        topic = guide.settled_topic(self._federation, question.gateway)
        payload = guide.encode(guide.Settled(question.token, known))
        self._agent.control_link.publish(topic, payload, urgent=True)


def _now_ms() -> Millis:
    return Millis(int(asyncio.get_running_loop().time() * 1_000))
