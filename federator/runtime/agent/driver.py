"""Feeds events to the protocol node of one agent and carries out its effects.

There is no protocol decision here: each effect goes to the part of the agent that it is for. All
effects are performed before the next event is handled. Everything happens in callbacks of the event
loop, one at a time: a packet, a connection, or a deadline becomes an event.
"""

from dataclasses import dataclass
from typing import assert_never

from federator.protocol import effects as e
from federator.protocol.events import DeadlineReached, Event
from federator.protocol.types import BrokerId, ConnId, Epoch
from federator.runtime.agent.control_parts import ControlParts
from federator.runtime.agent.data_parts import DataParts
from federator.runtime.agent.services import Services
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms
from federator.runtime.process.notices import log_notice


@dataclass(eq=False, repr=False)
class Driver:
    """Gives events to the node, and its effects to the parts.

    The parts report events by ``ControlParts.handle``. The driver is made after them, and before
    the first event.
    """

    control: ControlParts
    data: DataParts
    services: Services

    def __post_init__(self) -> None:
        self._timer = DeadlineTimer(self._on_deadline)

    def _on_deadline(self) -> None:
        control = self.control
        self.handle(DeadlineReached(behind=control.link.behind or control.connections.behind))

    def handle(self, event: Event) -> None:
        """Let the node handle ``event`` and perform its effects."""
        data, services = self.data, self.services
        node, metrics = self.control.node, services.metrics
        routes_changed = False
        moved: dict[BrokerId, BrokerId | None] = {}
        for effect in node.handle(event, now_ms=monotonic_ms()):
            if isinstance(effect, e.SetDestination):
                moved[effect.broker] = effect.next_hop
                continue
            routes_changed |= isinstance(effect, e.SetRoute)
            self._perform(effect)
            if metrics is not None:
                metrics.events.on_effect(effect)
        if moved:
            data.path.set_destinations(moved)
        if data.sharing.on_routes_set() or routes_changed:
            data.follow_routes()
        services.settling.proceed()
        if metrics is not None:
            metrics.on_handled()
        self._timer.set(node.next_deadline_ms())

    def _perform(self, effect: e.Effect) -> None:
        control, data, services = self.control, self.data, self.services
        match effect:
            case e.Send(conn, message):
                control.traffic.send_over(conn, message)
            case e.SetRoute(filter_, route, lost):
                data.path.set_route(filter_, route, lost=lost)
                if filter_.startswith("$"):
                    data.sharing.on_route(filter_, route, lost=lost)
            case e.NeighbourReachable(neighbour, conn, takes_bundles):
                self._reach(neighbour, conn, takes_bundles=takes_bundles)
            case e.NeighbourUnreachable(neighbour):
                self._reach(neighbour, None)
            case e.SetDestination(broker, next_hop):
                data.path.set_destinations({broker: next_hop})
            case e.Dial(neighbour, address):
                control.connections.dial_back(neighbour, address)
            case e.DialSeed(address):
                control.connections.dial_seed(address)
            case e.CallOff(neighbour):
                control.connections.hang_up_dialled(neighbour)
            case e.CallOffSeed(address):
                control.connections.call_off(address)
            case e.Measure():
                control.arranger.measure(effect)
            case e.RememberBrokers(brokers):
                control.arranger.remember(brokers)
            case e.HangUp(conn):
                control.connections.hang_up(conn)
            case e.RenewEpoch(epoch):
                self._renew_epoch(Epoch(epoch))
            case e.Pause() | e.Proceed():
                services.serving.perform(effect)
                self._compare_with(effect.broker)
            case e.PublishGuide(guide):
                services.guide.publish(guide)
            case e.SetDraining(drain):
                services.failover.set_draining(drain)
            case e.StepIn(broker, missed_at_ms, sessions):
                services.prepared.step_in(broker, missed_at_ms, sessions)
            case e.StepBack(broker):
                services.prepared.step_back(broker)
            case e.Notice():
                log_notice(effect, control.node.failover.name_of)
            case _:
                assert_never(effect)

    def _reach(
        self, neighbour: BrokerId, conn: ConnId | None, *, takes_bundles: bool = False
    ) -> None:
        """Send data to a neighbour over another connection from now on, or not at all."""
        control, data = self.control, self.data
        # A connection that just ended is gone here before the node learns of it.
        link = control.connections.data_of(conn) if conn is not None else None
        control.outboxes.on_neighbour(neighbour, reached=link is not None)
        topic = control.connections.data_topic(conn)
        data.path.reach(neighbour, link, topic, takes_bundles=takes_bundles)
        data.transports.on_neighbour(neighbour, link is not None)
        if link is None:
            self.services.settling.on_link_down(neighbour)
        elif control.keys is not None:
            control.keys.pass_on(to=conn)
        self._compare_with(neighbour)
        self.services.serving.on_neighbour(neighbour, link is not None)

    def _compare_with(self, neighbour: BrokerId) -> None:
        """Compare retained values with a neighbour while it is reachable and not paused."""
        control, data = self.control, self.data
        if data.retained is not None:
            link = None
            up = control.node.links.up.get(neighbour)
            if up is not None and neighbour not in data.path.custody.paused:
                link = control.connections.data_of(up.conn)
            data.retained.on_neighbour(neighbour, link)

    def _renew_epoch(self, epoch: Epoch) -> None:
        """Adopt a newer epoch, under which our id is known, and save it."""
        self.data.state.save_epoch(epoch)
        self.data.path.renew_epoch(epoch)
        self.data.sharing.origin.renew_epoch(epoch)
        self.services.settling.settling.renew(epoch)
