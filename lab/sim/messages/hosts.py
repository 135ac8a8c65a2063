"""An agent beside its own broker: two connections, discovery through the log, custody, its disk.

What the runtime does between the broker and the protocol's machines, without sockets: subscribe
the log first, tell discovery what the broker says, subscribe the cover, save the table now and
then. The table in the file may be older than what was acknowledged, as after a real kill.

Source: docs/ARCHITECTURE.md, "Two local connections" and "Discovery".
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from federator.protocol import discovery as d
from federator.protocol.effects import Notice
from federator.protocol.messages.serving import Served
from federator.protocol.types import Millis
from lab.sim.data import DataPath, DataWorld, WakeUp, packet_of
from lab.sim.disks import KEEP_S, CustodyDisk
from lab.sim.messages.brokers import MessageBroker
from lab.sim.messages.data_connection import DataConnection, HostContext
from lab.sim.messages.sessions import Message, Session, control_client_id, data_client_id
from lab.sim.network import Agent

FED = "$fed/fed/"
CONTROL_SESSION_EXPIRY_MS = 60_000
SAVE_GAP_MS = 1_000

_CONTROL_TOPICS = tuple(
    FED + kind for kind in ("hello", "core_ann", "mesh_memb_ann", "ctl", "new_regular_topic")
)
_PROBES = (FED + "probe", f"$share/federator/{FED}probe")


@dataclass(slots=True)
class NoteFile:
    """On a host's disk: what was decided, and when it was touched, by the host's wall clock."""

    served: Served | None = None
    touched_us: int = 0


@dataclass(slots=True)
class HostDisk:
    """What an agent finds again when it starts: discovery's file, and what custody keeps."""

    custody: CustodyDisk = field(default_factory=CustodyDisk)
    closed: bool = False
    saved_at_ms: int = 0
    record: bytes = b""
    outdated: bool = False  # what came after ``record`` could not be written
    note: NoteFile = field(default_factory=NoteFile)  # of who serves a leaf with two hubs

    def lose(self) -> None:
        self.closed, self.saved_at_ms, self.record, self.outdated = False, 0, b"", False
        self.note = NoteFile()
        self.custody.lose()


@dataclass(eq=False, repr=False)
class Host:
    """The local side of one running agent."""

    agent: Agent
    broker: MessageBroker
    _disk: HostDisk  # what earlier lives of the agent left
    _path: DataPath
    connection: DataConnection
    _world: DataWorld
    _around: HostContext
    data: Session | None = None
    _control: Session | None = None
    _connections: tuple[int, int] = (0, 0)
    _cover: frozenset[str] = frozenset()
    _probing: bool = False
    _saved_revision: int = -1

    def __post_init__(self) -> None:
        self._agenda = self._world.agenda
        own_id = control_client_id(self.agent.id)
        self.discovery = d.Discovery(own_id=own_id, parameters=d.DiscoveryParameters())
        next_deadline_ms = self.discovery.next_deadline_ms
        self._wake_up = WakeUp(self.agent, self._world, next_deadline_ms, self._on_time)

    # --- the process ---

    def start(self) -> None:
        """Read the disk, and keep it up to date."""
        disk = self._disk
        self.agent.data.custody.resume(self._world.now_of(self.agent))
        if disk.record:
            record: d.DiscoveryRecord = d.decode_record(disk.record)
            away_ms = self._wall_ms() - disk.saved_at_ms
            known_ms = away_ms if disk.closed and away_ms >= 0 else None
            effects = self.discovery.load(
                record, away_ms=known_ms, now_ms=self._now_ms(), outdated=disk.outdated
            )
            self._perform(effects)
            disk.closed = False
        self._every_second()

    def end(self, *, orderly: bool) -> None:
        if orderly and not self.agent.doomed:
            self.agent.data.custody.destination.save(leaving=True)
            self._save(closed=True)
        self._hang_up(orderly=orderly)
        self.connection.process_dies()

    def _hang_up(self, *, orderly: bool) -> None:
        self.connection.down()
        for session, connection in zip((self._control, self.data), self._connections, strict=True):
            if session is not None:
                self.broker.disconnect(session, connection, orderly=orderly)
        self._control = self.data = None

    # --- the connections ---

    def connect(self) -> None:
        present, id = self._open(), self.agent.id
        now_ms = self._now_ms()
        self._perform(self.discovery.on_broker_up(session_present=present, now_ms=now_ms))
        for client_id, filters in (
            (control_client_id(id), self._control_filters()),
            (data_client_id(id), self._data_filters()),
        ):
            self.hold(client_id, filters)

    def _open(self) -> bool:
        """Connect, and go on with custody; whether the broker still had the control session."""
        id = self.agent.id
        control, present = self.broker.connect(
            control_client_id(id),
            partial(self._world.run, self.agent, self._hear),
            clean=False,
            persistent=True,
            protocol=5,
            expiry_ms=CONTROL_SESSION_EXPIRY_MS,
        )
        data, data_present = self.broker.connect(
            data_client_id(id),
            partial(self._world.run, self.agent, self._take_data),
            clean=self._disk.custody.is_new,
            persistent=True,
            protocol=5,
            expiry_ms=KEEP_S * 1_000,
            no_local=True,
        )
        self._control, self.data = control, data
        self._connections = control.connection, data.connection
        marker = {self.agent.data.delivery.marker_topic: 0}  # none is to wait in the session
        self.broker.subscribe(control, dict.fromkeys(self._control_filters(), 1) | marker)
        self.broker.subscribe(data, dict.fromkeys(self._data_filters(), 2))
        stale = tuple(sorted(set(data.filters) - set(self._data_filters())))
        if stale:
            self.broker.unsubscribe(data, stale)
        self.agent.data.intake.on_local_up(session_present=data_present)
        self.connection.up(data)
        self.agent.data.custody.destination.on_local_up(self._now_ms())
        return present

    def hold(self, client_id: str, filters: Iterable[str]) -> None:
        """Count what another connection of ours subscribes: lines of it may be missing."""
        own, now_ms = frozenset(filters), self._now_ms()
        self._perform(self.discovery.on_own_subscriptions(client_id, own, now_ms=now_ms))

    def disconnect(self) -> None:
        if self._close():
            self._perform(self.discovery.on_broker_down(now_ms=self._now_ms()))

    def _close(self) -> bool:
        """Hang up; whether there was something to."""
        if self._control is None:
            return False
        self._hang_up(orderly=False)
        self.agent.data.intake.on_local_down(self._world.now_of(self.agent))
        return True

    def set_cover(self, cover: frozenset[str]) -> None:
        gone, added = tuple(sorted(self._cover - cover)), sorted(cover - self._cover)
        self._cover = cover
        if self.data is None:
            return
        if added:
            self.broker.subscribe(self.data, dict.fromkeys(added, 2))
        if gone:
            self.broker.unsubscribe(self.data, gone)

    # --- within ---

    def _take_data(
        self, session: Session, connection: int, packet_id: int, message: Message
    ) -> None:
        if session is not self.data or connection != self._connections[1]:
            return
        wire = packet_of(
            message.topic,
            message.number,
            message.qos,
            packet_id,
            duplicate=message.duplicate,
            properties=message.properties,
        )
        self._path.read(wire)
        if message.qos:
            self.agent.data.intake.acknowledge(self.connection, [(packet_id, message.qos)])

    def _hear(self, session: Session, connection: int, packet_id: int, message: Message) -> None:
        if session is not self._control:
            return
        self.broker.acknowledge(session, connection, packet_id)
        now_ms, topic = self._now_ms(), message.topic
        if topic == self.agent.data.delivery.marker_topic:
            self.agent.data.custody.destination.on_marker(message.payload)
        elif topic in d.LOG_TOPICS:
            self._perform(self.discovery.on_log(topic, message.payload, now_ms=now_ms))
        else:
            said, stored = message.payload, message.stored
            self._perform(self.discovery.on_sys(topic, said, now_ms=now_ms, retained=stored))

    def _perform(self, effects: list[d.DiscoveryEffect]) -> None:
        for effect in effects:
            match effect:
                case d.InterestChanged(added, removed):
                    self._around.interest_changed(self.agent, added, removed)
                case d.ProbeCounts(subscribe):
                    self._probe(subscribe)
                case d.MembersChanged() | d.CountOwn() | d.CallRoll():
                    pass  # shared subscriptions, lost lines, others of ours: there are none here
                case Notice():
                    self._world.noticed(effect)
        self._wake_up.arm()

    def _probe(self, subscribe: bool) -> None:
        self._probing = subscribe
        if self._control is None:
            return
        if subscribe:
            self.broker.subscribe(self._control, dict.fromkeys(_PROBES, 0))
        else:
            self.broker.unsubscribe(self._control, _PROBES)

    def _on_time(self) -> None:
        deadline_ms = self.discovery.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self._now_ms():
            self._perform(self.discovery.on_deadline(now_ms=self._now_ms()))
        else:
            self._wake_up.arm()

    def _every_second(self) -> None:
        if self.discovery.revision != self._saved_revision:
            self._save(closed=False)
        self._around.tend(self.agent)
        when_ms = self._agenda.now_ms + SAVE_GAP_MS
        self._agenda.at(when_ms, self._world.run, self.agent, self._every_second)

    def _save(self, *, closed: bool) -> None:
        disk = self._disk
        disk.outdated = disk.custody.full_for > 0
        if disk.outdated:
            return
        self._saved_revision = self.discovery.revision
        disk.closed = closed
        disk.saved_at_ms = self._wall_ms()
        disk.record = d.encode_record(self.discovery.record(now_ms=self._now_ms()))

    def _control_filters(self) -> tuple[str, ...]:
        marker = self.agent.data.delivery.marker_topic
        probes = _PROBES if self._probing else ()
        return (*d.LOG_TOPICS, *d.SYS_TOPICS, *_CONTROL_TOPICS, marker, *probes)

    def _data_filters(self) -> tuple[str, ...]:
        return (self.agent.data.data_topic, *sorted(self._cover))

    @property
    def widened(self) -> bool:
        """Clients may want more than is known."""
        return self.discovery.widened

    def _now_ms(self) -> Millis:
        return self._world.now_of(self.agent).ms

    def _wall_ms(self) -> int:
        return self._agenda.now_ms + self._world.wall_offset_ms[self.agent.id]


class QuietHost(Host):
    """An agent beside a broker that logs nothing: it is told what clients want when it starts."""

    widened = False

    def connect(self) -> None:
        self._open()

    def disconnect(self) -> None:
        self._close()

    def hold(self, client_id: str, filters: Iterable[str]) -> None:
        """No lines are missing."""

    def _save(self, *, closed: bool) -> None:
        """There is no table."""

    def _control_filters(self) -> tuple[str, ...]:
        return (self.agent.data.delivery.marker_topic,)
