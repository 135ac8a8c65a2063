"""Plausible mistakes in the protocol: the agent's own code with one line's worth of it changed."""

from functools import wraps

from federator.protocol.controller.duties import ControllerDuties
from federator.protocol.controller.failover import Failover
from federator.protocol.controller.presence import BrokerPresence
from federator.protocol.custody.origin import Origin
from federator.protocol.custody.owed import Owed
from federator.protocol.custody.proofs import FrameJudge
from federator.protocol.custody.receiver import Receiver
from federator.protocol.data.intake import Intake
from federator.protocol.data.plane import DataPlane
from federator.protocol.discovery.reconciliation import Reconciliation
from federator.protocol.duplicates import DuplicateLog
from federator.protocol.effects import HangUp
from federator.protocol.filters import CoverChange
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.leaves.bounded_cover import BoundedCover
from federator.protocol.leaves.hub_choice import HubChoice
from federator.protocol.leaves.serving import Serving
from federator.protocol.leaves.stamps import StampBook
from federator.protocol.leaves.switch import Switch
from federator.protocol.links.links import Links
from federator.protocol.links.neighbour import LinkConnection
from federator.protocol.routing.announcements import Announcements
from federator.protocol.routing.core_route import CoreRoute
from federator.protocol.routing.flooding import Flooding
from federator.protocol.routing.meshes import Meshes
from federator.protocol.routing.own_core import OwnCore
from federator.protocol.routing.topic_routing import TopicRouting
from federator.protocol.topology.manager import TopologyManager
from federator.protocol.topology.rings import Rings
from federator.protocol.trust.peers import Peer
from federator.protocol.trust.proofs import ProofJudge
from federator.protocol.types import Epoch
from lab.sim import world
from lab.sim.data import DataPath
from lab.sim.disks import CustodyDisk, FrameLog
from lab.sim.messages import draw as messages
from lab.sim.messages.brokers import MessageBroker
from lab.sim.messages.real_clients import RealClients


def instead_of(owner, name):
    """Plant the function below for a method: it gets the real one before its arguments."""

    def mistake(mutant):
        real = getattr(owner, name)

        @wraps(mutant)
        def plant(monkeypatch):
            monkeypatch.setattr(owner, name, lambda *args, **more: mutant(real, *args, **more))

        return plant

    return mistake


@instead_of(Announcements, "on_announcement")
def forwards_on_equal_cost(real, self, ann, *, now_ms):
    """Passes an announcement on again whenever another copy of it comes that is as cheap."""
    steps = real(self, ann, now_ms=now_ms)
    route = self.routes.get(ann.core)
    if route is None or not route.reachable or ann.sender not in route.parents:
        return steps
    return steps + self._correct(route)


@instead_of(Meshes, "on_membership")
def core_ignores_children(real, self, message, *, now_ms):
    """The core does not note who chose it as a parent."""
    return [] if message.core == self._links.self_id else real(self, message, now_ms=now_ms)


def parents_reset_by_equal_copies(monkeypatch):
    """The last copy that is as cheap as the best replaces the parents instead of joining them."""
    last_sender = []

    @instead_of(Announcements, "on_announcement")
    def remember_sender(real, self, ann, *, now_ms):
        last_sender[:] = [ann.sender]
        return real(self, ann, now_ms=now_ms)

    @instead_of(CoreRoute, "choose")
    def choose_last(real, self, *args, **kwargs):
        real(self, *args, **kwargs)
        self.parents = tuple(p for p in self.parents if p in last_sender) or self.parents[-1:]

    remember_sender(monkeypatch)
    choose_last(monkeypatch)


@instead_of(world.World, "_start")
def reuses_an_epoch(real, self, id):
    """A restarted agent counts from 0 again, in the epoch it had before."""
    self.disks[id].epoch = Epoch(world.FIRST_EPOCH - 1)
    real(self, id)


@instead_of(OwnCore, "announce_soon")
def no_announcement_until_an_interval_passed(real, self, *, now_ms):
    """Changes wait for the next refresh."""
    if self.due_ms is None:
        self.due_ms = now_ms + self._parameters.core_ann_interval_ms
    return []


@instead_of(DuplicateLog, "admit")
def duplicate_log_by_count_only(real, self, origin, epoch, seq, *, k, mask, sender):
    """Remembers the last few frames, whosever they are."""
    last = self.__dict__.setdefault("last", [])
    if (origin, epoch, seq) in last:
        return False, 0
    last.append((origin, epoch, seq))
    del last[:-4]
    return True, mask


@instead_of(CoreRoute, "choose")
def no_feasibility_condition(real, self, *args, **kwargs):
    """Any neighbour may become a parent, also one whose path leads through us."""
    self.feasible_cost = 2**31
    return real(self, *args, **kwargs)


def flooding_does_not_end(monkeypatch):
    """What lost its core is handed to all neighbours from then on."""
    monkeypatch.setattr(Flooding, "pop_due", lambda self, now_ms: ([], []))
    monkeypatch.setattr(Flooding, "next_deadline_ms", lambda self: None)


@instead_of(CoreRoute, "choose")
def only_ties(real, self, link_cost, *, redundancy, slack_percent):
    """Nothing but ties of least cost become parents."""
    real(self, link_cost, redundancy=redundancy, slack_percent=0)


@instead_of(CoreRoute, "choose")
def by_first_words(real, self, *args, **kwargs):
    """What we are about to say does not count: who is as far from the core may be a parent."""
    said, self.feasible_cost = self.feasible_cost, 2**31
    real(self, *args, **kwargs)
    self.feasible_cost = min(said, self.cost)


@instead_of(LinkConnection, "announced_address")
def is_not_dialled_for_its_outbox(real, self, ours):
    """Who comes for what is said does not say so, and is never linked."""
    return ours


@instead_of(TopicRouting, "on_core_moved")
def goes_by_the_last_parent(real, self, core):
    """Some brokers break ties between equally good next hops in another way."""
    route = self._announcements.routes.get(core)
    if route is None or (self._links.self_id + core) % 2:
        return real(self, core)
    parents, route.parents = route.parents, route.parents[::-1]
    steps = real(self, core)
    route.parents = parents
    return steps


@instead_of(TopicRouting, "on_announced")
def forgets_no_destination(real, self, core, records, *, lost):
    """Records that are taken back stay."""
    announced = self._announcements.routes[core].announced.filters
    return real(self, core, [r for r in records if r in announced], lost=lost)


@instead_of(Forwarder, "_note")
def remembers_old_ways(real, self, beginning):
    """Routes of topics are not looked up again when a destination moved."""


@instead_of(Forwarder, "_label")
def tells_everybody_every_way(real, self, found, destinations, tree=b""):
    """Copies go to all neighbours, each for all destinations."""
    keys, sends = real(self, found, destinations, tree)
    masks = [int.from_bytes(mask, "little") for _, mask in sends]
    every = sum(masks).to_bytes(len(sends[0][1]), "little") if sends else b""
    hops = {*self._by_way_of.values()}
    return keys, tuple((hop, every) for hop in sorted(hops)) if sends else ()


@instead_of(Origin, "send_tails")
def tails_go_down_meshes_only(real, self, now_ms):
    """The ends of chains take no shortest path."""
    label = self.forwarder._label
    self.forwarder._label = lambda found, ends, tree=b"": (b"", ())
    real(self, now_ms)
    self.forwarder._label = label


@instead_of(TopicRouting, "_only_collects")
def keeps_what_somebody_else_wants(real, self, filter_, state):
    """One edge that collects a filter is enough to keep it."""
    return any(filter_ in self.collected_by(each) for each in state.brokers)


def forgets_to_widen_on_mismatch(monkeypatch):
    """The broker counts more subscriptions than we know, and we trust what we know."""

    def trust(self, **_):
        self.doubt = None

    monkeypatch.setattr(Reconciliation, "_check", trust)
    monkeypatch.setattr(Reconciliation, "_reconsider", trust)


@instead_of(DataPlane, "on_publishes")
def acknowledges_early(real, self, chunk, publishes, now):
    """The broker is told to forget a publication before it is in the log."""
    ids = [(packet.packet_id, 1) for packet, _, _ in publishes if packet.packet_id is not None]
    if ids:
        link = self.delivery.link
        link.acknowledge(ids, session_number=link.session_number)
    real(self, chunk, publishes, now)


@instead_of(DataPlane, "on_publishes")
def a_hub_acknowledges_early(real, self, chunk, publishes, now):
    """A hub tells its broker to forget a publication before it is in the log."""
    stamps = self.delivery.stamps
    if stamps is not None and stamps.book.secret is not None:
        acknowledges_early.__wrapped__(real, self, chunk, publishes, now)
    else:
        real(self, chunk, publishes, now)


@instead_of(Intake, "acknowledge")
def acknowledges_what_waits_for_the_log(real, self, link, packet_ids):
    """The log could not be written, and the broker is told to forget all the same."""
    link.acknowledge(packet_ids, session_number=link.session_number)


@instead_of(CustodyDisk, "open")
def reuses_an_epoch_of_the_log(real, self, epoch):
    """A log that was lost begins anew in the epoch that it had."""
    if self.log is None:
        self.log = FrameLog(world.FIRST_EPOCH, records_max=self.records_max)
    return self.log


@instead_of(Owed, "on_route")
def owes_nothing(real, self, filter, route, *, lost, now_ms, collected):
    """Who goes out of reach is forgotten."""
    return route


@instead_of(Receiver, "asks")
def never_asks(real, self, now_ms):
    """A gap is noticed, and nobody asks for what is missing."""
    return real(self, now_ms)[:0]


@instead_of(Receiver, "_begin")
def takes_any_old_frame_for_a_copy(real, self, *args):
    """A chain speaks of frames from before it was followed, too."""
    chain = real(self, *args)
    chain.begun = 0
    return chain


@instead_of(Switch, "change")
def misses_a_filter(real, self, source, demand, now_ms):
    """What a leaf wants is summed up so that one filter is left out."""
    less = CoverChange(demand.subscribe[:-1], demand.unsubscribe)
    return real(self, source, less if isinstance(source, int) else demand, now_ms)


def both_serve(monkeypatch):
    """A leaf returns to the old hub, and the other one goes on serving."""

    @instead_of(Serving, "choose")
    def choose_besides(real, self, served, others, *, resumes=False):
        return real(self, served, () if self.served else others, resumes=resumes)

    @instead_of(Serving, "on_announced")
    def go_on(real, self, leaf, *, now_ms):
        before = self.of(leaf)
        serves = before is not None and before.hub == self._self_id
        return [] if serves else real(self, leaf, now_ms=now_ms)

    choose_besides(monkeypatch)
    go_on(monkeypatch)


@instead_of(StampBook, "find")
def knows_nothing_again(real, self, stamp):
    """What comes by both hubs is new each time."""


@instead_of(HubChoice, "_choose")
def looks_not_back(real, self, hub, now):
    """What was under way when the hub died is not asked for at the other one."""
    self._look_back_us, self._behind_us = 0, now.us
    return real(self, hub, now)


@instead_of(MessageBroker, "connect")
def hears_itself(real, self, *args, no_local=False, **kwargs):
    """An agent does not ask its broker to keep its own publications from it."""
    return real(self, *args, **kwargs)


@instead_of(Switch, "change")
def does_not_tell_the_mesh_what_leaves_want(real, self, source, demand, now_ms):
    for changes in filter(None, real(self, source, demand, now_ms)):
        to_leaves = {side: each for side, each in changes.items() if side is not None}
        yield to_leaves if isinstance(source, int) else changes


def sums_up_and_misses_a_filter(monkeypatch):
    @instead_of(BoundedCover, "steps")
    def narrow(real, self, added, removed):
        change = yield from real(self, added, removed)
        if len(self.filters) == self._max:
            for filter_ in change.subscribe:
                if "+" in filter_ and not self.wants(filter_):
                    self._let_go(filter_)
        return change

    narrow(monkeypatch)
    monkeypatch.setattr(messages, "FILTERS_MAX", (9,))


@instead_of(DataPath, "read")
def a_hub_does_not_log(real, self, run):
    if self._agent.id not in self._world.part(RealClients).ledger.relays:
        real(self, run)


@instead_of(ControllerDuties, "decide")
def decides_anew(real, self, situation, table):
    self.takeovers = {}
    self.plans = {}
    real(self, situation, table)


@instead_of(ControllerDuties, "begin_term")
def terms_stand(real, self, *, after):
    self.term, self.number = 1, 1


@instead_of(Failover, "_adopt")
def adopts_nothing(real, self, now_ms):
    if not self.is_controller:
        real(self, now_ms)


@instead_of(ControllerDuties, "replan")
def plans_once(real, self, situation, table):
    if not self.plans:
        real(self, situation, table)


@instead_of(BrokerPresence, "come")
def nobody_is_back(real, self, id, record):
    if id in self.known and self.known[id].gone:
        return False
    return real(self, id, record)


@instead_of(TopologyManager, "_let_go")
def never_lets_go(real, self, beside, now_ms):
    return []


@instead_of(Rings, "beside")
def sits_alone(real, self, id, *, skip=()):
    return set()


@instead_of(TopologyManager, "_fill")
def never_fills(real, self, beside, lost, now_ms):
    return []


@instead_of(Peer, "admit")
def takes_seals_twice(real, self, channel, counter):
    """What was recorded is believed again."""
    return True


@instead_of(ProofJudge, "check_announcement")
def believes_anybody_about_cores(real, self, ann, *, now_s):
    """An announcement needs no signature of its core."""


@instead_of(Receiver, "on_word")
def asks_no_origin(real, self, *_):
    """What an origin says of its numbers is not listened to: a lie stays."""
    return []


@instead_of(FrameJudge, "believes")
def judges_no_frame(real, self, frame, size, now):
    """A frame is believed whoever made it."""
    return True


@instead_of(Links, "_on_own_hello")
def hangs_up_at_once(real, self, hello, now_ms):
    """A connection that seems to lead to our own broker is given up for good."""
    mine = self.connections.get(hello.conn)
    if hello.epoch == self.epoch and mine is not None and mine.neighbour is None:
        del self.connections[hello.conn]
        return [HangUp(hello.conn)]
    return real(self, hello, now_ms)
