"""Makes the parts that carry publications: policies, data path, shared groups, retained values."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mqtt5 import PublishPacket, TopicFilter

from federator.config.settings import Settings
from federator.config.topics import RulesSettings
from federator.protocol.custody.followed import HELD_BYTES_MAX
from federator.protocol.data.features import Features, Limits
from federator.protocol.data.plane import DataPlane
from federator.protocol.data.transports import Transports
from federator.protocol.duplicates import DuplicateLog
from federator.protocol.events import LocalFiltersChanged
from federator.protocol.filters import FilterTrie
from federator.protocol.filters.renames import Renames
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.leaves.handover import Turn
from federator.protocol.leaves.stamps import StampBook, Stamps
from federator.protocol.messages.control import RepairRequest
from federator.protocol.messages.topics import data_topic
from federator.protocol.policy.broker_policy import BrokerPolicy
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.policy.rules import Denied, EdgeRules
from federator.protocol.telemetry.frame_events import FrameEventBuffer
from federator.runtime.agent.control_parts import ControlParts
from federator.runtime.agent.transports import Needs, transports_of
from federator.runtime.custody.gateway_marks import GatewayMarks
from federator.runtime.custody.stores import CustodyStores
from federator.runtime.data.cover_subscriber import CoverSubscriber, SessionFilters
from federator.runtime.data.data_path import CustodyMessenger, DataPath
from federator.runtime.data.renaming import Renaming
from federator.runtime.leaves.role import Role
from federator.runtime.loops.watch import LoopWatch
from federator.runtime.mqtt.link import Inbound, MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.process.clocks import beat, both_clocks
from federator.runtime.process.spare_time import SpareTime
from federator.runtime.retained.retained import Retained
from federator.runtime.sharing.file import ShareFile
from federator.runtime.sharing.sharing import Sharing
from federator.runtime.storage.state_dir import StateDir
from federator.runtime.telemetry.traces import TraceService

if TYPE_CHECKING:
    from federator.runtime.opentelemetry.reporter import SpanReporter

TEND_S = 1.0

HELD_SHARE = 4
"""Held frames released all at once may take one part in so many of the queue to our broker."""


def edge_of(rules: RulesSettings) -> tuple[EdgeRules, Denied]:
    """The rules of our broker's edge, and what is denied to the federation."""
    edge = EdgeRules(imports=rules.imports, exports=rules.exports, keep=rules.keep)
    return edge, Denied(rules.deny)


@dataclass(eq=False, repr=False)
class DataParts:
    """The parts that carry the publications of one agent's clients, and those for them."""

    settings: Settings
    state: StateDir
    tasks: asyncio.TaskGroup
    stores: CustodyStores
    control: ControlParts
    frame_events: FrameEventBuffer | None
    stamp_book: StampBook
    role: Role
    turn: Turn | None  # while the broker changes its role

    def __post_init__(self) -> None:
        settings, control = self.settings, self.control
        self._data_link = control.data_link
        self.policy = BrokerPolicy(*edge_of(settings.rules), Renames(settings.rules.pairs))
        self.link_policies = LinkPolicies(*settings.link_rules())
        renames = self.policy.renames
        topic = data_topic(settings.federation)
        self.stamps = Stamps(
            settings.broker_id,
            self.stamp_book,
            is_port=not settings.minds_broker,
            again=self.role.again,
            turn=self.turn,
        )
        for stamp in self.stores.load_stamps():
            self.stamp_book.note(stamp)
        self.renaming = Renaming(renames, topic) if renames else None
        self.loops = LoopWatch(settings.loops, data_topic=topic, pass_on=self.enter)
        self.forwarder = Forwarder(
            topic_cache_max=settings.data.topic_cache_max,
            allows_export=self.policy.allows_export,
            here=renames.filter_inward if renames else None,
        )
        if self.role.on_wanted is not None:
            self.forwarder.report_wanted(self.role.on_wanted)
        self.marks = GatewayMarks(
            settings.federation,
            control.link,
            # Gateways' marks are repeated when a connection ended.
            is_gateways=partial(control.is_gateways, again=True),
            sign=control.words.sign,
        )
        self.cover = CoverSubscriber(
            self._data_link, settings.federation, SessionFilters(self.stores.subscribed)
        )
        self._wanted = FilterTrie()  # of our ordinary subscribers; ``sharing`` maintains it
        self.retained = self._retained() if settings.retained.enabled else None
        self.transports = Transports(settings.transport_to)
        self.spans = self._spans() if settings.opentelemetry.reports else None
        self.path = self._data_path()
        self._make_for_path()

    def parts(self) -> Iterator[Part]:
        """These leave in their order, the data path last."""
        path, marker = self.path, self.path.marker_topic
        yield self.loops.part()
        yield Part(
            subscriptions=[TopicFilter(marker)],
            topics={marker: self._on_marker},
            messages={RepairRequest: path.on_request},
            tasks={"custody": self._tend},
            leave=path.flush,
        )
        yield self.tracing.part()
        for transport in self.transports.all:
            tasks = {transport.section: transport.run}
            yield Part(messages=transport.messages, tasks=tasks, leave=transport.leave)
        yield Part(leave=path.leave)
        if self.retained is not None:
            yield self.retained.part()
        if self.spans is not None:
            yield self.spans.part()

    def _on_marker(self, packet: PublishPacket) -> None:
        """Take an earlier process's marker. Once started, unsubscribe: we need none of our own."""
        if self.path.started:
            self.control.link.unsubscribe([packet.topic])
        else:
            self.path.on_marker(packet.payload)

    async def _tend(self) -> None:
        while True:
            await beat(TEND_S)
            self.path.tend()
            self.follow_routes()

    def enter(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        """Rename publications and give them to the data path."""
        if self.renaming is not None:
            chunk, publishes = self.renaming.outgoing(chunk, publishes)
        if publishes:
            self.path.on_publishes(chunk, publishes)

    def follow_link_rules(self, settings: Settings) -> None:
        changed = self.path.follow_link_rules(*settings.link_rules())
        if changed and self.retained is not None:
            self.retained.on_rules()

    def follow_routes(self) -> None:
        """Note what we owe under the routes just set, then subscribe what they want."""
        self.stores.flush_owed()
        self.cover.change(self.forwarder.cover_change())

    def covers(self, filter_: str) -> bool:
        """Whether we get what our clients publish under a filter that others want."""
        subscribed = self._data_link.subscribed and not self.cover.waits
        return subscribed and self.forwarder.wants(filter_)

    def retained_links(self) -> list[MqttLink]:
        """The connection that scans the broker's retained messages, if there is one."""
        return [] if self.retained is None else [self.retained.scanner.link]

    def _retained(self) -> Retained:
        settings, control = self.settings, self.control
        return Retained(
            settings=settings.retained,
            self_id=settings.broker_id,
            epoch=control.current_epoch,
            federation=settings.federation,
            folder=self.state.path,
            make_link=partial(control.own_broker.link, "retained", clean_start=True),
            data_link=self._data_link,
            outgoing=None if self.renaming is None else self.renaming.outgoing,
            hears_log=settings.discovery.log_topics,
            policy=self.policy,
            to_local_names=self._to_local_names,
            link_policies=self.link_policies,
            covered=self.covers,
            send=control.traffic.send,
            keeping=self.forwarder.keeping,
            keeps=self.forwarder.keeps,
            share_of_turn=self.forwarder.share_of_turn,
            wanted=self._wanted,
        )

    def _spans(self) -> "SpanReporter":
        from federator.runtime.opentelemetry import reporter  # noqa: PLC0415 - as rare

        return reporter.reporter_of(
            self.settings,
            forwarder=self.forwarder,
            transport_to=self.transports.used_to,
            also=self.frame_events,
        )

    def _data_path(self) -> DataPath:
        settings, control = self.settings, self.control
        data = settings.data
        self.spare_time = SpareTime()
        plane = DataPlane(
            self_id=settings.broker_id,
            epoch=control.epoch,
            federation=settings.federation,
            forwarder=self.forwarder,
            disk=self.stores,
            outlet=CustodyMessenger(control.traffic.tell),
            now=both_clocks(),
            limits=Limits(
                frame_bytes_max=data.frame_bytes_max,
                hop_limit=data.hop_limit,
                held_bytes_max=min(
                    HELD_BYTES_MAX, settings.links.send_queue_bytes_max // HELD_SHARE
                ),
                flows_max=settings.steer.flows_max,
            ),
            features=Features(
                link=self._data_link,
                seals=control.trust,
                members=settings.members,
                duplicates=DuplicateLog(
                    window_bits=data.duplicate_window_bits, origins_max=data.origins_max
                ),
                policies=self.link_policies,
                transports=self.transports,
                to_local_names=self._to_local_names,
                retained=self.retained,
                stamps=self.stamps,
                note_arrival=self.role.note_arrival,
                frame_events=self.frame_events if self.spans is None else self.spans.recorder,
                on_acknowledged=self.marks.on_acknowledged,
                has_spare_time=self.spare_time,
            ),
        )
        return DataPath(plane, self.stores)

    def _make_for_path(self) -> None:
        """What sends and receives by the data path."""
        settings, control, path = self.settings, self.control, self.path
        self.tracing = TraceService(
            traffic=control.traffic,
            link=control.link,
            policy=self.policy,
            link_policies=self.link_policies,
            forwarder=self.forwarder,
            name_of=control.node.failover.name_of,
            transports=self.transports,
            send=path.trace,
            on_home=path.on_echo,
        )
        path.report_traces(self.tracing)
        self.transports.all += transports_of(
            Needs(
                settings=settings,
                trust=control.trust,
                tasks=self.tasks,
                epoch=control.current_epoch,
                tell=control.traffic.tell,
                on_frames=path.on_frames,
                by_broker=path.by_broker,
            )
        )
        self.sharing = Sharing(
            self_id=settings.broker_id,
            epoch=control.epoch,
            data_path=path,
            data_link=control.data_link,
            make_link=control.own_broker.stand_in,
            announce=lambda added, removed: control.handle(LocalFiltersChanged(added, removed)),
            announces=self.policy.exports,
            allows_export=self.policy.allows_export,
            parameters=settings.ledger(),
            file=ShareFile(self.state.path),
            wanted=self._wanted,
            stand_ins_max=settings.share.stand_ins_max,
        )

    def names_here(self, run: bytes) -> bytes:
        """A run with the names that hold at our broker."""
        return run if self.renaming is None else self.renaming.inward(run)

    def _to_local_names(self, run: bytes) -> bytes:
        """The run that is published on our broker when ``run`` arrives."""
        run = self.names_here(run)
        self.loops.note(run)
        return run
