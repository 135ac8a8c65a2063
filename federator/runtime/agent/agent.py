"""One agent: its parts, how they start and how they leave.

This module decides nothing. The protocol node decides, and ``driver`` carries out its decisions;
``control_parts``, ``data_parts`` and ``services`` make the parts.

Source: docs/ARCHITECTURE.md.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import get_args

from mqtt5 import PublishPacket, QoS, TopicFilter

from federator.config.settings import Settings
from federator.protocol.data.delivery import Delivery
from federator.protocol.discovery import LOG_TOPICS, SYS_TOPICS, DiscoveryRecord
from federator.protocol.discovery.log_lines import ERROR_TOPIC
from federator.protocol.events import Event, LeaveRequested, Received
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.leaves.stamps import StampBook
from federator.protocol.messages import control as msg
from federator.protocol.node import Node
from federator.protocol.policy.broker_policy import BrokerPolicy
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.telemetry.frame_events import FrameEventBuffer
from federator.protocol.types import BrokerId
from federator.runtime.agent.control_parts import ControlParts
from federator.runtime.agent.data_parts import DataParts
from federator.runtime.agent.driver import Driver
from federator.runtime.agent.own_connections import ControlConnection, DataConnection
from federator.runtime.agent.parts import Dispatch, Part
from federator.runtime.agent.placed_core import follow_placement
from federator.runtime.agent.services import Services
from federator.runtime.custody.stores import CustodyStores
from federator.runtime.data.busy_poll import BusyPoll
from federator.runtime.data.data_path import DataPath
from federator.runtime.data.drops import LOOK_S, DropReports
from federator.runtime.data.former_session import FormerSession
from federator.runtime.doctor.log_kinds import LOG_LINES
from federator.runtime.leaves.role import OtherAgent, Role
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.links.neighbour_links import NeighbourLinks
from federator.runtime.links.outboxes import OwnOutboxes
from federator.runtime.loops.watch import NOTICE_TOPIC, STATE_FILTER
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.mqtt.wire import inbound_of
from federator.runtime.process.clocks import beat, monotonic_ms
from federator.runtime.storage.state_dir import StateDir
from federator.runtime.telemetry.state import SYS_TOPICS as COUNTED_SYS_TOPICS

LEAVE_SECONDS_MAX = 1.0
HAND_OVER_POLLS = 500
HAND_OVER_POLL_S = 0.01
TEND_S = 1.0


class Agent:
    """The agent of one broker; to roles a ``BrokerAgent``."""

    def __init__(
        self,
        settings: Settings,
        state: StateDir,
        tasks: asyncio.TaskGroup,
        stamp_book: StampBook | None = None,
        role: Role | None = None,
        other: OtherAgent | None = None,
    ) -> None:
        role = role or Role()
        self.settings = settings
        self._state = state
        self._tasks = tasks
        stores = CustodyStores(state.path / "custody", settings.custody)
        frame_events = FrameEventBuffer() if settings.metrics.enabled else None
        self.control = control = ControlParts(
            settings, state, tasks, is_new=stores.owed.is_new, handle=self._handle
        )
        turn = None if other is None else other.turn
        book = stamp_book or StampBook()
        self.data = data = DataParts(
            settings, state, tasks, stores, control, frame_events, book, role, turn
        )
        self.services = services = Services(control, data, self._end_with, role, other)
        self._driver = Driver(control, data, services)

    def start(self) -> None:
        """Connect to our broker and to the neighbours."""
        control, data, services = self.control, self.data, self.services
        parts = list(self._parts())
        observer = ControlConnection(
            Dispatch(parts), control.traffic, services.discovery, data.loops, services.presence
        )
        outboxes = OwnOutboxes(
            federation=self.settings.federation,
            self_id=self.settings.broker_id,
            traffic=control.traffic,
            said=observer.hear,
            frames=data.path.on_frames,
        )
        control.link.observe(observer)
        control.connections.fetch(outboxes.hear)
        control.link.subscribe(
            topic_filter for part in parts for topic_filter in part.subscriptions
        )
        self.data_connection = DataConnection(
            busy_poll=BusyPoll(self.settings.data.busy_poll_us),
            cover=data.cover,
            data_path=data.path,
            enter=data.enter,
            loops=data.loops,
            marks=data.marks,
            presence=services.presence,
            retained=data.retained,
            spare_time=data.spare_time,
        )
        control.data_link.observe(self.data_connection)
        topics = (data.path.data_topic, data.marks.topic)
        control.data_link.subscribe(live_filter(topic, no_local=True) for topic in topics)
        data.cover.start()
        services.serving.decides.start()
        data.path.resume()
        data.sharing.resume()
        data.follow_routes()
        if data.retained is not None:
            data.retained.load()
        for part in parts:
            for name, task in part.tasks.items():
                self._tasks.create_task(task(), name=name)
        control.connections.start()

    def follow(
        self, settings: Settings, endpoints: Mapping[str, Endpoint], *, returns: bool = True
    ) -> None:
        """Apply the rules and neighbours of ``settings``, in this turn of the loop.

        ``endpoints`` come from ``NeighbourLinks.endpoints_for``. The rules hold before any new
        link. ``returns``: a leaf switches to its preferred hub at once, not after
        ``return_after_s``.
        """
        before, self.settings = self.settings, settings
        if settings.rules != before.rules:
            self.services.follow_edge(settings.rules)
        self.data.follow_link_rules(settings)
        self.control.connections.follow(settings, endpoints)
        self.services.serving.follow(settings, returns=returns)

    def own_links(self) -> list[MqttLink]:
        """All our connections to our broker."""
        return [self.control.link, *self.services.own_links()]

    # -- for roles: see ``leaves.role.BrokerAgent`` ----------------------------------------------

    @property
    def node(self) -> Node:
        return self.control.node

    @property
    def forwarder(self) -> Forwarder:
        return self.data.forwarder

    @property
    def policy(self) -> BrokerPolicy:
        return self.data.policy

    @property
    def link_policies(self) -> LinkPolicies:
        return self.data.link_policies

    @property
    def path(self) -> DataPath:
        return self.data.path

    @property
    def delivery(self) -> Delivery:
        return self.data.path.delivery

    @property
    def connections(self) -> NeighbourLinks:
        return self.control.connections

    @property
    def traffic(self) -> ControlTraffic:
        return self.control.traffic

    @property
    def words_refused(self) -> int:
        trust = self.control.trust
        return 0 if trust is None else sum(trust.words.refused.values())

    def ask(self, added: Iterable[str], removed: Iterable[str]) -> None:
        self.services.ask(added, removed)

    def ask_for_nothing(self) -> None:
        self.services.ask((), self.services.discovery.told)

    def bring_again(self, run: bytes) -> None:
        self.data.enter(memoryview(run), inbound_of(run))
        self.data.path.flush()

    def call_roll(self) -> None:
        self.control.outboxes.call_roll()

    def follow_link_rules(self, settings: Settings) -> None:
        self.settings = settings
        self.data.follow_link_rules(settings)

    @property
    def subscribed(self) -> bool:
        return self.control.data_link.subscribed

    def look(self) -> None:
        if not self.services.presence.up:
            self.services.presence.update()

    def is_ready(self) -> bool:
        return self.services.ready.why_not() is None and bool(self.control.node.links.up)

    def served_by(self) -> BrokerId | None:
        choice = self.services.serving.decides.choice
        return None if choice is None else choice.hub

    def stamp(self) -> None:
        self.data.stamps.stamping = True

    def end_handover(self) -> None:
        self.data.stamps.turn = None

    def hold(self) -> None:
        self.data_connection.hold()

    def release(self) -> None:
        self.data_connection.release()

    def record(self) -> DiscoveryRecord:
        return self.services.discovery.record()

    # -- the parts --------------------------------------------------------------------------------

    def _parts(self) -> Iterator[Part]:
        """All parts, in the order in which those that share a topic are called."""
        discovery = self.services.discovery
        yield from self._connection_parts()
        yield from self._neighbour_parts()
        yield from self._client_parts()
        yield from self._optional_parts()
        # Last: all other parts get a log line before it changes what our clients want.
        topics = (*LOG_TOPICS, *SYS_TOPICS, discovery.registrations_topic)
        yield Part(topics=dict.fromkeys(topics, discovery.on_publish))

    def _connection_parts(self) -> Iterator[Part]:
        """Our connections to our broker, and the parts that watch them and bridges."""
        services, loops = self.services, self.data.loops
        discovery, echo = services.discovery, services.echo
        # First: once we subscribe to our broker's log, it reports our other subscriptions.
        yield Part(
            # At the QoS of the log: in order with its lines, and counted like them.
            subscriptions=[*discovery.subscriptions(), live_filter(echo.topic)],
            topics={echo.topic: echo.on_echo},
            tasks={"custody": self._tend_custody, "discovery": discovery.run},
        )
        if self.settings.minds_broker:
            yield Part(tasks={"marks": echo.run})
        yield Part(
            topics={ERROR_TOPIC: services.presence.on_log},
            tasks={
                "control connection": self.control.link.run,
                "data connection": self._keep_data_connection,
                "drop reports": self._report_drops,
            },
        )
        yield Part(
            subscriptions=loops.subscriptions(),
            topics=dict.fromkeys((STATE_FILTER, NOTICE_TOPIC), loops.on_publish),
        )

    def _neighbour_parts(self) -> Iterator[Part]:
        """The parts that receive messages from other agents."""
        control, data, services = self.control, self.data, self.services
        settling, tracing, guard = services.settling, data.tracing, services.guard
        marker, handle = data.path.marker_topic, control.handle
        yield Part(
            subscriptions=control.traffic.subscriptions(),
            messages=dict.fromkeys(get_args(msg.NodeMessage), lambda said: handle(Received(said))),
        )
        yield Part(
            subscriptions=[live_filter(settling.topic, QoS.AT_MOST_ONCE, no_local=True)],
            topics={settling.topic: settling.on_question},
            messages=dict.fromkeys((msg.Wave, msg.Echo), settling.on_message),
        )
        yield Part(
            subscriptions=[tracing.subscription()],
            topics={tracing.topic: tracing.on_order},
            messages={msg.TraceEcho: tracing.on_echo},
        )
        yield Part(messages={msg.TreeTorn: services.plans.on_torn})
        yield Part(
            messages={msg.OutboxTaken: control.outboxes.on_taken},
            tasks={"outboxes": control.outboxes.run},
        )
        yield Part(
            subscriptions=[live_filter(guard.topic, QoS.AT_MOST_ONCE, no_local=True)],
            topics={guard.topic: guard.on_publish},
        )
        yield Part(
            subscriptions=[TopicFilter(marker)],
            topics={marker: self._on_marker},
            messages={msg.RepairRequest: data.path.on_request},
        )

    def _on_marker(self, packet: PublishPacket) -> None:
        """Take an earlier process's marker. Once started, unsubscribe: we need none of our own."""
        if self.data.path.started:
            self.control.link.unsubscribe([packet.topic])
        else:
            self.data.path.on_marker(packet.payload)

    def _client_parts(self) -> Iterator[Part]:
        """The parts that serve gateways, operators and clients."""
        services, guide = self.services, self.services.guide
        guide_topics = (guide.sessions_topic, guide.drain_topic)
        yield Part(
            subscriptions=[live_filter(topic, no_local=True) for topic in guide_topics],
            topics=dict.fromkeys(guide_topics, guide.on_publish),
        )
        pages = services.pages
        yield Part(subscriptions=[pages.subscription()], topics={pages.topic: pages.on_question})
        fetches = services.fetches
        yield Part(
            subscriptions=[live_filter(fetches.topic, no_local=True)],
            topics={fetches.topic: fetches.on_question},
            tasks={"gateways' fetches": fetches.run},
        )
        yield Part(tasks={"health": services.health.run, "link loads": services.link_loads.run})
        if services.home_assistant.needed:
            yield Part(tasks={"home assistant": services.home_assistant.run})
        if self.settings.discovery.log_topics:
            watch = services.log_watch
            yield Part(topics=dict.fromkeys(LOG_LINES, watch.on_line), tasks={"log": watch.run})
        if self.settings.security != "open" and self.settings.minds_broker:
            yield Part(tasks={"strangers": services.strangers.run})
        if self.settings.failover.enabled:
            failover, prepared = services.failover, services.prepared
            yield Part(tasks={"failover": failover.run, "prepared sessions": prepared.run})

    def _optional_parts(self) -> Iterator[Part]:
        """The parts that exist only while their feature is on."""
        control, settings = self.control, self.settings
        retained, keys = self.data.retained, control.keys
        metrics = self.services.metrics
        if retained is not None:
            scanner, letters = retained.scanner, (msg.RetainedRequest, msg.RetainedLetter)
            yield Part(
                subscriptions=[scanner.mark_filter()],
                topics=dict.fromkeys((*LOG_TOPICS, scanner.mark_topic), scanner.on_control),
                messages=dict.fromkeys(letters, retained.on_message),
                tasks={"retained connection": scanner.run, "retained values": retained.run},
            )
        if metrics is not None:
            yield Part(
                subscriptions=metrics.subscriptions(),
                topics={
                    **dict.fromkeys(COUNTED_SYS_TOPICS, metrics.state.on_sys),
                    metrics.replay.topic: metrics.replay.on_ask,
                },
                tasks={"metrics stream": metrics.run, "metrics replay": metrics.replay.run},
            )
        if self.data.spans is not None:
            yield Part(tasks={"spans": self.data.spans.run})
        for transport in self.data.transports.all:
            yield Part(messages=transport.messages, tasks={transport.section: transport.run})
        if keys is not None:
            yield Part(messages={msg.Revoked: keys.on_revoked}, tasks={"keys": keys.run})
        if settings.steer.follow:
            plans = self.services.plans
            yield Part(
                subscriptions=[plans.subscription()],
                topics={plans.topic: plans.on_publish},
                tasks={"loads": self.services.load_teller.run},
            )
        if settings.topology.mode == "auto":
            yield Part(tasks={"topology": control.arranger.run})
        if settings.mesh.core == "placed":
            changed, planned = control.handle, self.services.plans.priority
            follow = partial(follow_placement, settings, planned=planned, changed=changed)
            yield Part(tasks={"core placement": follow})

    async def _keep_data_connection(self) -> None:
        """Run the data connection, beside the one that drains a session of a former client id."""
        state, link, former = self._state, self.control.data_link, None
        if state.former_session.exists():
            session = FormerSession(
                make_link=self.control.own_broker.former,
                federation=self.settings.federation,
                data_path=self.data.path,
                take=self.data_connection.take,
                heir=self.data_connection,
                stands=lambda: link.subscribed,
                forget=lambda: state.former_session.unlink(missing_ok=True),
            )
            former = self._tasks.create_task(session.empty(), name="former session")
            await session.found.wait()
        await link.run()
        if former is not None:
            former.cancel()

    async def _tend_custody(self) -> None:
        data = self.data
        while True:
            await beat(TEND_S)
            data.path.tend()
            data.follow_routes()

    async def _report_drops(self) -> None:
        reports = DropReports()
        while True:
            await beat(LOOK_S)
            links = [link for n in self.control.connections.all for link in n.links]
            reports.look([self.control.data_link, *links], now_ms=monotonic_ms())

    # -- leaving ----------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Send byes, and wait until those and the data for our broker are on their way."""
        control, data, services = self.control, self.data, self.services
        data.loops.stop()
        data.path.flush()
        data.transports.leave()
        data.path.leave()
        services.guide.withdraw()
        services.health.withdraw()
        services.home_assistant.withdraw()
        control.handle(LeaveRequested())
        await self._hand_over()
        if services.metrics is not None:
            await services.metrics.leave()
        if data.spans is not None:
            await data.spans.leave()
        links = [link for n in control.connections.all for link in n.links]
        try:
            async with asyncio.timeout(LEAVE_SECONDS_MAX):
                await asyncio.gather(*(link.close() for link in links))
        finally:
            await self._hand_over()
            data.path.leave()  # nothing arrives any longer, so this records all stamps

    async def _hand_over(self) -> None:
        """Wait until our broker acknowledged our data and the marker: else it gets duplicates.

        Mosquitto takes twenty messages at a time, so a burst needs a moment.
        """
        link = self.control.data_link
        for _ in range(HAND_OVER_POLLS):
            if not (link.connected and link.unacknowledged):
                return
            await asyncio.sleep(HAND_OVER_POLL_S)

    def _handle(self, event: Event) -> None:
        self._driver.handle(event)

    def _end_with(self, error: Exception) -> None:
        async def fail() -> None:
            raise error

        self._tasks.create_task(fail(), name="give way")
