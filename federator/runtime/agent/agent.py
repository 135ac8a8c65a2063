"""One agent: its parts, how they are started, and how they leave.

It decides nothing. The protocol node decides, and ``driver`` has it carried out; the parts are
made in ``control_parts``, ``data_parts`` and ``services``.

Source: docs/ARCHITECTURE.md.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import get_args

from mqtt5 import QoS, TopicFilter

from federator.config import Settings
from federator.protocol.discovery import LOG_TOPICS, SYS_TOPICS
from federator.protocol.discovery.log_lines import ERROR_TOPIC
from federator.protocol.events import LeaveRequested, Received
from federator.protocol.messages.control import (
    DatagramOffer,
    Echo,
    NodeMessage,
    RepairRequest,
    RetainedLetter,
    RetainedRequest,
    Revoked,
    TraceEcho,
    Wave,
)
from federator.protocol.telemetry.frame_events import FrameEventBuffer
from federator.protocol.types import Epoch
from federator.runtime.agent.control_parts import ControlParts
from federator.runtime.agent.data_parts import DataParts
from federator.runtime.agent.driver import Ports
from federator.runtime.agent.parts import Part
from federator.runtime.agent.priority_file import follow_placement
from federator.runtime.agent.services import Services
from federator.runtime.custody.stores import CustodyStores
from federator.runtime.data.drops import LOOK_S, DropReports
from federator.runtime.data.former_session import FormerSession
from federator.runtime.loops.watch import NOTICE_TOPIC, STATE_FILTER
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.storage.state_dir import StateDir
from federator.runtime.telemetry.state import SYS_TOPICS as COUNTED_SYS_TOPICS
from federator.runtime.trust.guarding import Trust

LEAVE_SECONDS_MAX = 1.0
HAND_OVER_POLLS = 500
HAND_OVER_POLL_S = 0.01
TEND_S = 1.0


class Agent:
    """The agent of one broker.

    Attributes:
        control: The node, and the connections by which it is heard.
        data: What carries publications.
        services: What serves gateways, operators and clients besides.
    """

    def __init__(self, settings: Settings, state: StateDir, tasks: asyncio.TaskGroup) -> None:
        self.settings = settings
        self._state = state
        self._tasks = tasks
        client_token = state.client_token()
        epoch = state.next_epoch()
        trust = None if settings.security == "open" else Trust(settings, state.path)
        custody = settings.custody
        stores = CustodyStores(
            state.path / "custody",
            keep_s=custody.keep_s,
            bytes_max=custody.bytes_max,
            fsync=custody.fsync,
        )
        frame_events = FrameEventBuffer() if settings.metrics.enabled else None
        is_new = stores.owed.is_new
        self.control = control = ControlParts(
            settings,
            state,
            tasks,
            trust=trust,
            epoch=epoch,
            client_token=client_token,
            is_new=is_new,
        )
        self.data = data = DataParts(
            settings, state, tasks, stores=stores, control=control, frame_events=frame_events
        )
        self.services = services = Services(
            settings,
            state,
            control=control,
            data=data,
            frame_events=frame_events,
            end=self._end_with,
        )
        ports = Ports(
            traffic=control.traffic,
            connections=control.connections,
            dialler=control.dialler,
            arranger=control.arranger,
            data_path=data.path,
            cover=data.cover,
            sharing=data.sharing,
            settling=services.settling,
            guide=services.guide,
            failover=services.failover,
            prepared=services.prepared,
            renew_epoch=self._renew_epoch,
            datagrams=data.datagrams,
            keys=control.keys,
            retained=data.retained,
            metrics=services.metrics,
        )
        control.driver.start(ports)

    def start(self) -> None:
        """Connect to our broker and to the neighbours."""
        control, data, services = self.control, self.data, self.services
        parts = self._parts()
        control.control.start(
            parts,
            traffic=control.traffic,
            discovery=services.discovery,
            loops=data.loops,
            presence=services.presence,
        )
        control.data.start(
            data.path,
            cover=data.cover,
            marks=data.marks,
            loops=data.loops,
            renaming=data.renaming,
            retained=data.retained,
            presence=services.presence,
        )
        data.cover.start()
        data.path.resume()
        data.sharing.resume()
        data.cover.change(data.forwarder.cover_change())
        if data.retained is not None:
            data.retained.load()
        for part in parts:
            for name, task in part.tasks.items():
                self._tasks.create_task(task(), name=name)
        control.dialler.start()

    # -- the parts --------------------------------------------------------------------------------

    def _parts(self) -> Sequence[Part]:
        """All parts, in the order in which they hear of a topic that several take."""
        return [
            *self._connection_parts(),
            *self._neighbour_parts(),
            *self._client_parts(),
            *self._optional_parts(),
            # Last: a line of the log that changes what our clients want was heard by all others.
            Part(
                topics=dict.fromkeys(
                    (*LOG_TOPICS, *SYS_TOPICS, self.services.discovery.registrations_topic),
                    self.services.discovery.on_publish,
                )
            ),
        ]

    def _connection_parts(self) -> list[Part]:
        """Our connections to our broker, and the parts that hear of them and of bridges."""
        control, services, loops = self.control, self.services, self.data.loops
        discovery, echo = services.discovery, services.echo
        return [
            # First: once our broker's log is subscribed, it reports our other subscriptions.
            Part(
                # At the QoS of the log's: in order with its lines, and counted like them.
                subscriptions=[*discovery.subscriptions(), live_filter(echo.topic)],
                topics={echo.topic: echo.on_echo},
                tasks={
                    "custody": self._tend_custody,
                    "discovery": discovery.run,
                    "marks": echo.run,
                },
            ),
            Part(
                tasks={
                    "control connection": control.control.link.run,
                    "data connection": self._keep_data_connection,
                    "drop reports": self._report_drops,
                }
            ),
            Part(topics={ERROR_TOPIC: services.presence.on_log}),
            Part(
                subscriptions=loops.subscriptions(),
                topics=dict.fromkeys((STATE_FILTER, NOTICE_TOPIC), loops.on_publish),
            ),
        ]

    def _neighbour_parts(self) -> list[Part]:
        """The parts that take what other agents say."""
        control, data, services = self.control, self.data, self.services
        settling, tracing, guard = services.settling, data.tracing, services.guard
        marker = data.path.marker_topic
        handle = control.driver.handle
        return [
            Part(
                subscriptions=control.traffic.subscriptions(),
                messages=dict.fromkeys(
                    get_args(NodeMessage), lambda message: handle(Received(message))
                ),
            ),
            Part(
                subscriptions=[live_filter(settling.topic, no_local=True)],
                topics={settling.topic: settling.on_question},
                messages=dict.fromkeys((Wave, Echo), settling.on_message),
            ),
            Part(
                subscriptions=[tracing.subscription()],
                topics={tracing.topic: tracing.on_order},
                messages={TraceEcho: tracing.on_echo},
            ),
            Part(
                subscriptions=[live_filter(guard.topic, QoS.AT_MOST_ONCE, no_local=True)],
                topics={guard.topic: guard.on_publish},
            ),
            Part(
                subscriptions=[TopicFilter(marker)],
                topics={marker: lambda packet: data.path.on_marker(packet.payload)},
                messages={RepairRequest: data.path.on_request},
            ),
        ]

    def _client_parts(self) -> list[Part]:
        """The parts that serve gateways, operators and clients."""
        services, failover = self.services, self.settings.failover.enabled
        signed = self.settings.security != "open"
        guide, health = services.guide, services.health
        tasks = {"failover": services.failover.run, "prepared sessions": services.prepared.run}
        guide_topics = (guide.sessions_topic, guide.drain_topic)
        return [
            Part(
                subscriptions=[live_filter(topic, no_local=True) for topic in guide_topics],
                topics=dict.fromkeys(guide_topics, guide.on_publish),
            ),
            Part(tasks={"health": health.run}),
            Part(tasks={"strangers": services.strangers.run} if signed else {}),
            Part(tasks=tasks if failover else {}),
        ]

    def _optional_parts(self) -> list[Part]:
        """The parts that exist while their feature is on."""
        control, settings = self.control, self.settings
        retained, datagrams, keys = self.data.retained, self.data.datagrams, control.keys
        metrics = self.services.metrics
        parts: list[Part] = []
        if retained is not None:
            scanner = retained.scanner
            parts.append(
                Part(
                    subscriptions=[scanner.mark_filter()],
                    topics=dict.fromkeys((*LOG_TOPICS, scanner.mark_topic), scanner.on_control),
                    messages=dict.fromkeys((RetainedRequest, RetainedLetter), retained.on_message),
                    tasks={"retained connection": scanner.run, "retained values": retained.run},
                )
            )
        if metrics is not None:
            parts.append(
                Part(
                    subscriptions=metrics.subscriptions(),
                    topics={
                        **dict.fromkeys(COUNTED_SYS_TOPICS, metrics.state.on_sys),
                        metrics.replay.topic: metrics.replay.on_ask,
                    },
                    tasks={"metrics stream": metrics.run, "metrics replay": metrics.replay.run},
                )
            )
        if datagrams is not None:
            parts.append(
                Part(
                    messages={DatagramOffer: datagrams.on_offer}, tasks={"datagrams": datagrams.run}
                )
            )
        if keys is not None:
            parts.append(Part(messages={Revoked: keys.on_revoked}, tasks={"keys": keys.run}))
        if settings.topology.mode == "auto":
            parts.append(Part(tasks={"topology": control.arranger.run}))
        if settings.mesh.core == "placed":
            folder, changed = self._state.path, control.driver.handle
            follow = partial(follow_placement, settings, folder, changed=changed)
            parts.append(Part(tasks={"core placement": follow}))
        return parts

    async def _keep_data_connection(self) -> None:
        """Run the data connection, once what waits under a name of former times is taken."""
        state, data, link = self._state, self.data, self.control.data.link
        if state.has_former_session:
            subscribed = [*data.cover.session.recalled(), *link.wanted_filters]
            await FormerSession(
                self.control.own_broker.former,
                federation=self.settings.federation,
                subscribed=subscribed,
                data_path=data.path,
                take=self.control.data.take,
            ).empty()
            state.forget_former_session()
        await link.run()

    async def _tend_custody(self) -> None:
        data = self.data
        while True:
            await asyncio.sleep(TEND_S)
            data.path.tend()
            data.cover.change(data.forwarder.cover_change())

    async def _report_drops(self) -> None:
        reports = DropReports()
        while True:
            await asyncio.sleep(LOOK_S)
            links = [link for n in self.control.connections.all for link in n.links]
            reports.look([self.control.data.link, *links], now_ms=monotonic_ms())

    # -- leaving ----------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Tell the neighbours, and wait until that and what our broker is owed are on their way."""
        control, data, services = self.control, self.data, self.services
        data.loops.stop()
        data.path.flush()
        if data.datagrams is not None:
            data.datagrams.leave()
        data.path.leave()
        services.guide.withdraw()
        services.health.withdraw()
        control.driver.handle(LeaveRequested())
        await self._hand_over()
        if services.metrics is not None:
            await services.metrics.leave()
        links = [link for n in control.connections.all for link in n.links]
        async with asyncio.timeout(LEAVE_SECONDS_MAX):
            await asyncio.gather(*(link.close() for link in links))

    async def _hand_over(self) -> None:
        """Let our broker have what we are handing to it, and the marker behind: or it comes twice.

        Mosquitto takes twenty messages at a time, so a burst needs a moment.
        """
        link = self.control.data.link
        for _ in range(HAND_OVER_POLLS):
            if not (link.connected and link.unacknowledged):
                return
            await asyncio.sleep(HAND_OVER_POLL_S)

    def _renew_epoch(self, epoch: Epoch) -> None:
        """Go on with a newer epoch, under which our id is known, also after a restart."""
        self._state.save_epoch(epoch)
        self.data.path.renew_epoch(epoch)
        self.data.sharing.origin.renew_epoch(epoch)
        self.services.settling.settling.renew(epoch)

    def _end_with(self, error: Exception) -> None:
        async def fail() -> None:
            raise error

        self._tasks.create_task(fail(), name="give way")
