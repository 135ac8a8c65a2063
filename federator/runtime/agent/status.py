"""The status of an agent, read from its parts at one moment, and the pages that show it.

A scrape reads the status alone; what is long (routes, flows, names) is on pages of its own, or
beside it on ``/status``.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins
from msgspec.structs import asdict

from federator.config.certificates import expiries_s
from federator.config.settings import Settings
from federator.protocol.forwarding.counters import DELAY_BOUNDS_US
from federator.protocol.opentelemetry.spans import PLACES
from federator.protocol.telemetry.agent_status import AgentStatus
from federator.runtime.agent.control_parts import ControlParts
from federator.runtime.agent.data_parts import DataParts
from federator.runtime.agent.services import Services
from federator.runtime.custody.stores import counts
from federator.runtime.failover.view import controller_page
from federator.runtime.leaves.hub_view import hub_section, leaves_section, ports_section
from federator.runtime.leaves.moving import Move
from federator.runtime.observability.routes_view import LISTED_MAX
from federator.runtime.observability.topology_view import links_told, mutual_links, topology_page
from federator.runtime.process.clocks import until_beat_s
from federator.runtime.process.exposition import Distribution, Family, families
from federator.runtime.process.http import AgentView
from federator.runtime.process.reloading import Reloader
from federator.runtime.storage import damage
from federator.runtime.telemetry.state import rss_bytes

if TYPE_CHECKING:
    from federator.runtime.leaves.hub import Hub
    from federator.runtime.leaves.hub_finder import HubFinder

LAGS_KEPT: Final = 60
"""The worst of the latest probes of the event loop counts: scrapes are rarer than probes."""

NO_PREFIX: Final = '""'
"""How an empty prefix is shown."""

Section = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Beside:
    """What runs beside an agent: at a hub, at a leaf that finds hubs, while a role changes."""

    hub: "Hub | None" = None
    finder: "HubFinder | None" = None
    move: Move | None = None


class AgentPages(AgentView):
    """The HTTP pages of an agent."""

    def __init__(
        self, services: Services, reloader: Reloader[Settings], beside: Beside = Beside()
    ) -> None:
        self.http_refused: Callable[[], int] = lambda: 0
        self._services = services
        self._reloader = reloader
        self._beside = beside
        holders = services.settings.credential_holders()
        self._certificates = expiries_s(holder.cert_file for _, holder in holders)
        self._lags_s: deque[float] = deque([0.0], maxlen=LAGS_KEPT)

    async def measure_lag(self, interval_s: float) -> None:
        """Keep measuring how late the event loop runs a timer."""
        loop = asyncio.get_running_loop()
        while True:
            rest_s = until_beat_s(interval_s)
            due_s = loop.time() + rest_s
            await asyncio.sleep(rest_s)
            self._lags_s.append(max(0.0, loop.time() - due_s))

    def ready(self) -> tuple[bool, str]:
        return self._services.ready()

    def status(self) -> Section:
        """The status, with routes, flows, groups and names beside."""
        services, status = self._services, self.read()
        data = services.data
        return {
            **asdict(status),
            **services.routes.status(),
            "names": self._names(),
            "flows": _flows(data),
            "share": {**status.share, "groups": data.sharing.listed()},
        }

    def metrics(self) -> Iterable[Family]:
        from federator.runtime.observability import metrics  # noqa: PLC0415 - if scraped

        return families((*metrics.AGENT, *metrics.LINK), self.read())

    def explain(self, topic: str) -> Section:
        return self._services.routes.explain(topic) | {"names": self._names()}

    def routes(self) -> Iterable[Section]:
        return self._services.routes.routes()

    def controller(self) -> Section:
        return controller_page(
            self._services.control.node.failover, self._services.settings.broker_id
        )

    def topology(self) -> Section:
        settings = self._services.settings.topology
        return topology_page(
            self._services.control.node, mode=settings.mode, wanted=settings.neighbours
        )

    def _names(self) -> dict[str, str]:
        """The names of all brokers that have one, by id."""
        names = self._services.control.node.failover.names()
        return {str(id): name for id, name in names.items()}

    def read(self) -> AgentStatus:
        """The status now."""
        services, beside = self._services, self._beside
        settings, control, data = services.settings, services.control, services.data
        condition = services.ready.condition()
        totals = {transport.section: transport.totals() for transport in data.transports.all}
        return AgentStatus(
            id=settings.broker_id,
            name=settings.broker.name,
            epoch=control.epoch,
            federation=settings.federation,
            ready=condition.ready,
            ready_reason=condition.reason,
            stands_well=condition.ready and condition.standing.well,
            standing=_of(condition.standing, "word", "well", "reasons"),
            about=_about(settings),
            broker=_broker(settings, control, services),
            security=_security(settings, control, services),
            links=services.links.states(),
            traffic=services.links.traffic(),
            connections=_connections(settings, control),
            routing=_routing(settings, control, data),
            steering=services.plans.snapshot(),
            datagrams=totals.get("datagrams"),
            direct=totals.get("direct"),
            discovery=services.discovery.snapshot(),
            rules=_rules(data),
            retained=_retained(data),
            loops=_loops(data),
            share={"scope": settings.share.scope, **data.sharing.snapshot()},
            settling={
                **_of(services.settling.settling, "settled", "gave_up", "refused"),
                "malformed": services.settling.malformed,
            },
            tracing={"malformed": data.tracing.malformed},
            custody={
                "log_limit": settings.custody.bytes_max,
                **counts(data.path.custody, data.path.stores),
            },
            counters=_counters(control, data),
            delays=_delays(data),
            failover=_failover(settings, control, services),
            topology=_topology(settings, control),
            stream=_stream(settings, services),
            spans=_spans(settings, data),
            process=self._process(),
            certificates=self._certificates,
            damaged_files=damage.found(),
            configuration=self._reloader.snapshot(),
            hub=hub_section(beside.hub),
            ports=ports_section(beside.hub),
            leaves=leaves_section(beside.hub),
            hubs=services.serving.snapshot(),
            hubs_known=[] if beside.finder is None else beside.finder.snapshot(),
            move=None if beside.move is None else beside.move.snapshot(),
        )

    def _process(self) -> Section:
        return {
            "loop_lag_s": max(self._lags_s),
            "http_refused": self.http_refused(),
            "cpu_s": time.process_time(),
            "rss_bytes": rss_bytes(),
        }


# The sections


def _of(part: object, *names: str) -> Section:
    return {name: getattr(part, name) for name in names}


def _about(settings: Settings) -> Section:
    return {
        "federation": settings.federation,
        "broker": settings.broker_id,
        "name": settings.broker.name,
        "security": settings.security,
        "strategy": settings.routing.strategy,
    }


def _broker(settings: Settings, control: ControlParts, services: Services) -> Section:
    return {
        "url": settings.broker.url,
        "connected": control.link.connected,
        "error": control.link.last_error,
        "version": services.discovery.broker_version,
        "up": services.presence.up,
    }


def _security(settings: Settings, control: ControlParts, services: Services) -> Section:
    trust = control.trust
    return {
        "mode": settings.security,
        **({} if trust is None else trust.snapshot()),
        "refused_by_kind": {} if trust is None else dict(trust.words.refused),
        "strangers_may_speak": services.strangers.speakers,
    }


def _connections(settings: Settings, control: ControlParts) -> Section:
    """All connections to our broker and to neighbours, together."""
    neighbours = control.connections.all
    links = [control.link, control.data_link, *(link for n in neighbours for link in n.links)]
    return {
        "neighbours": len(neighbours),
        "neighbours_up": len(control.node.links.up),
        "send_queue_bytes": sum(link.queued_bytes for link in links),
        "send_queue_limit": settings.links.send_queue_bytes_max,
        "reconnects": sum(max(0, link.counters.connects - 1) for link in links),
        "rejected": sum(link.counters.publishes_rejected for link in links),
    }


def _routing(settings: Settings, control: ControlParts, data: DataParts) -> Section:
    node = control.node
    meshes, straight = node.meshes.states.values(), node.topic_routing.states.values()
    return {
        "cores": len(node.announcements.routes),
        "filters": len(meshes) + len(straight),
        "filters_limit": settings.mesh.filters_max,
        "local_filters": sum(s.local for s in meshes) + sum(s.local for s in straight),
        "destinations": sum(len(s.brokers) for s in straight),
        **_of(data.forwarder, "topics_cached"),
        **_of(data.path.plane, "origins"),
    }


def _rules(data: DataParts) -> Section:
    """The rules at the edge of our broker and on links, and what they withheld."""
    policy, links, renaming = data.policy, data.link_policies, data.renaming
    rules = policy.edge
    filters_by_rule = {
        "import": rules.imports,
        "export": rules.exports,
        "keep": rules.keep,
        "deny": policy.denied.filters,
        "rename": tuple(
            f"{here or NO_PREFIX} -> {there or NO_PREFIX}" for here, there in policy.renames.pairs
        ),
    }
    return {
        **{name: filters[:LISTED_MAX] for name, filters in filters_by_rule.items()},
        "keep_total": len(rules.keep),
        "not_imported": policy.not_imported,
        "withheld": links.withheld_in + links.withheld_out,
        "withheld_from_neighbours": links.withheld_out,
        "withheld_of_neighbours": links.withheld_in,
        "without_name_there": renaming.kept if renaming else 0,
        "without_name_here": renaming.hidden if renaming else 0,
    }


def _loops(data: DataParts) -> Section:
    """Bridges at our broker, and the loops that they make."""
    detector = data.loops.detector
    return {
        "watching": data.loops.watching,
        "bridges": data.loops.named_bridges(),
        "bridges_total": len(data.loops.bridges),
        "suspects": detector.suspects,
        "broken": dict(islice(detector.loops.items(), LISTED_MAX)),
        "broken_total": detector.loop_count,
        "dropped": detector.dropped,
    }


def _retained(data: DataParts) -> Section | None:
    if data.retained is None:
        return None
    store, scanner = data.retained.store, data.retained.scanner
    full = None
    if store.places.crowded:
        full = dict(zip(("origin", "topics", "below"), store.places.culprit(), strict=True))
    return {
        "topics": len(store) - store.tombstones,
        "tombstones": store.tombstones,
        "topics_max": data.retained.settings.topics_max,
        **_of(store.places, "guests", "refused", "crowded"),
        "full": full,
        "looks": scanner.count,
        "looks_incomplete": scanner.incomplete,
        **to_builtins(data.retained.counters),
    }


def _counters(control: ControlParts, data: DataParts) -> Section:
    """Messages by kind, and publications."""
    kinds = ("sent", "sent_bytes", "received", "malformed", "dropped", "refused")
    return {
        **{f"control_{kind}": dict(getattr(control.traffic, kind)) for kind in kinds},
        "data": to_builtins(data.path.counters),
        "copies_dropped": data.cover.duplicates_dropped,
    }


def _delays(data: DataParts) -> Section:
    delays = data.path.delays
    bounds_s = [bound_us / 1_000_000 for bound_us in DELAY_BOUNDS_US]
    seconds = Distribution(bounds_s, tuple(delays.counts), delays.sum_us / 1_000_000)
    return {"ahead": delays.ahead, "seconds": seconds}


def _flows(data: DataParts) -> Section:
    """The heaviest flows of our clients, in bit/s, and all others together."""
    flows, rest = data.path.flows.told(data.forwarder)
    return {
        "heaviest": [
            asdict(flow)
            | {
                "rate": round(flow.rate),
                "error": round(flow.error),
                "publications": round(flow.publications, 2),
            }
            for flow in flows
        ],
        "rest": round(rest),
    }


def _failover(settings: Settings, control: ControlParts, services: Services) -> Section | None:
    """The controller, and our part in failover."""
    failover, prepared = control.node.failover, services.prepared
    if not failover.active:
        return None
    takeovers, draining = failover.duties.takeovers, failover.self_state.draining
    states = Counter(member.state for _, member in failover.presence)
    states["draining" if draining else "up"] += 1
    return {
        **_of(failover, "controller", "is_controller"),
        "draining": draining,
        "takeovers": len(takeovers),
        "stood_in": sum(made.substitute == settings.broker_id for made in takeovers.values()),
        "flow_rows": len(failover.table),
        "brokers": {state: states[state] for state in ("up", "draining", "gone")},
        "names_refused": failover.presence.names_refused,
        "clients": services.failover.clients,
        "sessions": {**_of(prepared, "prepared", "refused"), "waiting": len(prepared.waiting)},
    }


def _topology(settings: Settings, control: ControlParts) -> Section | None:
    """Links that arrange themselves."""
    node = control.node
    if not node.topology.active:
        return None
    links = links_told(node)
    return {
        "brokers": len(links),
        "links": sum(1 for _ in mutual_links(links)),
        "wanted": settings.topology.neighbours,
        "given_up": node.topology.changes,
    }


def _stream(settings: Settings, services: Services) -> Section | None:
    stream = services.metrics
    if stream is None:
        return None
    return {
        **_of(stream.spool, "bytes_held", "written", "dropped"),
        "bytes_max": settings.metrics.spool_bytes_max,
        "records_lost": stream.records_lost,
        "failures": stream.trouble.failures,
        "asks": _of(stream.replay, "answered", "refused", "malformed"),
    }


def _spans(settings: Settings, data: DataParts) -> Section | None:
    if data.spans is None:
        return None
    recorder = data.spans.recorder
    return {
        "share": recorder.places / PLACES,
        "passed_over": recorder.passed_over,
        "waiting_max": settings.opentelemetry.queue_spans_max,
        **_of(data.spans.exporter, "waiting", "exported", "failed", "dropped"),
    }
