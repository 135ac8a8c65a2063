"""Feeds the protocol node of one agent and carries out what it decides.

There is no protocol decision here: each order goes to the part of the agent that it is for. All of
them are performed before the next event is looked at. Everything happens in callbacks of the event
loop, one at a time: a packet, a connection, or a deadline becomes an event.
"""

import asyncio
from typing import TYPE_CHECKING, assert_never

import structlog

from federator.protocol import effects as e
from federator.protocol.events import DeadlineReached, Event
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.clocks import monotonic_ms

if TYPE_CHECKING:
    from federator.runtime.agent import Agent

_log = structlog.get_logger()


class Driver:
    """Of one agent.

    Args:
        agent: Its parts perform; they need not be there before the first event.
    """

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._deadline: asyncio.Handle | None = None

    def handle(self, event: Event) -> None:
        """Let the node see ``event`` and do what it says."""
        agent = self._agent
        now_ms = monotonic_ms()
        routes_changed = False
        moved: dict[BrokerId, BrokerId | None] = {}
        for effect in agent.node.handle(event, now_ms=now_ms):
            if isinstance(effect, e.SetDestination):
                moved[effect.broker] = effect.next_hop
                continue
            routes_changed |= isinstance(effect, e.SetRoute)
            self._perform(effect)
            if agent.metrics is not None:
                agent.metrics.happenings.on_effect(effect)
        if moved:
            agent.data_path.set_destinations(moved)
        if agent.sharing.on_routes_set() or routes_changed:
            agent.cover.change(agent.forwarder.cover_change())
        agent.settling.look()
        if agent.metrics is not None:
            agent.metrics.on_handled()
        self._arm(now_ms)

    def _perform(self, effect: e.Effect) -> None:
        agent = self._agent
        match effect:
            case e.Send(conn, message):
                agent.send(conn, message)
            case e.SetRoute(filter_, route, lost):
                agent.data_path.set_route(filter_, route, lost=lost)
                if filter_.startswith("$"):
                    agent.sharing.on_route(filter_, route, lost=lost)
            case e.ReachNeighbour():
                self._reach(effect)
            case e.SetDestination(broker, next_hop):
                agent.data_path.set_destinations({broker: next_hop})
            case e.Dial(neighbour, address):
                agent.dialler.dial_back(neighbour, address)
            case e.CallOff() | e.DialSeed() | e.CallOffSeed() | e.Measure() | e.RememberBrokers():
                agent.arranger.perform(effect)
            case e.HangUp(conn):
                agent.neighbours.hang_up(conn)
            case e.RenewEpoch(epoch):
                agent.renew_epoch(Epoch(epoch))
            case e.PublishGuide(guide):
                agent.guide.publish(agent.control_link, guide)
            case e.SetDraining(drain):
                agent.failover.set_draining(drain)
            case e.StepIn(broker, missed_at_ms, sessions):
                agent.prepared.step_in(broker, missed_at_ms, sessions)
            case e.StepBack(broker):
                agent.prepared.step_back(broker)
            case e.Notice(name, level, details):
                getattr(_log, level)(name, **details)
            case _:
                assert_never(effect)

    def _reach(self, effect: e.ReachNeighbour) -> None:
        """Data to a neighbour goes over another connection from now on, or none."""
        agent, neighbour, conn = self._agent, effect.neighbour, effect.conn
        link = agent.neighbours.data_of(conn) if conn is not None else None
        agent.data_path.reach(neighbour, link)
        if agent.datagrams is not None:
            agent.datagrams.on_neighbour(neighbour, link is not None)
        if link is None:
            agent.settling.on_link_down(neighbour)
        elif agent.keys is not None:
            agent.keys.pass_on(to=conn)
        if agent.retained is not None:
            agent.retained.on_neighbour(neighbour, link)

    def _arm(self, now_ms: Millis) -> None:
        """Wake up at the node's next deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        at_ms = self._agent.node.next_deadline_ms()
        if at_ms is not None:
            delay_s = max(0, at_ms - now_ms) / 1000
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(delay_s, self.handle, DeadlineReached())
