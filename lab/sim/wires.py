"""Makes, uses and breaks connections; the only place that draws delays and losses.

Both ends have an opinion about each connection (``open_here``, ``open_there``) and learn of its end
at different times, or, on a silent path, only when a keep-alive runs out. When the broker sees an
end without DISCONNECT it publishes the Will.

What befalls a path (cuts, silences, jams) adds up by cause, and each cause ends by itself.

Source: MQTT 5, section 3.1.2.5 (Will).
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from federator.protocol.events import Event, NeighbourConnected, NeighbourDisconnected
from federator.protocol.messages.control import Bye
from federator.protocol.types import BrokerId, ConnId
from lab.sim.agenda import Agenda
from lab.sim.network import Agent, Broker, Connection, Dialler, Path
from lab.sim.plan import LinkPlan, WorldPlan

RECONNECT_MS_MIN = 100
KEEP_ALIVE_MS = 10_000
BROKER_PATIENCE_MS = KEEP_ALIVE_MS * 3 // 2
"""A broker drops a silent client after one and a half keep-alives (MQTT 5, section 3.1.2.10)."""

Arrival = Callable[[BrokerId, str, bytes], None]
"""Called with (broker, kind, payload) for each publication on a control or data topic."""


def paths_along(link: LinkPlan) -> dict[tuple[BrokerId, BrokerId], Path]:
    """Both directions of a link, by who sends and who hears; where one end dials they are one."""
    ways = ((link.a, link.b), (link.b, link.a))
    if link.dialler is not None:
        other = link.b if link.dialler == link.a else link.a
        return dict.fromkeys(ways, Path(link.dialler, other, link.delay_ms_min, link.delay_ms_max))
    return {way: Path(*way, link.delay_ms_min, link.delay_ms_max) for way in ways}


def dialler_of(id: BrokerId, address: str, target: BrokerId, link: LinkPlan) -> Dialler:
    """How broker ``id`` dials a neighbour that its operator names."""
    expected, takes_outbox = target if link.ids_known else None, link.dialler == id
    return Dialler(address, target, expected, link.cost, takes_outbox=takes_outbox)


@dataclass(kw_only=True, eq=False, repr=False)
class Wires:
    """All connections between agents and neighbours' brokers."""

    agenda: Agenda
    rng: random.Random
    plan: WorldPlan
    paths: Mapping[tuple[BrokerId, BrokerId], Path]
    brokers: Mapping[BrokerId, Broker]
    agents: Mapping[BrokerId, Agent]
    arrival: Arrival
    will_of: Callable[[Agent, Bye], bytes]  # a Will as an agent leaves it with a broker
    tell: Callable[[Agent, Event], None]  # hands an event to an agent, in order, unless it died
    fired: Counter[str]

    def __post_init__(self) -> None:
        self.loss = self.plan.loss
        self.duplication = self.plan.duplication
        self._random = self.rng.random
        # By owner and target of a path, and kind of message.
        self.messages_sent: Counter[tuple[BrokerId, BrokerId, str]] = Counter()
        self.bytes_sent: Counter[tuple[BrokerId, BrokerId, str]] = Counter()

    # --- making ---

    def dial(self, agent: Agent, dialler: Dialler, after_ms: int = 0) -> None:
        """Try to connect, again and again, as long as ``agent`` lives and wants it."""
        dialler.pending += 1
        when_ms = self.agenda.now_ms + after_ms
        self.agenda.at(when_ms, self._attempt, agent, dialler, dialler.pending)

    def back_off_ms(self, failures: int) -> int:
        """Capped, jittered: 50 % to 100 % of the nominal wait."""
        nominal_ms = min(self.plan.reconnect_ms_max, RECONNECT_MS_MIN << min(failures, 16))
        return int(nominal_ms * (0.5 + self._random() / 2))

    def _attempt(self, agent: Agent, dialler: Dialler, ticket: int) -> None:
        if ticket != dialler.pending or not dialler.wanted:
            return
        if agent.pauses:
            self.dial(agent, dialler, RECONNECT_MS_MIN)
            return
        path, broker = self._way(agent, dialler)
        if not (path.usable and broker.running):
            dialler.failures += 1
            self.dial(agent, dialler, self.back_off_ms(dialler.failures))
            return
        answered_ms = self._arrival_ms(path) + self._delay_ms(path)
        self.agenda.at(answered_ms, self._connected, agent, dialler, ticket, broker.life)

    def _connected(self, agent: Agent, dialler: Dialler, ticket: int, broker_life: int) -> None:
        if ticket != dialler.pending or not dialler.wanted:
            return
        path, broker = self._way(agent, dialler)
        if agent.pauses or not path.usable or broker.life != broker_life or not broker.running:
            self.dial(agent, dialler, self.back_off_ms(dialler.failures))
            return
        dialler.failures = 0
        agent.connections_made += 1
        conn = ConnId(agent.connections_made)
        will = self.will_of(agent, Bye(agent.id, agent.node.links.epoch, conn))
        connection = Connection(conn, path, broker.id, will, broker_life)
        connection.takes_outbox = dialler.takes_outbox
        dialler.connection = connection
        agent.connections[conn] = (connection, dialler)
        former = broker.sessions.get((agent.id, dialler.address))
        if former is not None:
            self.fired["takeover"] += 1
            former.lost = True
            self._ended_there(former, dialler.address, graceful=False)
            if former.open_here:  # another dialler's, to the same address
                here_ms = self.agenda.now_ms + self._delay_ms(path)
                self.agenda.at(here_ms, self.ended_here, agent, former)
        broker.sessions[agent.id, dialler.address] = connection
        address, expected_id, cost = dialler.address, dialler.expected_id, dialler.cost
        event = NeighbourConnected(conn, address, expected_id, cost, dialler.takes_outbox)
        self.tell(agent, event)

    def _way(self, agent: Agent, dialler: Dialler) -> tuple[Path, Broker]:
        """The path to the broker that is dialled: to our own, none that anything befalls."""
        if dialler.outbox:
            return Path(agent.id, dialler.target, 0, 0), self.brokers[agent.id]
        return self.paths[agent.id, dialler.target], self.brokers[dialler.target]

    # --- using ---

    def transmit(self, connection: Connection, kind: str, payload: bytes) -> None:
        if not connection.open_here:
            return
        way = (connection.path.owner, connection.path.target, kind)
        self.messages_sent[way] += 1
        self.bytes_sent[way] += len(payload)
        carrier = self._carrier(connection)
        if carrier is None:
            self.fired["outbox_unheard"] += 1
            return
        if carrier.path.silences:
            self.fired["silent_drop"] += 1
            return
        if self.loss and self._random() < self.loss:
            self.fired["loss"] += 1
            return
        arrival_ms = max(self._arrival_ms(carrier.path), connection.last_arrival_ms)
        connection.last_arrival_ms = arrival_ms
        self.agenda.at(arrival_ms, self._arrive, connection, carrier, kind, payload)
        if self.duplication and self._random() < self.duplication:
            self.fired["duplication"] += 1
            self.agenda.at(arrival_ms, self._arrive, connection, carrier, kind, payload)

    def _carrier(self, connection: Connection) -> Connection | None:
        """The connection that carries what is published: another's, out of its outbox, if any."""
        if not connection.in_outbox:
            return connection
        taker = self.agents.get(connection.path.target)
        held = [] if taker is None else [each for each, _ in taker.connections.values()]
        carriers = (
            each
            for each in held
            if each.takes_outbox and each.at == connection.at and each.open_there and not each.lost
        )
        return next(carriers, None)

    def _arrive(
        self, connection: Connection, carrier: Connection, kind: str, payload: bytes
    ) -> None:
        broker = self.brokers[carrier.at]
        if carrier.lost or carrier.path.silences or broker.life != carrier.broker_life:
            return
        if connection.in_outbox and not carrier.open_here:
            return
        if broker.running:
            self.arrival(connection.path.target, kind, payload)

    def _delay_ms(self, path: Path) -> int:
        spread = path.delay_ms_max - path.delay_ms_min
        return path.delay_ms_min + (int(self._random() * (spread + 1)) if spread else 0)

    def _arrival_ms(self, path: Path) -> int:
        now_ms = self.agenda.now_ms
        if path.clogged_until_ms > now_ms:
            self.fired["clog"] += 1
            return path.clogged_until_ms
        return now_ms + self._delay_ms(path)

    # --- ending ---

    def close(self, agent: Agent, connection: Connection, *, graceful: bool) -> None:
        """The agent's end closes, with a DISCONNECT or just so; what is on its way arrives."""
        connection.open_here = False
        _, dialler = agent.connections.pop(connection.id)
        dialler.connection = None
        if connection.path.silences or connection.lost:
            gone_ms = self.agenda.now_ms + BROKER_PATIENCE_MS
            self.agenda.at(gone_ms, self._ended_there, connection, dialler.address)
            return
        end_ms = max(self._arrival_ms(connection.path), connection.last_arrival_ms)
        self.agenda.at(end_ms, self._closed, connection, dialler.address, graceful)

    def _closed(self, connection: Connection, address: str, graceful: bool) -> None:
        if not connection.lost:
            self._ended_there(connection, address, graceful=graceful)

    def reset(self, agent: Agent, connection: Connection) -> None:
        """The network resets it: both ends learn soon, what is on its way is lost."""
        if connection.lost:
            return
        connection.lost = True
        dialler = agent.connections[connection.id][1]
        there_ms = self.agenda.now_ms + self._delay_ms(connection.path)
        self.agenda.at(there_ms, self._ended_there, connection, dialler.address)
        here_ms = self.agenda.now_ms + self._delay_ms(connection.path)
        self.agenda.at(here_ms, self.ended_here, agent, connection)

    def ended_here(self, agent: Agent, connection: Connection) -> None:
        """The agent learns that its connection is gone, and tries again later."""
        if not connection.open_here:
            return
        connection.open_here = False
        connection.lost = True
        _, dialler = agent.connections.pop(connection.id)
        dialler.connection = None
        self.tell(agent, NeighbourDisconnected(connection.id))
        self.dial(agent, dialler, self.back_off_ms(dialler.failures))

    def _ended_there(self, connection: Connection, address: str, graceful: bool = False) -> None:
        """The broker learns that a client is gone, and publishes its Will."""
        if not connection.open_there:
            return
        connection.open_there = False
        path = connection.path
        broker = self.brokers[connection.at]
        if broker.life != connection.broker_life or not broker.running:
            return
        if broker.sessions.get((path.owner, address)) is connection:
            del broker.sessions[path.owner, address]
        if graceful:
            return
        self.fired["will"] += 1
        if not connection.in_outbox:
            self.arrival(path.target, "ctl", connection.will)
        elif (carrier := self._carrier(connection)) is not None:
            will = (connection, carrier, "ctl", connection.will)
            self.agenda.at(self._arrival_ms(carrier.path), self._arrive, *will)

    def give_up_there(self, connection: Connection, address: str) -> None:
        """The broker's patience with a silent client ran out."""
        connection.lost = True
        self._ended_there(connection, address)

    # --- what befalls paths ---

    def reset_path(self, path: Path) -> None:
        for agent, connection, _ in self._on(path):
            self.reset(agent, connection)

    def cut(self, path: Path) -> None:
        """Reset the connections and allow no new ones."""
        path.cuts += 1
        self.reset_path(path)

    def mend(self, path: Path) -> None:
        path.cuts -= 1

    def silence(self, path: Path) -> None:
        """Let everything vanish, until a keep-alive runs out or the path speaks again."""
        path.silences += 1
        now_ms, at = self.agenda.now_ms, self.agenda.at
        for agent, connection, dialler in self._on(path):
            if not connection.lost:
                connection.lost = True
                at(now_ms + KEEP_ALIVE_MS, self.ended_here, agent, connection)
                gone_ms = now_ms + BROKER_PATIENCE_MS
                at(gone_ms, self.give_up_there, connection, dialler.address)

    def unsilence(self, path: Path) -> None:
        """New connections work again; the old ones are answered with a reset."""
        path.silences -= 1
        for agent, connection, _ in () if path.silences else self._on(path):
            if connection.lost:
                self.agenda.at(self.agenda.now_ms + 1, self.ended_here, agent, connection)

    def _on(self, path: Path) -> list[tuple[Agent, Connection, Dialler]]:
        agent = self.agents.get(path.owner)
        if agent is None:
            return []
        return [(agent, each, d) for each, d in agent.connections.values() if each.path is path]
