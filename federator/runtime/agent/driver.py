"""Feeds the protocol node of one agent and carries out what it decides.

There is no protocol decision here: each order goes to the part of the agent that it is for. All of
them are performed before the next event is looked at. Everything happens in callbacks of the event
loop, one at a time: a packet, a connection, or a deadline becomes an event.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from federator.protocol import effects as e
from federator.protocol.events import DeadlineReached, Event
from federator.protocol.node import Node
from federator.protocol.types import BrokerId, ConnId, Epoch
from federator.runtime.data.cover_subscriber import CoverSubscriber
from federator.runtime.data.data_path import DataPath
from federator.runtime.datagrams.service import DatagramService
from federator.runtime.failover.guide_publisher import GuidePublisher
from federator.runtime.failover.prepared_sessions import PreparedSessions
from federator.runtime.failover.service import FailoverService
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.links.dialler import Dialler
from federator.runtime.links.neighbour_links import NeighbourLinks
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms
from federator.runtime.process.notices import log_notice
from federator.runtime.retained.retained import Retained
from federator.runtime.settling.service import SettlingService
from federator.runtime.sharing.sharing import Sharing
from federator.runtime.telemetry.stream import MetricsStream
from federator.runtime.topology.arranging import Arranger
from federator.runtime.trust.guarding import KeyWatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The parts that carry out what the node decides; ``None`` where a feature is off."""

    traffic: ControlTraffic
    connections: NeighbourLinks
    dialler: Dialler
    arranger: Arranger
    data_path: DataPath
    cover: CoverSubscriber
    sharing: Sharing
    settling: SettlingService
    guide: GuidePublisher
    failover: FailoverService
    prepared: PreparedSessions
    renew_epoch: Callable[[Epoch], None]
    datagrams: DatagramService | None
    keys: KeyWatcher | None
    retained: Retained | None
    metrics: MetricsStream | None


class Driver:
    """Gives the node events, and its orders to those who carry them out.

    Those tell it events in turn, so they are made later, and it gets to know them by ``start``.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._timer = DeadlineTimer(lambda: self.handle(DeadlineReached()))

    def start(self, ports: Ports) -> None:
        """Have ``ports`` carry out what the node decides. Before the first event."""
        self._ports = ports

    def handle(self, event: Event) -> None:
        """Let the node see ``event`` and do what it says."""
        ports = self._ports
        routes_changed = False
        moved: dict[BrokerId, BrokerId | None] = {}
        for effect in self._node.handle(event, now_ms=monotonic_ms()):
            if isinstance(effect, e.SetDestination):
                moved[effect.broker] = effect.next_hop
                continue
            routes_changed |= isinstance(effect, e.SetRoute)
            self._perform(effect)
            if ports.metrics is not None:
                ports.metrics.events.on_effect(effect)
        if moved:
            ports.data_path.set_destinations(moved)
        if ports.sharing.on_routes_set() or routes_changed:
            ports.cover.change(ports.data_path.forwarder.cover_change())
        ports.settling.proceed()
        if ports.metrics is not None:
            ports.metrics.on_handled()
        self._timer.set(self._node.next_deadline_ms())

    def _perform(self, effect: e.Effect) -> None:
        ports = self._ports
        match effect:
            case e.Send(conn, message):
                ports.traffic.send_over(conn, message)
            case e.SetRoute(filter_, route, lost):
                ports.data_path.set_route(filter_, route, lost=lost)
                if filter_.startswith("$"):
                    ports.sharing.on_route(filter_, route, lost=lost)
            case e.NeighbourReachable(neighbour, conn):
                self._reach(neighbour, conn)
            case e.NeighbourUnreachable(neighbour):
                self._reach(neighbour, None)
            case e.SetDestination(broker, next_hop):
                ports.data_path.set_destinations({broker: next_hop})
            case e.Dial(neighbour, address):
                ports.dialler.dial_back(neighbour, address)
            case e.DialSeed(address):
                ports.dialler.dial_seed(address)
            case e.CallOff(neighbour):
                ports.connections.hang_up_dialled(neighbour)
            case e.CallOffSeed(address):
                ports.connections.call_off(address)
            case e.Measure():
                ports.arranger.measure(effect)
            case e.RememberBrokers(brokers):
                ports.arranger.remember(brokers)
            case e.HangUp(conn):
                ports.connections.hang_up(conn)
            case e.RenewEpoch(epoch):
                ports.renew_epoch(Epoch(epoch))
            case e.PublishGuide(guide):
                ports.guide.publish(guide)
            case e.SetDraining(drain):
                ports.failover.set_draining(drain)
            case e.StepIn(broker, missed_at_ms, sessions):
                ports.prepared.step_in(broker, missed_at_ms, sessions)
            case e.StepBack(broker):
                ports.prepared.step_back(broker)
            case e.Notice():
                log_notice(effect)
            case _:
                assert_never(effect)

    def _reach(self, neighbour: BrokerId, conn: ConnId | None) -> None:
        """Send data to a neighbour over another connection from now on, or not at all."""
        ports = self._ports
        # A connection that ended since the node decided is gone here before the node hears of it.
        link = ports.connections.data_of(conn) if conn is not None else None
        ports.data_path.reach(neighbour, link)
        if ports.datagrams is not None:
            ports.datagrams.on_neighbour(neighbour, link is not None)
        if link is None:
            ports.settling.on_link_down(neighbour)
        elif ports.keys is not None:
            ports.keys.pass_on(to=conn)
        if ports.retained is not None:
            ports.retained.on_neighbour(neighbour, link)
