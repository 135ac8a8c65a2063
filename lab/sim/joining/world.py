"""A world of which only links and places are real: a hundred brokers for minutes in a few seconds.

Each broker is a daemon's own ``Node``; hellos and byes travel as they do. Announcements, which the
other worlds prove, are told here as what they come to: what a broker says of its place is passed on
from neighbour to neighbour, and who is in no way reachable any more is given up a moment later.

Brokers live in a plane, and what they say takes as long as the way is.
"""

import math
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from federator.protocol import effects as e
from federator.protocol import events
from federator.protocol.messages.control import Bye, Hello
from federator.protocol.messages.places import Place, encode_place
from federator.protocol.node import Identity, Node
from federator.protocol.parameters import Parameters
from federator.protocol.topology.graph import near_of, parts_of
from federator.protocol.topology.parameters import TopologyParameters
from federator.protocol.types import BrokerId, ConnId, Epoch, Millis
from lab.sim.agenda import Clocked
from lab.sim.plan import address_of

CALLS_MAX = 20_000_000
RECONNECT_MS_MIN, RECONNECT_MS_MAX = 100, 5_000
GIVEN_UP_AFTER_MS = 1_000
"""A core out of reach is solicited for, and then given up: about so long after."""

NEAREST_MS, FARTHEST_MS = 1, 60  # one way, of brokers beside each other and in opposite corners

PARAMETERS = Parameters(
    dial_back=False,
    core_ann_interval_ms=Millis(600_000),
    hello_interval_ms=Millis(2_000),
    hello_timeout_ms=Millis(6_000),
)
"""Rarer than a daemon's, for there are many of them."""


@dataclass(slots=True, eq=False)
class _Dialler:
    """Keeps a connection to one address up."""

    address: str
    expected_id: BrokerId | None  # ``None``: whoever is there, as at a seed
    wanted: bool = True
    failures: int = 0
    conn: ConnId | None = None


@dataclass(slots=True, eq=False)
class Host:
    """A broker and its agent."""

    id: BrokerId
    node: Node
    diallers: list[_Dialler] = field(default_factory=list)
    open: dict[ConnId, _Dialler] = field(default_factory=dict)
    conns: int = 0
    armed_at_ms: Millis | None = None
    # Places that reached it: version and word, by broker.
    heard: dict[BrokerId, tuple[int, Place]] = field(default_factory=dict)
    # Since when its end of a link is up.
    up_since_ms: dict[BrokerId, Millis] = field(default_factory=dict)


class JoiningWorld(Clocked):
    """Brokers that come, go and are split apart; ``seed`` is the only source of chance."""

    def __init__(self, seed: int, parameters: TopologyParameters) -> None:
        super().__init__(calls_max=CALLS_MAX)
        self.hosts: dict[BrokerId, Host] = {}  # who is alive
        self.cut: frozenset[BrokerId] = frozenset()  # who does not reach the others now
        self.changes: list[Millis] = []  # when ends of links came up or went down
        self._parameters = parameters
        self._rng = random.Random(f"joining {seed}")
        self._where: dict[BrokerId, tuple[float, float]] = {}
        self._ways_ms: dict[tuple[BrokerId, BrokerId], int] = {}
        self._disks: dict[BrokerId, tuple[Epoch, tuple[tuple[BrokerId, str], ...]]] = {}
        self._versions = 0
        self._look_pending = False

    # --- what befalls brokers ---

    def start(self, id: BrokerId, seeds: Collection[BrokerId]) -> None:
        """A broker and its agent start; they know ``seeds``, and what they knew before."""
        if id in self.hosts:
            return
        epoch, known = self._disks.get(id, (Epoch(0), ()))
        epoch = Epoch(epoch + 1)
        self._disks[id] = (epoch, known)
        self._where.setdefault(id, (self._rng.random(), self._rng.random()))
        topology = replace(
            self._parameters, seeds=tuple(address_of(seed) for seed in seeds), known=known
        )
        node = Node(Identity(id, epoch, address_of(id)), PARAMETERS, topology=topology)
        self.hosts[id] = host = Host(id, node)
        self._handle(host, events.LocalBrokerUp())

    def kill(self, id: BrokerId) -> None:
        """A broker and its agent die at once."""
        host = self.hosts.pop(id)
        self.fired["death"] += 1
        for dialler in host.diallers:
            dialler.wanted = False
            if dialler.conn is not None:
                self._publish(host, dialler.address, Bye(id, host.node.links.epoch, dialler.conn))
        for other in self.hosts.values():
            for conn, dialler in list(other.open.items()):
                if dialler.address == address_of(id):
                    self._break(other, conn)
        self._look_soon()

    def split(self, apart: Collection[BrokerId]) -> None:
        """``apart`` and the others reach each other no more; nobody apart heals it."""
        self.cut = frozenset(apart)
        self.fired["split" if apart else "heal"] += 1
        for host in self.hosts.values():
            for conn, dialler in list(host.open.items()):
                if not self._reaches(host.id, id_at(dialler.address)):
                    self._break(host, conn)
        self._look_soon()

    # --- what is so ---

    def graph(self) -> dict[BrokerId, set[BrokerId]]:
        """The links that are up at both ends."""
        up = {id: set(host.node.links.up) for id, host in self.hosts.items()}
        pairs = [(a, b) for a, others in up.items() for b in others if a < b and a in up.get(b, ())]
        return near_of(self.hosts, pairs)

    def way_ms(self, a: BrokerId, b: BrokerId) -> int:
        """How long a word takes from one broker to another."""
        if (a, b) not in self._ways_ms:
            share = math.dist(self._where[a], self._where[b]) / math.sqrt(2)
            self._ways_ms[a, b] = round(NEAREST_MS + share * (FARTHEST_MS - NEAREST_MS))
        return self._ways_ms[a, b]

    # --- inside: connections ---

    def _reaches(self, a: BrokerId, b: BrokerId) -> bool:
        return b in self.hosts and (a in self.cut) == (b in self.cut)

    def _dial(self, host: Host, address: str, expected_id: BrokerId | None) -> None:
        host.diallers.append(_Dialler(address, expected_id))
        self._attempt(host, host.diallers[-1])

    def _attempt(self, host: Host, dialler: _Dialler) -> None:
        if not dialler.wanted or self.hosts.get(host.id) is not host:
            return
        target = id_at(dialler.address)
        if target in self._where and self._reaches(host.id, target):
            self._later(3 * self.way_ms(host.id, target), self._connected, host, dialler)
            return
        dialler.failures += 1
        nominal_ms = min(RECONNECT_MS_MAX, RECONNECT_MS_MIN << min(dialler.failures, 16))
        self._later(int(nominal_ms * self._rng.uniform(0.5, 1)), self._attempt, host, dialler)

    def _connected(self, host: Host, dialler: _Dialler) -> None:
        if not dialler.wanted or self.hosts.get(host.id) is not host:
            return
        if not self._reaches(host.id, id_at(dialler.address)):
            self._attempt(host, dialler)
            return
        dialler.failures = 0
        host.conns += 1
        dialler.conn = ConnId(host.conns)
        host.open[dialler.conn] = dialler
        up = events.NeighbourConnected(dialler.conn, dialler.address, dialler.expected_id)
        self._handle(host, up)

    def _break(self, host: Host, conn: ConnId) -> None:
        """The connection is reset; its owner tries again."""
        dialler = host.open.pop(conn)
        dialler.conn = None
        self._later(1, self._broken, host, dialler, conn)

    def _broken(self, host: Host, dialler: _Dialler, conn: ConnId) -> None:
        if self.hosts.get(host.id) is host:
            self._handle(host, events.NeighbourDisconnected(conn))
            self._attempt(host, dialler)

    def _end(self, host: Host, wanted: Collection[_Dialler]) -> None:
        """Close these for good."""
        for dialler in wanted:
            dialler.wanted = False
            host.diallers.remove(dialler)
            if dialler.conn is not None:
                del host.open[dialler.conn]

    # --- inside: events and effects ---

    def _handle(self, host: Host, event: events.Event) -> None:
        if self.hosts.get(host.id) is not host:
            return
        effects = host.node.handle(event, now_ms=self.agenda.now_ms)
        for effect in effects:
            self._perform(host, effect)
        self._pass_on_own(host)
        self._arm(host)

    def _perform(self, host: Host, effect: e.Effect) -> None:
        if not isinstance(effect, e.Send | e.Measure):
            self.trace.append((self.agenda.now_ms, host.id, effect))
        match effect:
            case e.Send(conn, message):
                dialler = host.open.get(conn)
                if dialler is not None and isinstance(message, Hello | Bye):
                    self._publish(host, dialler.address, message)
            case e.Dial(id, address):
                self._end(host, [d for d in host.diallers if d.expected_id == id])
                self._dial(host, address, id)
            case e.CallOff(id):
                self._end(host, [d for d in host.diallers if d.expected_id == id])
            case e.DialSeed(address):
                self._dial(host, address, None)
            case e.CallOffSeed(address):
                self._end(
                    host,
                    [d for d in host.diallers if d.expected_id is None and d.address == address],
                )
            case e.HangUp(conn):
                self._end(host, [d for d in host.diallers if d.conn == conn])
            case e.NeighbourReachable(neighbour):
                self.changes.append(self.agenda.now_ms)
                self._look_soon()
                host.up_since_ms[neighbour] = self.agenda.now_ms
                for id in sorted(host.heard):
                    self._tell_place(host, neighbour, id)
            case e.NeighbourUnreachable(neighbour):
                self.changes.append(self.agenda.now_ms)
                self._look_soon()
                host.up_since_ms.pop(neighbour, None)
            case e.Measure(id, address):
                far_ms = 2 * self.way_ms(host.id, id)
                found_ms = far_ms if self._reaches(host.id, id_at(address)) else None
                self._later(far_ms, self._handle, host, events.Measured(id, found_ms))
            case e.RememberBrokers(brokers):
                self._disks[host.id] = (self._disks[host.id][0], brokers)
            case e.Notice(name):
                self.fired[f"notice {name}"] += 1
            case _:
                pass

    def _publish(self, host: Host, address: str, message: Hello | Bye) -> None:
        target = id_at(address)
        if self._reaches(host.id, target):
            self._later(self.way_ms(host.id, target), self._arrive, target, message)

    def _arrive(self, target: BrokerId, message: Hello | Bye) -> None:
        if target in self.hosts:
            self._handle(self.hosts[target], events.Received(message))

    def _arm(self, host: Host) -> None:
        at_ms = host.node.next_deadline_ms()
        if at_ms is not None and (host.armed_at_ms is None or at_ms < host.armed_at_ms):
            host.armed_at_ms = at_ms
            self.agenda.at(at_ms, self._wake, host, at_ms)

    def _wake(self, host: Host, at_ms: Millis) -> None:
        if self.hosts.get(host.id) is host and host.armed_at_ms == at_ms:
            host.armed_at_ms = None
            self._handle(host, events.DeadlineReached())

    def _later(self, after_ms: int, call: Callable[..., None], *args: object) -> None:
        self.agenda.at(self.agenda.now_ms + after_ms, call, *args)

    # --- inside: places ---

    def _pass_on_own(self, host: Host) -> None:
        said, known = host.node.topology.said, host.heard.get(host.id)
        if said is not None and (known is None or known[1] != said):
            self._versions += 1
            host.heard[host.id] = (self._versions, said)
            self.fired["places announced"] += 1
            self._flood(host, host.id)

    def _flood(self, host: Host, id: BrokerId) -> None:
        """Tell everybody, each when the word comes to him over the links that are up now."""
        begun_ms, (version, place) = self.agenda.now_ms, host.heard[id]
        arrival_ms = {host.id: int(begun_ms)}
        border = [(int(begun_ms), host.id)]
        while border:
            at_ms, here = heappop(border)
            if at_ms > arrival_ms[here]:
                continue
            for other in self.hosts[here].up_since_ms:
                then_ms = at_ms + self.way_ms(here, other)
                if self._reaches(here, other) and then_ms < arrival_ms.get(other, then_ms + 1):
                    arrival_ms[other] = then_ms
                    heappush(border, (then_ms, other))
        for other, at_ms in arrival_ms.items():
            self.agenda.at(at_ms, self._hear_place, other, id, version, place, begun_ms)

    def _tell_place(self, host: Host, neighbour: BrokerId, id: BrokerId) -> None:
        if self._reaches(host.id, neighbour):
            version, place = host.heard[id]
            at_ms = self.agenda.now_ms + self.way_ms(host.id, neighbour)
            self.agenda.at(at_ms, self._hear_place, neighbour, id, version, place, None)

    def _hear_place(
        self, at: BrokerId, id: BrokerId, version: int, place: Place, begun_ms: Millis | None
    ) -> None:
        """A word of ``id`` arrives, of a flood that began then or from a new neighbour."""
        host = self.hosts.get(at)
        before = host.heard.get(id) if host is not None else None
        if host is None or id == at or (before is not None and before[0] >= version):
            return
        host.heard[id] = (version, place)
        removed = {encode_place(before[1])} if before is not None else set[str]()
        self._announce(host, id, {encode_place(place)}, removed, lost=False)
        for neighbour, since_ms in host.up_since_ms.items():
            if begun_ms is None or since_ms >= begun_ms:  # a flood did not know of this link
                self._tell_place(host, neighbour, id)

    def _look_soon(self) -> None:
        if not self._look_pending:
            self._look_pending = True
            self._later(GIVEN_UP_AFTER_MS, self._give_up_lost)

    def _give_up_lost(self) -> None:
        """Who is out of reach is heard no more."""
        self._look_pending = False
        for part in parts_of(self.graph()):
            for id in part:
                host = self.hosts[id]
                for other in [other for other in host.heard if other not in part]:
                    _, place = host.heard.pop(other)
                    self._announce(host, other, set(), {encode_place(place)}, lost=True)

    def _announce(
        self, host: Host, core: BrokerId, added: set[str], removed: set[str], *, lost: bool
    ) -> None:
        now_ms = self.agenda.now_ms
        host.node.topology.on_announced(core, added, removed, lost=lost, now_ms=now_ms)


def id_at(address: str) -> BrokerId:
    return BrokerId(int(address.removeprefix("mqtt://b")))
