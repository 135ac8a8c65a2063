"""One agent: its parts, how they start and how they leave.

This module decides nothing. The protocol node decides, and ``driver`` carries out its decisions;
``control_parts``, ``data_parts`` and ``services`` make the parts.

Source: docs/ARCHITECTURE.md.
"""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import chain

from federator.config.settings import Settings
from federator.protocol.discovery import DiscoveryRecord
from federator.protocol.events import Event, LeaveRequested
from federator.protocol.leaves.stamps import StampBook
from federator.protocol.telemetry.frame_events import FrameEventBuffer
from federator.protocol.types import BrokerId
from federator.runtime.agent.control_parts import ControlParts
from federator.runtime.agent.data_parts import DataParts
from federator.runtime.agent.driver import Driver
from federator.runtime.agent.own_connections import ControlConnection, DataConnection
from federator.runtime.agent.services import Services
from federator.runtime.custody.stores import CustodyStores
from federator.runtime.data.drops import LOOK_S, DropReports
from federator.runtime.data.former_session import FormerSession
from federator.runtime.leaves.role import OtherAgent, Role
from federator.runtime.links.outboxes import OwnOutboxes
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Dispatch, Part
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.mqtt.wire import inbound_of
from federator.runtime.process.clocks import beat, monotonic_ms
from federator.runtime.storage.state_dir import StateDir

LEAVE_SECONDS_MAX = 1.0
HAND_OVER_POLLS = 500
HAND_OVER_POLL_S = 0.01


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
        # For roles: see ``leaves.role.BrokerAgent``.
        self.node, self.traffic = control.node, control.traffic
        self.connections = control.connections
        self.forwarder, self.policy, self.path = data.forwarder, data.policy, data.path
        self.link_policies = data.link_policies
        self.parts = self._list_parts()
        self._driver = Driver(control, data, services)

    def start(self) -> None:
        """Connect to our broker and to the neighbours."""
        control, data, services = self.control, self.data, self.services
        parts = self.parts
        observer = ControlConnection(
            Dispatch(parts), control.traffic, services.discovery, data.loops, services.presence
        )
        outboxes = OwnOutboxes(
            federation=self.settings.federation,
            self_id=self.settings.broker_id,
            traffic=control.traffic,
            on_messages=observer.hear,
            on_frames=data.path.on_frames,
        )
        control.link.observe(observer)
        control.connections.fetch(outboxes.on_fetched)
        control.link.subscribe(
            topic_filter for part in parts for topic_filter in part.subscriptions
        )
        self.data_connection = DataConnection(data, services.presence)
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
        return [self.control.link, *self.services.own_links()]

    # -- for roles: see ``leaves.role.BrokerAgent`` ----------------------------------------------

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

    def _list_parts(self) -> list[Part]:
        """All parts, in the order in which those that share a topic are called, and leave."""
        connections = Part(
            tasks={
                "control connection": self.control.link.run,
                "data connection": self._keep_data_connection,
                "drop reports": self._report_drops,
            },
        )
        services = self.services
        # Once we subscribe to our broker's log, it reports our other subscriptions.
        log = [services.discovery.part(), services.echo.part(publishes=self.settings.minds_broker)]
        others = (self.control.parts(), self.data.parts(), services.parts())
        return [*log, connections, *chain.from_iterable(others)]

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

    async def _report_drops(self) -> None:
        reports = DropReports()
        while True:
            await beat(LOOK_S)
            links = [link for n in self.control.connections.all for link in n.links]
            reports.look([self.control.data_link, *links], now_ms=monotonic_ms())

    # -- leaving ----------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Send byes, and wait until those and the data for our broker are on their way."""
        control = self.control
        for part in self.parts:
            part.leave()
        control.handle(LeaveRequested())
        await self._hand_over()
        for part in self.parts:
            if part.end is not None:
                await part.end()
        links = [link for n in control.connections.all for link in n.links]
        try:
            async with asyncio.timeout(LEAVE_SECONDS_MAX):
                await asyncio.gather(*(link.close() for link in links))
        finally:
            await self._hand_over()
            self.data.path.leave()  # nothing arrives any longer, so this records all stamps

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
