"""Makes the services for gateways, operators and clients beside the data path."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

from federator import __version__
from federator.config.topics import RulesSettings
from federator.errors import ConfigError
from federator.protocol.discovery import MembersChanged
from federator.protocol.events import (
    CollectsChanged,
    LocalBrokerDown,
    LocalBrokerUp,
    LocalFiltersChanged,
)
from federator.protocol.steering.edge_follower import EdgeFollower, KeptMeter
from federator.protocol.telemetry.agent_status import LivePage
from federator.protocol.telemetry.frame_events import FrameEventBuffer
from federator.runtime.agent.control_parts import ControlParts
from federator.runtime.agent.data_parts import DataParts, edge_of
from federator.runtime.agent.health import HealthReporter
from federator.runtime.agent.home_assistant import HomeAssistantTeller
from federator.runtime.agent.placed_core import follow_placement
from federator.runtime.agent.presence import OwnBrokerPresence
from federator.runtime.agent.shared_broker_guard import AgentAtBroker, SharedBrokerGuard
from federator.runtime.custody.gateway_fetches import GatewayFetches
from federator.runtime.discovery.echo import BrokerEcho
from federator.runtime.discovery.service import Discovery
from federator.runtime.doctor.log_watch import LogWatch
from federator.runtime.doctor.strangers import StrangerWatch
from federator.runtime.failover.guide_publisher import GuidePublisher
from federator.runtime.failover.prepared_sessions import PreparedSessions
from federator.runtime.failover.service import FailoverService
from federator.runtime.leaves.role import OtherAgent, Role
from federator.runtime.leaves.serving import LeafServingService
from federator.runtime.mqtt.endpoint import endpoint_of
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.observability.link_view import LinkView
from federator.runtime.observability.pages import PageService
from federator.runtime.observability.readiness import Readiness
from federator.runtime.observability.routes_view import RoutesView
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.process.notices import log_notice
from federator.runtime.settling.service import SettlingService
from federator.runtime.steering.link_loads import LinkLoads
from federator.runtime.steering.load_teller import LoadTeller
from federator.runtime.steering.plans import Plans
from federator.runtime.telemetry.state import AgentState
from federator.runtime.telemetry.stream import MetricsStream

MESHES_COUNTED_MAX = 10_000
"""Bound of the meshes searched for those with us as core: a console asks every other second."""


@dataclass(eq=False, repr=False)
class Services:
    """The services of one agent beside carrying publications."""

    control: ControlParts
    data: DataParts
    end: Callable[[ConfigError], None]
    role: Role
    other: OtherAgent | None  # at our broker, while that changes its role

    def __post_init__(self) -> None:
        self.settings = self.data.settings
        self._make_for_clients()
        self._make_for_our_broker()
        self._make_for_gateways()
        self._make_for_links()
        self._make_for_operators()

    def parts(self) -> Iterator[Part]:
        settings, control = self.settings, self.control
        yield self.presence.part()
        yield self.settling.part()
        yield self.plans.part(follows=settings.steer.follow)
        yield self.guard.part()
        yield self.guide.part()
        yield self.pages.part()
        yield self.fetches.part()
        yield self.health.part()
        yield self.link_loads.part()
        if settings.discovery.log_topics:
            yield self.log_watch.part()
        if settings.security != "open" and settings.minds_broker:
            yield self.strangers.part()
        if settings.failover.enabled:
            yield self.failover.part()
            yield self.prepared.part()
        if self.metrics is not None:
            yield self.metrics.part()
        if settings.steer.follow:
            yield self.load_teller.part()
        if settings.mesh.core == "placed":
            planned = self.plans.priority
            follow = partial(follow_placement, settings, planned=planned, changed=control.handle)
            yield Part(tasks={"core placement": follow})

    def _make_for_clients(self) -> None:
        """What reads our broker's clients off its log, and carries them to other brokers."""
        control, data, settings = self.control, self.data, self.settings
        failover, path = control.node.failover, data.path
        self.guide = GuidePublisher(
            settings=settings,
            link=control.link,
            ordered=control.handle,
            is_gateways=control.is_gateways,
            trust=control.trust,
        )
        self.discovery = Discovery(
            settings.discovery,
            federation=settings.federation,
            own_id=control.link.client_id,
            state_dir=data.state.path,
            interest_changed=self._interest_changed,
            share=settings.share,
            members_changed=self._members_changed if settings.groups_span_brokers else None,
            call_roll=self._call_roll,
            control_filters=lambda: control.link.wanted_filters,
            recall=control.link.recall,
            own_links=self._links_here,
            inherit=None if self.other is None else self.other.record,
        )
        self.echo = BrokerEcho(
            link=control.link,
            federation=settings.federation,
            broker=settings.broker_id,
            sent=self.discovery.on_mark_sent,
            came=self.discovery.known.on_mark,
        )
        self.failover = FailoverService(
            settings=settings.failover,
            address=settings.failover.advertise or settings.broker.advertised,
            folder=data.state.path,
            discovery=self.discovery,
            counters=path.counters,
            guide=self.guide,
            may_tell=data.policy.exports,
            announced_records=lambda: failover.table.texts(settings.broker_id),
            handle=control.handle,
        )
        self.prepared = PreparedSessions(
            settings=settings.failover,
            endpoint=partial(endpoint_of, settings.broker),
            connected_here=self.discovery.known.is_connected,
            filters_here=self.discovery.known.filters_of,
            connected_elsewhere=failover.is_connected_elsewhere,
            caught_up=data.marks.caught_up,
            in_federation=data.policy.exported_filters,
            expect=path.expect,
            fetch_again=path.fetch_again,
        )

    def _make_for_our_broker(self) -> None:
        """What watches our place at our broker, and says whether we are ready."""
        control, data, settings = self.control, self.data, self.settings
        self.presence = OwnBrokerPresence(
            broker=settings.broker,
            control=control.link,
            data=control.data_link,
            others=data.retained_links,
            changed=self._on_presence,
            complete=self.role.is_complete,
            looked=self.role.on_looked,
        )
        self.guard = SharedBrokerGuard(
            me=AgentAtBroker(control.epoch, settings.broker_id),
            federation=settings.federation,
            url=settings.broker.url,
            link=control.link,
            guard=None if control.trust is None else control.trust.guard,
            end=self.end,
            give_way=self.presence.give_way,
        )
        us = (settings.broker, settings.federation, str(settings.broker.id), self.presence.is_up)
        self.strangers, self.log_watch = StrangerWatch(*us), LogWatch(*us)
        self.ready = Readiness(
            control.node,
            control.traffic,
            blocks=(self.presence.why_not, data.stores.block, self.log_watch.block),
            hindrances=self.log_watch.hindrances,
        )

    def _make_for_gateways(self) -> None:
        control, data, settings = self.control, self.data, self.settings
        self.settling = SettlingService(
            settings=settings,
            node=control.node,
            policy=data.policy,
            has_own_members=data.sharing.has_own_members,
            covers=data.covers,
            tell=control.traffic.tell,
            link=control.link,
            is_gateways=control.is_gateways,
            sign=control.words.sign,
        )
        self.fetches = GatewayFetches(
            federation=settings.federation,
            link=control.link,
            is_gateways=control.is_gateways,
            sign=control.words.sign,
            signed_only=control.words.judges,
            in_federation=data.policy.exported_filters,
            names_here=data.names_here,
            caught_up=data.marks.caught_up,
            retrieve=data.path.retrieve,
        )

    def _make_for_links(self) -> None:
        """What follows plans and leaves, and measures how full links are."""
        control, data, settings, node = self.control, self.data, self.settings, self.control.node
        self.serving = LeafServingService(
            settings,
            data.state.path,
            node,
            data.path,
            data.stamps,
            control.handle,
            has_two_ways=self.other is not None,
            on_roaming=self.role.on_roaming,
        )
        self.plans = Plans(
            federation=settings.federation,
            broker=settings.broker_id,
            data_path=data.path,
            words=control.words,
            tell=control.traffic.tell,
            edge=self._edge(),
        )
        self.link_loads = LinkLoads(
            links=node.links,
            connections=control.connections,
            transports=data.transports,
            policies=data.link_policies,
        )
        self.load_teller = LoadTeller(
            settings=settings,
            epoch=control.current_epoch,
            link=control.link,
            words=control.words,
            forwarder=data.forwarder,
            flows=data.path.flows,
            loads=self.link_loads,
            holding=self.plans.holding,
            wants=node.meshes.wants,
            edge=self.plans.edge,
            in_doubt=lambda: self.discovery.known.widened,
            kept=KeptMeter(data.path.counters),
        )

    def _make_for_operators(self) -> None:
        """What shows how we are."""
        control, data, settings, node = self.control, self.data, self.settings, self.control.node
        self.health = HealthReporter(
            settings,
            data_link=control.data_link,
            ready=self.ready,
            home_assistant=HomeAssistantTeller(
                settings, folder=data.state.path, link=control.link, links=node.links
            ),
            leaves=self.role.served_leaves,
        )
        self.links = LinkView(self.ready, data.transports, self.link_loads)
        self.routes = RoutesView(
            node,
            policy=data.policy,
            link_policies=data.link_policies,
            forwarder=data.forwarder,
            sharing=data.sharing,
        )
        self.pages = PageService(
            federation=settings.federation,
            broker=settings.broker_id,
            link=control.link,
            words=control.words,
            live=self.live,
            routes=self.routes,
            filters=lambda: self.discovery.told,
        )
        self.metrics = None if data.frame_events is None else self._metrics(data.frame_events)

    def _edge(self) -> EdgeFollower:
        settings, control, node = self.settings, self.control, self.control.node
        obstacle = ""
        if settings.rules.rename:
            obstacle = "it renames topics: [rules] rename"
        elif not settings.failover.enabled:
            obstacle = "it says nothing of itself: [failover] enabled"
        return EdgeFollower(
            keep=self.data.path.keep,
            collect=lambda filters: control.handle(CollectsChanged(filters)),
            note=log_notice,
            asks_straight=node.topic_routing.wants,
            asks_in_mesh=node.meshes.wants,
            obstacle=obstacle,
            allowed=settings.rules.placed,
            in_doubt=True,  # until discovery reports otherwise
        )

    def _metrics(self, frame_events: FrameEventBuffer) -> MetricsStream:
        settings, control, data = self.settings, self.control, self.data
        agent_state = AgentState(
            node=control.node,
            parameters=settings.parameters(),
            traffic=control.traffic,
            own_links=(control.link, control.data_link),
            data_path=data.path,
            discovery=self.discovery,
            clients=self._clients,
            echo=self.echo,
            capacity=self.link_loads.capacity,
        )
        return MetricsStream(
            settings=settings.metrics,
            federation=settings.federation,
            frame_events=frame_events,
            state=agent_state,
            link=control.link,
            folder=data.state.path / "metrics",
            words=control.words,
        )

    def live(self) -> LivePage:
        """The state of our agent and its links, for consoles."""
        control, data, settings = self.control, self.data, self.settings
        condition = self.ready.condition()
        meshes, us = control.node.meshes.states.values(), settings.broker_id
        counters = data.path.counters
        return LivePage(
            name=settings.broker.name,
            release=__version__,
            epoch=control.epoch,
            ready=condition.ready,
            ready_reason=condition.reason,
            standing=condition.standing.word.value,
            standing_reasons=condition.standing.reasons,
            run=None if control.trust is None else control.trust.guard.ours.salt.hex(),
            draining=control.node.failover.self_state.draining,
            clients=self._clients(),
            core_of=sum(m.core == us for m in islice(meshes, MESHES_COUNTED_MAX)),
            filters=len(self.discovery.told),
            published=counters.publications_in,
            delivered=counters.delivered_publications,
            dropped=counters.dropped,
            links=tuple(self.links.states()),
        )

    def _clients(self) -> int | None:
        return self.failover.clients if self.settings.failover.enabled else None

    # What happens at our broker

    def _on_presence(self, up: bool) -> None:
        if self.metrics is not None:
            self.metrics.events.note("broker_up" if up else "broker_down")
        self.guide.publish()
        self.control.handle(LocalBrokerUp() if up else LocalBrokerDown())
        if not up:
            self.log_watch.on_down()
        else:
            self.guard.on_local_up(monotonic_ms())
            self.data.path.on_local_up()

    def follow_edge(self, rules: RulesSettings) -> None:
        """Apply other ``rules`` at the edge between our broker and the federation."""
        data, asked = self.data, self.role.asked(self.discovery.told)
        data.path.flush()  # what arrived before leaves under the old rules
        added, removed = data.policy.follow(*edge_of(rules), asked)
        data.path.follow_rules()
        self._on_interest(added, removed)
        data.sharing.announce_members()
        self.plans.allow(rules.placed)

    def _interest_changed(self, added: frozenset[str], removed: frozenset[str]) -> None:
        self.role.on_clients(added, removed, self.ask)

    def ask(self, added: Iterable[str], removed: Iterable[str]) -> None:
        """Ask the federation for ``added``, by their names here, and no longer for ``removed``."""
        self._on_interest(*self.data.policy.change(added, removed))

    def _on_interest(self, added: frozenset[str], removed: frozenset[str]) -> None:
        """Report a change of our clients' interest, by the names in the federation."""
        data, widened = self.data, self.discovery.known.widened
        exported = (
            data.policy.exported_filters(doubtful) for doubtful in self.discovery.known.doubted
        )
        doubted = frozenset(chain.from_iterable(exported))
        data.path.widen(widened, doubted)
        self.plans.doubt(widened)
        self.control.handle(LocalFiltersChanged(added, removed))
        if self.metrics is not None:
            self.metrics.on_interest(added, removed)
        data.sharing.on_interest(added, removed)
        if data.retained is not None:
            data.retained.on_interest(added, removed, doubted=doubted)

    def _members_changed(self, changed: MembersChanged) -> None:
        self.data.sharing.on_members(changed.members, watched=changed.watched)

    def own_links(self) -> list[MqttLink]:
        """Our connections to our broker besides the control connection."""
        data = self.data
        stand_ins = data.sharing.stand_ins.links
        return [self.control.data_link, *stand_ins, *data.retained_links(), *self.role.own_links()]

    def _call_roll(self) -> None:
        self.guide.call_roll()
        self.control.outboxes.call_roll()
        self.role.call_roll()

    def _links_here(self) -> list[MqttLink]:
        """All these, and those of another agent at our broker."""
        return [*self.own_links(), *([] if self.other is None else self.other.own_links())]
