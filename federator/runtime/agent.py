"""One agent: its parts, how they are joined, started and left.

It decides nothing. The protocol node decides, and ``driver`` carries it out; ``control_handler``
hears what is said to the agent, and ``data_path`` carries what clients publish.

Source: docs/ARCHITECTURE.md.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog
from mqtt5 import QoS, RetainHandling, TopicFilter, Will

from federator.config import Settings
from federator.protocol.border import Border
from federator.protocol.custody import HELD_BYTES_MAX
from federator.protocol.discovery import MembersChanged
from federator.protocol.duplicates import DuplicateLog
from federator.protocol.events import (
    LeaveRequested,
    LocalBrokerDown,
    LocalBrokerUp,
    LocalFiltersChanged,
    PriorityChanged,
)
from federator.protocol.forwarding import Forwarder
from federator.protocol.link_gates import LinkGates
from federator.protocol.messages import Bye, DatagramOffer, Message, RepairRequest
from federator.protocol.node import Identity, Node
from federator.protocol.placed_priority import PlacedPriority
from federator.protocol.renames import Renames
from federator.protocol.rules import Denied, EdgeRules
from federator.protocol.types import BrokerId, ConnId, Epoch
from federator.runtime.arranging import AddressWarrant, Arranger, known_brokers
from federator.runtime.busy_poll import BusyPoll
from federator.runtime.clocks import monotonic_ms
from federator.runtime.cohabitants import Agent as Cohabitant
from federator.runtime.cohabitants import Cohabitants
from federator.runtime.control_handler import ControlHandler
from federator.runtime.control_traffic import ControlTraffic
from federator.runtime.cover_subscriber import CoverSubscriber
from federator.runtime.custody import CustodyStores
from federator.runtime.data_path import DataPath
from federator.runtime.dialler import Dialler
from federator.runtime.discovery import Discovery
from federator.runtime.driver import Driver
from federator.runtime.drops import LOOK_S, DropReports
from federator.runtime.endpoints import endpoint_of
from federator.runtime.failover import FailoverDesk
from federator.runtime.gateway_marks import GatewayMarks
from federator.runtime.guide_keeper import GuideKeeper
from federator.runtime.health_keeper import HealthKeeper
from federator.runtime.key_keeper import KeyKeeper
from federator.runtime.loop_watch import LoopWatch
from federator.runtime.metrics_stream.stream import MetricsStream
from federator.runtime.metrics_stream.tape import Tape
from federator.runtime.mqtt_link import Inbound, MqttLink
from federator.runtime.neighbour_links import NeighbourLinks
from federator.runtime.own_broker import DataHandler, OwnBroker
from federator.runtime.prepared_sessions import Around, PreparedSessions
from federator.runtime.presence import Presence
from federator.runtime.priority_file import PriorityFile
from federator.runtime.renaming import Renaming
from federator.runtime.retained import Retained
from federator.runtime.session_filters import SessionFilters
from federator.runtime.settling import SettlingDesk
from federator.runtime.share_file import ShareFile
from federator.runtime.sharing import Sharing
from federator.runtime.state_dir import StateDir
from federator.runtime.tracing import TraceDesk
from federator.runtime.trust import Trust

if TYPE_CHECKING:
    from federator.runtime.datagram_desk import DatagramDesk

LEAVE_SECONDS_MAX = 1.0
HAND_OVER_POLLS = 500
HAND_OVER_POLL_S = 0.01
TEND_S = 1.0
HELD_SHARE = 4
"""Of the queue to our broker, the part that frames may take which all come loose at once."""

_log = structlog.get_logger()


class Agent:
    """The agent of one broker.

    Args:
        settings: What the operator said.
        state: Our state folder, locked.
        tasks: Runs everything that lasts.
    """

    def __init__(self, settings: Settings, state: StateDir, tasks: asyncio.TaskGroup) -> None:
        self.settings = settings
        self.driver = Driver(self)
        handle = self.driver.handle
        control = self._control = ControlHandler(self)
        self._own = OwnBroker(settings, tasks)
        self.epoch = state.next_epoch()
        self.trust = None if settings.security == "open" else Trust(settings, state.path)
        self.traffic = ControlTraffic(
            settings.federation, whose=self.neighbour_at, trust=self.trust
        )
        data = settings.data
        self._busy_poll = BusyPoll(data.busy_poll_us)
        self.border = _border(settings)
        renames = self.border.renames
        self.forwarder = Forwarder(
            topic_cache_max=data.topic_cache_max,
            lets_out=self.border.lets_out,
            here=renames.filter_inward if renames else None,
        )
        duplicates = DuplicateLog(
            window_bits=data.duplicate_window_bits, origins_max=data.origins_max
        )
        self.gates = LinkGates(*settings.link_rules())
        self.retained = self._retained(state) if settings.retained.enabled else None
        custody = settings.custody
        self._stores = CustodyStores.open(
            state.path / "custody",
            keep_s=custody.keep_s,
            bytes_max=custody.bytes_max,
            fsync=custody.fsync,
        )
        tape = Tape() if settings.metrics.enabled else None
        self.data_path = DataPath(
            self_id=settings.broker_id,
            stores=self._stores,
            epoch=self.epoch,
            federation=settings.federation,
            forwarder=self.forwarder,
            duplicates=duplicates,
            gates=self.gates,
            land=self._land,
            frame_bytes_max=data.frame_bytes_max,
            hop_limit=data.hop_limit,
            held_bytes_max=min(HELD_BYTES_MAX, settings.links.send_queue_bytes_max // HELD_SHARE),
            retained=self.retained,
            trust=self.trust,
            tape=tape,
        )
        identity = Identity(
            settings.broker_id, self.epoch, settings.broker.advertised, settings.broker.priority
        )
        auto = settings.topology.mode == "auto"
        self.node = Node(
            identity,
            settings.parameters(),
            settings.failover_parameters(),
            settings.topology_parameters(known_brokers(state.path)) if auto else None,
            AddressWarrant(settings, self.trust),
        )
        self.guide = GuideKeeper(self_id=settings.broker_id, federation=settings.federation)
        self.discovery = Discovery(
            settings.discovery,
            federation=settings.federation,
            own_id=self._own.client_id("ctl"),
            state_dir=state.path,
            interest_changed=self._interest_changed,
            members_changed=self._members_changed if settings.groups_span_brokers else None,
            control_filters=lambda: [each.pattern for each in control.subscriptions()],
            own_links=self._own_links,
        )
        self.neighbours = NeighbourLinks(tasks, will_for=self._will, tell=handle)
        self.dialler = Dialler(settings, self.neighbours, lambda: self.epoch)
        self.keys = self._key_keeper(self.trust) if self.trust is not None else None
        self.arranger = Arranger(
            state.path,
            neighbours=self.neighbours,
            dialler=self.dialler,
            measured=handle,
        )
        will = self.guide.will() if settings.failover.enabled else None
        self.control_link = self._own.link("ctl", control, will=will)
        is_new = self._stores.owed.is_new
        self.health = HealthKeeper(self)
        self.data_link = self._own.link(
            "data", DataHandler(self), clean_start=is_new, will=self.health.will()
        )
        self.cohabitants = Cohabitants(
            Cohabitant(self.epoch, settings.broker_id),
            federation=settings.federation,
            url=settings.broker.url,
            link=self.control_link,
            give_way=self._end_with,
        )
        self.data_path.local = self.data_link
        self.data_path.custody_outlet.ask = self.tell
        topic = self.data_path.data_topic
        self.loops = LoopWatch(settings.loops, data_topic=topic, pass_on=self._enter)
        self.renaming = Renaming(renames, topic) if renames else None
        self.cover = CoverSubscriber(
            self.data_link, settings.federation, SessionFilters(self._stores.subscribed)
        )
        self.marks = GatewayMarks(settings.federation, self.control_link)
        self.data_path.intake.on_acknowledged = self.marks.on_acknowledged
        self.sharing = Sharing(
            self_id=settings.broker_id,
            epoch=self.epoch,
            data_path=self.data_path,
            data_link=self.data_link,
            make_link=self._own.stand_in,
            announce=lambda added, removed: handle(LocalFiltersChanged(added, removed)),
            announces=lambda filter_: bool(self.border.asked_for(filter_)),
            lets_out=self.border.lets_out,
            parameters=settings.ledger(),
            file=ShareFile(state.path),
            stand_ins_max=settings.share.stand_ins_max,
        )
        self.settling = SettlingDesk(self)
        self.tracing = self.data_path.traces = TraceDesk(self)
        self.failover = FailoverDesk(
            settings.failover,
            address=settings.failover.advertise or settings.broker.advertised,
            folder=state.path,
            discovery=self.discovery,
            counters=self.data_path.counters,
            keeper=self.guide,
            may_tell=lambda filter_: bool(self.border.asked_for(filter_)),
            handle=handle,
        )
        self.metrics = self._metrics_stream(tape, state)
        self.prepared = self._prepared_sessions()
        self.datagrams = self._datagram_desk(tasks)
        self.presence = Presence(
            broker=settings.broker.id,
            url=settings.broker.reached_at,
            control=self.control_link,
            data=self.data_link,
            others=self._looks_links,
            changed=self._on_presence,
        )
        self._state = state
        self._tasks = tasks

    def start(self) -> None:
        """Connect to our broker and to the neighbours."""
        self.control_link.subscribe(self._control.subscriptions())
        self.data_link.subscribe([self._frames_subscription(), self.marks.subscription()])
        self.cover.start()
        self.data_path.custody.resume()
        self.sharing.resume()
        self.cover.change(self.forwarder.cover_change())
        self._tasks.create_task(self._tend_custody(), name="custody")
        self._tasks.create_task(self.discovery.run(), name="discovery")
        self._tasks.create_task(self.control_link.run(), name="control connection")
        self._tasks.create_task(self.data_link.run(), name="data connection")
        if self.retained is not None:
            self._start_retained(self.retained)
        self._tasks.create_task(self._report_drops(), name="drop reports")
        if self.metrics is not None:
            self._tasks.create_task(self.metrics.run(), name="metrics stream")
            self._tasks.create_task(self.metrics.replay.run(), name="metrics replay")
        if self.settings.failover.enabled:
            self._tasks.create_task(self.failover.run(), name="failover")
            self._tasks.create_task(self.prepared.run(), name="prepared sessions")
        if self.datagrams is not None:
            self._tasks.create_task(self.datagrams.run(), name="datagrams")
        self.dialler.start()
        if self.settings.topology.mode == "auto":
            self._tasks.create_task(self.arranger.run(), name="topology")
        if self.keys is not None:
            self._tasks.create_task(self.keys.run(), name="keys")
        if self.settings.mesh.core == "placed":
            self._tasks.create_task(self._follow_placement(), name="core placement")

    def _retained(self, state: StateDir) -> Retained:
        return Retained(
            self.settings.retained,
            self_id=self.settings.broker_id,
            epoch=lambda: self.epoch,
            federation=self.settings.federation,
            folder=state.path,
            looks_id=self._own.client_id("looks"),
            hears_log=self.settings.discovery.log_topics,
            border=self.border,
            land=self._land,
            gates=self.gates,
            covered=self.covers,
            send=self.traffic.send,
        )

    def _metrics_stream(self, tape: Tape | None, state: StateDir) -> MetricsStream | None:
        if tape is None:
            return None
        folder = state.path / "metrics"
        stream = MetricsStream(self, self.settings.metrics, tape=tape, folder=folder)
        self.traffic.peers = stream.peers
        return stream

    def _datagram_desk(self, tasks: asyncio.TaskGroup) -> "DatagramDesk | None":
        if not self.settings.uses_datagrams:
            return None
        from federator.runtime.datagram_desk import DatagramDesk  # noqa: PLC0415 - an extra

        assert self.trust is not None, "datagrams want keys"
        desk = self.data_path.outgoing.datagrams = DatagramDesk(self, self.trust, tasks)
        return desk

    def _key_keeper(self, trust: Trust) -> KeyKeeper:
        return KeyKeeper(
            self.settings.broker_id,
            trust,
            neighbours=lambda: [each.conn for each in self.node.links.up.values()],
            send=self.send,
        )

    def _start_retained(self, retained: Retained) -> None:
        retained.load()
        link = self._own.link("looks", retained.looks, clean_start=True)
        retained.looks.start(link, self.data_link)
        retained.looks.outgoing = self.renaming.outgoing if self.renaming is not None else None
        retained.broker.local = self.data_link
        self._tasks.create_task(link.run(), name="retained connection")
        self._tasks.create_task(retained.run(), name="retained values")

    def _prepared_sessions(self) -> PreparedSessions:
        custody = self.data_path.custody
        around = Around(
            connected_here=self.discovery.is_connected,
            filters_here=self.discovery.filters_of,
            connected_elsewhere=self.node.failover.is_connected_elsewhere,
            caught_up=self.marks.caught_up,
            in_federation=self.border.asked_for,
            expect=lambda filters, since_us: custody.expect(filters, since_us=since_us),
            fetch_again=lambda filters, since_us: custody.fetch_again(filters, since_us=since_us),
        )
        return PreparedSessions(
            self.settings.failover, lambda: endpoint_of(self.settings.broker), around
        )

    def covers(self, filter_: str) -> bool:
        """Whether what our clients publish below a filter that others want comes to us."""
        return self.forwarder.wants(filter_) and self.data_link.subscribed

    async def _follow_placement(self) -> None:
        mesh = self.settings.mesh
        follower = PlacedPriority(self.settings.broker.priority, hold_ms=mesh.core_hold_ms)
        file = PriorityFile(self._state.path)
        while True:
            priority = follower.on_read(file.read(), now_ms=monotonic_ms())
            if priority is not None:
                _log.info("core.priority", priority=priority)
                self.driver.handle(PriorityChanged(priority))
            await asyncio.sleep(mesh.core_check_ms / 1000)

    def neighbour_at(self, link: MqttLink) -> BrokerId | None:
        """The neighbour at the other end of ``link``, if it said so."""
        neighbour = self.neighbours.having(link)
        conn = neighbour.conn if neighbour is not None else None
        connection = self.node.links.connections.get(conn) if conn is not None else None
        return connection.neighbour if connection is not None else None

    async def _report_drops(self) -> None:
        reports = DropReports()
        while True:
            await asyncio.sleep(LOOK_S)
            links = [link for n in self.neighbours.all for link in n.links]
            reports.look([self.data_link, *links], now_ms=monotonic_ms())

    async def _tend_custody(self) -> None:
        while True:
            await asyncio.sleep(TEND_S)
            for filter_, route in self.data_path.custody.tend():
                self.forwarder.set_route(filter_, route)
            self.cover.change(self.forwarder.cover_change())

    def tell(self, neighbour: BrokerId, message: RepairRequest | DatagramOffer) -> None:
        """Send a neighbour what is no business of the node."""
        known = self.node.links.neighbours.get(neighbour)
        if known and known.conn:
            self.send(known.conn, message)

    def send(self, conn: ConnId, message: Message) -> None:
        """Send a neighbour a control message, if the connection is still there."""
        link = self.neighbours.control_of(conn)
        if link is not None:
            self.traffic.send(link, message)

    async def leave(self) -> None:
        """Tell the neighbours, and let that out of the door."""
        self.loops.stop()
        self.data_path.intake.flush()
        if self.datagrams is not None:
            self.datagrams.leave()
        self.data_path.custody.leave()
        self.guide.withdraw(self.control_link)
        self.health.withdraw()
        self.driver.handle(LeaveRequested())
        await self._hand_over()
        if self.metrics is not None:
            await self.metrics.leave()
        links = [link for n in self.neighbours.all for link in n.links]
        async with asyncio.timeout(LEAVE_SECONDS_MAX):
            await asyncio.gather(*(link.close() for link in links))

    async def _hand_over(self) -> None:
        """Let our broker have what we are handing to it, and the marker behind: or it comes twice.

        Mosquitto takes twenty messages at a time, so a burst needs a moment.
        """
        for _ in range(HAND_OVER_POLLS):
            if not (self.data_link.connected and self.data_link.unacknowledged):
                return
            await asyncio.sleep(HAND_OVER_POLL_S)

    def renew_epoch(self, epoch: Epoch) -> None:
        """Our id is known under a newer epoch: go on with this one, also after a restart."""
        self.epoch = epoch
        self._state.save_epoch(epoch)
        self.data_path.renew_epoch(epoch)
        self.sharing.renew_epoch(epoch)
        self.settling.settling.renew(epoch)

    # -- our own broker -----------------------------------------------------------------------

    def _on_presence(self, up: bool) -> None:
        if self.metrics is not None:
            self.metrics.happenings.note("broker_up" if up else "broker_down")
        self.guide.publish(self.control_link)
        self.driver.handle(LocalBrokerUp() if up else LocalBrokerDown())
        if up:
            self.cohabitants.on_local_up(monotonic_ms())
            self.data_path.custody.on_local_up()

    def _end_with(self, error: Exception) -> None:
        async def fail() -> None:
            raise error

        self._tasks.create_task(fail(), name="give way")

    def on_data(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        """Publications of our clients, and frames of other agents."""
        self._busy_poll.on_data()
        if self.cover.sorting:
            chunk, publishes = self.cover.once(chunk, publishes)
        if self.loops.watching:
            chunk, publishes = self.loops.sift(chunk, publishes)
        self._enter(chunk, publishes)

    def _enter(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        if self.renaming is not None:
            chunk, publishes = self.renaming.outgoing(chunk, publishes)
        if publishes:
            self.data_path.on_publishes(self.data_link, chunk, publishes)

    def _land(self, run: bytes) -> bytes:
        """What is published on our broker instead of ``run``, which arrived."""
        if self.renaming is not None:
            run = self.renaming.inward(run)
        self.loops.note(run)
        return run

    def _interest_changed(self, added: frozenset[str], removed: frozenset[str]) -> None:
        self.forwarder.widened = self.discovery.widened
        added, removed = self.border.change(added, removed)
        self.driver.handle(LocalFiltersChanged(added, removed))
        self.sharing.on_interest(added, removed)
        if self.retained is not None:
            self.retained.on_interest(added, removed, widened=self.discovery.widened)

    def _members_changed(self, changed: MembersChanged) -> None:
        self.sharing.on_members(changed.members, watched=changed.watched)

    # -- connections ------------------------------------------------------------------------------

    def _own_links(self) -> list[MqttLink]:
        """Our connections to our broker besides the control connection."""
        return [self.data_link, *self.sharing.stand_in_links, *self._looks_links()]

    def _looks_links(self) -> list[MqttLink]:
        """The connection that looks at what the broker retains, where there is one."""
        link = self.retained.looks.link if self.retained is not None else None
        return [link] if link is not None else []

    def _frames_subscription(self) -> TopicFilter:
        return TopicFilter(
            self.data_path.data_topic,
            max_qos=QoS.AT_LEAST_ONCE,
            no_local=True,
            retain_handling=RetainHandling.SEND_NEVER,
        )

    def _will(self, conn: ConnId) -> Will:
        return self.traffic.will(Bye(self.settings.broker_id, self.node.links.epoch, conn))


def _border(settings: Settings) -> Border:
    rules = settings.rules
    edge = EdgeRules(imports=rules.imports, exports=rules.exports, keep=rules.keep)
    return Border(edge, Denied(rules.deny), Renames(rules.pairs))
