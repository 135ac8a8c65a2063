"""One agent's knowledge of all brokers, and its decisions while it is the controller.

All brokers in reach form the management mesh; its core, by the rule of every mesh, has the smallest
rank, and that is the controller. Every agent holds the whole session flow table, so when the
controller dies the next one has all it needs. It waits a moment (``office_ms``) before it decides:
an apparent change of controller may be a link that was down for a moment.

Think of a ship's bridge: the watch passes by seniority, the log book lies open to all, and the new
officer first reads what was ordered and lets it stand.

Source: Chen 2020, 3.3.4; docs/protocol.md 15.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from federator.protocol.controller.duties import ControllerDuties, Situation, StandingPlans
from federator.protocol.controller.flow_table import SessionFlowTable
from federator.protocol.controller.presence import BrokerPresence, PresenceParameters
from federator.protocol.effects import Notice, PublishGuide, StepBack, StepIn
from federator.protocol.links.links import Links
from federator.protocol.messages.guide import GUIDE_VERSION, Guide, GuideBroker, Takeover
from federator.protocol.messages.session_records import (
    LINKS_MAX,
    BrokerRecord,
    FlowRow,
    Record,
    TakeoverRecord,
    encode_record,
    parse_record,
    row_in,
)
from federator.protocol.routing.announcements import Announcements
from federator.protocol.signals import OwnFiltersChanged, Step
from federator.protocol.timers import Timers, earliest
from federator.protocol.types import BrokerId, CoreRank, Epoch, Millis


@dataclass(frozen=True, slots=True)
class FailoverParameters:
    """Parameters of the controller."""

    federation: str = "fed"  # its name, for the guide
    presence: PresenceParameters = field(default_factory=PresenceParameters)  # heartbeat thresholds
    # A new controller, or one whose broker just came back, waits for so long.
    office_ms: Millis = Millis(1_000)
    plan_gap_ms: Millis = Millis(1_000)  # least time between two plans
    guide_gap_ms: Millis = Millis(100)  # least time between two guides
    rows_max: int = 10_000  # rows of the session flow table held per broker; more are ignored


class Failover:
    """The session flow table, the controller's decisions, and the guide.

    Does nothing until the driver reports our status.
    """

    def __init__(
        self,
        links: Links,
        announcements: Announcements,
        parameters: FailoverParameters,
        name: str = "",
    ) -> None:
        self.presence = BrokerPresence(parameters.presence)  # which brokers are present
        self.table = SessionFlowTable()  # the rows of all brokers
        self.standing = StandingPlans()  # what others announce as controllers
        self.duties = ControllerDuties()  # our decisions; they apply while ``is_controller``
        self.controller = links.self_id  # the broker that we consider the controller
        self.is_controller = False
        self._links = links
        self._announcements = announcements
        self._parameters = parameters
        self._name = name  # the operators' name of our broker
        self.active = False  # whether the driver reported our status
        self.self_state = BrokerRecord()  # the status reported last
        self._collects: tuple[str, ...] = ()
        self._announced: frozenset[str] = frozenset()  # our records, all but the rows
        self._listening = False
        self._timers: Timers[str] = Timers()
        self._guide: Guide | None = None
        self._stepped_in: set[BrokerId] = set()
        self._entered = False  # we are the controller, and have learned the takeovers in force
        # We were offline, and have not received a controller's decisions since.
        self._outdated = False
        self._ordered: dict[BrokerId, TakeoverRecord] = {}  # takeovers that we announced

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return earliest(self._timers.next_deadline_ms(), self.presence.next_deadline_ms())

    def name_of(self, id: BrokerId) -> str:
        """The name of one broker; empty when it has none or it is unknown."""
        if id == self._links.self_id:
            return self._name
        broker = self.presence.known.get(id)
        return "" if broker is None else broker.name

    def names(self) -> dict[BrokerId, str]:
        """The names of all named brokers, ours and lately missed ones included."""
        ids = sorted({self._links.self_id, *self.presence.known})
        return {id: name for id in ids if (name := self.name_of(id))}

    # -- events -----------------------------------------------------------------------------

    def on_status(self, status: BrokerRecord, *, now_ms: Millis) -> list[Step]:
        """Update the status of our own broker; ``links`` and ``orphans`` are filled in here."""
        if not self.active:
            self._listening = self._links.listening
            self._timers.set("begin", Millis(now_ms + self._parameters.office_ms))
        self.active, self.self_state = True, status
        self._timers.set_sooner("plan", Millis(now_ms + self._parameters.plan_gap_ms))
        return self._settle(now_ms)

    def on_collects(self, filters: frozenset[str], *, now_ms: Millis) -> list[Step]:
        """Announce that our clients only collect what matches ``filters``."""
        self._collects = tuple(sorted(filters))
        return self._settle(now_ms)

    def on_rows(
        self, added: frozenset[str], removed: frozenset[str], *, now_ms: Millis
    ) -> list[Step]:
        """Follow what our own clients publish and subscribe, as a change of our rows' records."""
        table, self_id = self.table, self._links.self_id
        gone = removed & table.texts(self_id)
        for text in gone:
            table.discard(self_id, row_in(text), text)
        come: set[str] = set()
        for text in sorted(added - table.texts(self_id)):
            row = parse_record(text)
            if isinstance(row, FlowRow) and table.count(self_id) < self._parameters.rows_max:
                come.add(text)
                table.add(self_id, row, text)
        if not self.active or not (come or gone):
            return []
        self._timers.set_sooner("plan", Millis(now_ms + self._parameters.plan_gap_ms))
        change = OwnFiltersChanged(frozenset(come - gone), frozenset(gone - come))
        return [change, *self._settle(now_ms)]

    def on_announced(
        self, core: BrokerId, filters: frozenset[str], *, now_ms: Millis
    ) -> list[Step]:
        """Follow ``filters``: records that ``core`` announces or no longer does."""
        route = self._announcements.routes.get(core)
        lost = route is None or route.forgotten
        announced = route.announced.filters.filters if route is not None else frozenset[str]()
        came_back = False
        for filter_ in sorted(filters):
            record = parse_record(filter_)
            if record is None:
                continue
            if filter_ in announced:
                came_back |= self._come(core, record, filter_)
            else:
                self._go(core, record, filter_, lost=lost, now_ms=now_ms)
        if came_back:
            # The rows kept from its absence may be outdated: only what it announces now is valid.
            self.table.drop(core)
            for filter_ in sorted(announced):
                record = parse_record(filter_)
                if isinstance(record, FlowRow):
                    self._come(core, record, filter_)
        self._timers.set_sooner("plan", Millis(now_ms + self._parameters.plan_gap_ms))
        return self._settle(now_ms)

    def on_links(self, *, now_ms: Millis) -> list[Step]:
        """Follow a change of our links or of our own broker's connection."""
        if self._listening != self._links.listening:
            self._listening = self._links.listening
            self.presence.start_over(now_ms=now_ms)
            self._entered, self._outdated = False, True
            self._timers.set("begin", Millis(now_ms + self._parameters.office_ms))
        return self._settle(now_ms)

    def on_deadline(self, *, now_ms: Millis) -> list[Step]:
        """Give up missed brokers, begin a term, plan, publish, whichever is due."""
        at_ms = self.next_deadline_ms()
        if at_ms is None or at_ms > now_ms:
            return []
        for id in sorted(self.presence.on_deadline(self._all_orphans(), now_ms=now_ms)):
            self.table.drop(id)
            self.duties.plans.pop(id, None)
            self.duties.takeovers.pop(id, None)
        due = self._timers.pop_due(now_ms)
        return self._settle(now_ms, plan="plan" in due or "begin" in due)

    # -- consequences -----------------------------------------------------------------------

    def _come(self, core: BrokerId, record: Record, text: str) -> bool:
        match record:
            case BrokerRecord():
                return self.presence.come(core, record)
            case FlowRow():
                is_known = core in self.presence.known
                if is_known and self.table.count(core) < self._parameters.rows_max:
                    self.table.add(core, record, text)
            case _:
                self.standing.come(core, record)
        return False

    def _go(self, core: BrokerId, record: Record, text: str, *, lost: bool, now_ms: Millis) -> None:
        match record:
            case BrokerRecord():
                self.presence.go(core, record, now_ms=now_ms)
            case FlowRow():
                if not lost:  # the substitutes of a dead broker need its rows
                    self.table.discard(core, record, text)
            case _:
                self.standing.go(core, record)

    def _settle(self, now_ms: Millis, *, plan: bool = False) -> list[Step]:
        """Draw all conclusions from the present state."""
        if not self.active:
            return []
        steps = self._elect(now_ms)
        self._adopt(now_ms)
        if self.is_controller and "begin" not in self._timers and self._listening:
            self._enter()
            self._rule(plan=plan)
        steps += self._announce()
        steps += self._substitute()
        return steps + self._publish(now_ms)

    def _elect(self, now_ms: Millis) -> list[Step]:
        """The smallest rank in reach is the controller."""
        self_id = self._links.self_id
        ranks: list[CoreRank] = [(self._announcements.own.priority, self_id)]
        for id, broker in self.presence:
            route = self._announcements.routes.get(id)
            if broker.present and route is not None:
                ranks.append(route.rank)
        controller = min(ranks)[1]
        before, self.controller = self.controller, controller
        becomes_controller = controller == self_id and not self.is_controller
        self.is_controller = controller == self_id
        if becomes_controller:
            self._timers.set("begin", Millis(now_ms + self._parameters.office_ms))
        self._entered = self._entered and self.is_controller
        if before == controller:
            return []
        details: dict[str, int | str] = {"controller": controller, "before": before}
        return [Notice("controller.changed", "info", details)]

    def _enter(self) -> None:
        """Begin a term, or a newer one if another broker was controller in ours or a later one."""
        terms = [broker.record.other_term for _, broker in self.presence if broker.present]
        other_term = max([self.standing.greatest_other_term(self._links.self_id), *terms])
        if not self._entered or other_term >= self.duties.term:
            self.duties.begin_term(after=other_term)
            self.standing.note_term(self._links.self_id, self.duties.term)
        self._entered, self._outdated = True, False

    def _adopt(self, now_ms: Millis) -> None:
        """Adopt the controller's takeovers; keep earlier ones that it does not change.

        A controller that has not begun its term yet only remembers. If it was offline, others may
        have replaced a substitute since, perhaps itself: they keep theirs, and it learns from them.
        """
        duties = self.duties
        for id in sorted({id for _, k in self.presence if k.present for id in k.record.missed}):
            self._note_presence(id, now_ms)
        statement = self.standing.of(self.controller)
        if statement.claim is not None:
            self._outdated = False
            for plan in statement.plans:
                duties.plans[plan.broker] = plan.substitutes
            for made in statement.takeovers:
                self._note_presence(made.broker, now_ms)
                if self._leaving(made.broker):
                    duties.takeovers[made.broker] = made
        claimed: dict[BrokerId, TakeoverRecord] = {}
        for made in self.standing.claims(besides=self.controller if statement.claim else None):
            self._note_presence(made.broker, now_ms)
            if self._leaving(made.broker) and not self._leaving(made.substitute):
                claimed.setdefault(made.broker, made)
        first, then = duties.takeovers, claimed
        if self._outdated:
            first, then = then, first
        duties.takeovers = then | first
        for broker, made in sorted(duties.takeovers.items()):
            if not self._leaving(broker) or self._is_past(made.substitute):
                del duties.takeovers[broker]

    def _note_presence(self, broker: BrokerId, now_ms: Millis) -> None:
        if broker != self._links.self_id:
            self.presence.hear_of(broker, now_ms=now_ms)

    def _leaving(self, broker: BrokerId) -> bool:
        """Whether clients of ``broker`` must move, or may soon: it is missed or draining."""
        if broker == self._links.self_id:
            return self.self_state.draining
        member = self.presence.known.get(broker)
        return member is None or not member.fit

    def _is_past(self, substitute: BrokerId) -> bool:
        """Whether ``substitute`` no longer serves: it is gone or draining."""
        if substitute == self._links.self_id:
            return self.self_state.draining
        broker = self.presence.known.get(substitute)
        return broker is not None and broker.state != "up"

    def _rule(self, *, plan: bool) -> None:
        situation = self.situation()
        if plan or not self.duties.plans:
            self.duties.replan(situation, self.table)
        self.duties.decide(situation, self.table)

    def is_connected_elsewhere(self, client: str) -> bool:
        """Whether the client is connected to another broker that is present."""
        others = set(self.table.connected_at(client)) - {self._links.self_id}
        return any(not self.presence.is_missed(broker) for broker in others)

    def situation(self) -> Situation:
        """The present situation of all brokers, ours included."""
        self_id = self._links.self_id
        records = {id: broker.record for id, broker in self.presence}
        records[self_id] = self._status()
        fit = {id for id, broker in self.presence if broker.fit}
        serving = {id for id, broker in self.presence if broker.state == "up"}
        leaving = {id for id, broker in self.presence if broker.gone or broker.state == "draining"}
        for these in [leaving] if self.self_state.draining else [fit, serving]:
            these.add(self_id)
        # A broker that is missed but not gone yet keeps the substitute that it may have.
        takeovers = self.duties.takeovers
        leaving |= {id for id, broker in self.presence if not broker.fit and id in takeovers}
        return Situation(records, frozenset(fit), frozenset(serving), frozenset(leaving))

    def _orphans(self) -> list[BrokerId]:
        neighbours = self._links.neighbours.values()
        return sorted(n.id for n in neighbours if n.conn is not None and not n.up)

    def _all_orphans(self) -> set[BrokerId]:
        """Brokers that answer us or another present broker while their agent is silent."""
        reported = {id for _, k in self.presence if k.present for id in k.record.orphans}
        return reported.union(self._orphans())

    def _status(self) -> BrokerRecord:
        missed = tuple(id for id, broker in self.presence if broker.gone and broker.seen)
        return replace(
            self.self_state,
            links=tuple(self._links.up)[:LINKS_MAX],
            orphans=tuple(self._orphans()[:LINKS_MAX]),
            missed=missed[:LINKS_MAX],
            other_term=self.standing.greatest_other_term(self.controller),
            name=self._name,
            collects=self._collects,
        )

    def _reminders(self) -> list[TakeoverRecord]:
        """Takeovers in force that the controller does not name (yet), as we know of them.

        A deposed controller repeats what it ordered, until the new one names it. A restarted
        controller does not know brokers that died before: an agent that was linked when they lived
        repeats their takeovers. Takeovers learned only from others are not repeated, or they would
        never end.
        """
        theirs = self.standing.of(self.controller)
        named = {t.broker for t in theirs.takeovers} if theirs.claim is not None else set()
        takeovers = sorted(self.duties.takeovers.items())
        missing = {broker: made for broker, made in takeovers if broker not in named}
        self._ordered = {b: t for b, t in self._ordered.items() if missing.get(b) == t}
        return [
            made
            for broker, made in missing.items()
            if broker in self._ordered
            or (self.presence.was_seen(broker) and not self._leaving(made.substitute))
        ]

    def _announce(self) -> list[Step]:
        """Bring our announced records up to date."""
        records: list[Record] = [self._status()]
        if self._entered:
            records += self.duties.records()
            self._ordered = dict(self.duties.takeovers)
        else:
            records += self._reminders()
        texts = (encode_record(record) for record in records)
        announced = frozenset(text for text in texts if text is not None)
        added, removed = announced - self._announced, self._announced - announced
        self._announced = announced
        return [OwnFiltersChanged(added, removed)] if added or removed else []

    def _substitute(self) -> list[Step]:
        """Orders to step in where we are named, and to step back where we no longer are."""
        self_id, steps = self._links.self_id, list[Step]()
        orphans = self._all_orphans()
        named: dict[BrokerId, Millis] = {}
        for id, broker in self.presence:
            if broker.missed_at_ms is None or not self._listening or self._outdated:
                continue
            made = self.duties.takeovers.get(id)
            planned = self.duties.plans.get(id, ())
            early = made is None and planned[:1] == (self_id,) and id not in orphans
            if early or (made is not None and made.substitute == self_id):
                named[id] = broker.missed_at_ms
        steps += [StepBack(id) for id in sorted(self._stepped_in - named.keys())]
        for id in sorted(named.keys() - self._stepped_in):
            steps.append(StepIn(id, named[id], self._orphaned_sessions(id)))
        self._stepped_in = set(named)
        return steps

    def _orphaned_sessions(self, broker: BrokerId) -> tuple[FlowRow, ...]:
        """Subscriptions in sessions kept by ``broker``, of clients connected to no third broker.

        Clients connected to us are included: they may have missed messages while moving.
        """
        rows = [
            r for r in self.table.rows(broker) if r.keeps and r.action == "sub" and not r.gateway
        ]
        ours = {broker, self._links.self_id}
        return tuple(r for r in rows if ours.issuperset(self.table.connected_at(r.client)))

    # -- the guide --------------------------------------------------------------------------

    def guide(self) -> Guide:
        """The guide for the clients of our broker."""
        self_id, duties = self._links.self_id, self.duties
        records = {id: (broker.record, broker.state) for id, broker in self.presence}
        records[self_id] = (self.self_state, "draining" if self.self_state.draining else "up")
        if self._entered:
            term, number = duties.term, duties.number
        else:
            claim = self.standing.of(self.controller).claim
            term, number = (claim.term, claim.number) if claim is not None else (0, 0)
        return Guide(
            version=GUIDE_VERSION,
            federation=self._parameters.federation,
            broker=self_id,
            controller=self.controller,
            epoch=Epoch(term),
            number=number,
            brokers=tuple(
                GuideBroker(id, r.address, state, r.clients, r.load, duties.plans.get(id, ()))
                for id, (r, state) in sorted(records.items())
            ),
            takeovers=tuple(
                Takeover(t.broker, t.substitute, Epoch(t.term), t.number)
                for _, t in sorted(duties.takeovers.items())
            ),
        )

    def _publish(self, now_ms: Millis) -> list[Step]:
        """Orders to publish the guide anew when it changed, at most every ``guide_gap_ms``."""
        if "guide" in self._timers:
            return []
        guide = self.guide()
        if guide == self._guide:
            return []
        self._guide = guide
        self._timers.set("guide", Millis(now_ms + self._parameters.guide_gap_ms))
        return [PublishGuide(guide)]
