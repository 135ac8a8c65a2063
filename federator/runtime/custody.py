"""Custody at work: its files, its timer, its marker on our broker.

Source: docs/protocol.md section 11; what decides is in ``protocol.custody``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import structlog
from mqtt5 import PublishPacket, QoS

from federator.protocol import effects as e
from federator.protocol.custody import Clocks, Custodian
from federator.protocol.forwarding import Forwarder, Sends
from federator.protocol.frames import Frame
from federator.protocol.messages import RepairRequest
from federator.protocol.own_topics import delivered_topic
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.alarm import Alarm
from federator.runtime.clocks import monotonic_ms
from federator.runtime.custody_log import CustodyLog
from federator.runtime.delivery_journal import DeliveryJournal
from federator.runtime.durable import FsyncPolicy
from federator.runtime.filter_file import OWED, SUBSCRIBED, FilterFile
from federator.runtime.mqtt_wire import packet_id_at

REPAIR_BACKLOG_BYTES_MAX = 262_144
"""Repairs wait until a connection has less of them to send than this."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CustodyStores:
    """What custody keeps on disk, and how long."""

    log: CustodyLog
    journal: DeliveryJournal
    owed: FilterFile
    subscribed: FilterFile
    keep_s: int

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        keep_s: int = 1_800,
        bytes_max: int = 268_435_456,
        fsync: FsyncPolicy = "never",
    ) -> Self:
        """Open, or make, what is in ``folder``.

        Raises:
            ConfigError: The folder cannot be used.
        """
        return cls(
            CustodyLog(folder / "log", bytes_max=bytes_max, age_max_s=keep_s, fsync=fsync),
            DeliveryJournal(folder),
            FilterFile(folder, OWED),
            FilterFile(folder, SUBSCRIBED),
            keep_s,
        )

    def close(self) -> None:
        """Write down what is not written yet."""
        self.log.close()
        self.journal.close()
        self.owed.close()
        self.subscribed.close()


class Broker(Protocol):
    """What custody needs of the connection to our broker."""

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        """Publish a ready-made QoS 1 packet."""

    @property
    def unacknowledged(self) -> int:
        """Messages that the broker has not acknowledged yet."""

    @property
    def room(self) -> bool:
        """Whether it can take a good deal more."""


class Carrier(Protocol):
    """What custody needs of the data path."""

    def broker(self) -> Broker | None:
        """The connection to our broker."""

    def send_copies(self, frame: Frame, sends: Sends, body: bytes) -> int:
        """Send copies of a frame of ours to next hops."""

    def send_repair(self, neighbour: BrokerId, frame: Frame) -> bool:
        """Send a repair to a neighbour, unless many wait to be sent there already."""

    def deliver(self, frame: Frame) -> None:
        """Publish a frame on our broker."""

    def number(self) -> tuple[Epoch, int]:
        """Epoch and number for a frame that is not under custody."""


class CustodyOutlet:
    """What the custodian has of the process: connections, a timer, the log for operators.

    Args:
        carrier: Sends and delivers.
        self_id: Our id.
        federation: The federation's name.

    Attributes:
        marker_topic: Where our broker keeps the marker.
        ask: Sends a request to a neighbour. Set by whoever has control connections.
        on_time: Called when it is time. Set by whoever makes the custodian.
    """

    def __init__(self, carrier: Carrier, *, self_id: BrokerId, federation: str) -> None:
        self.marker_topic = delivered_topic(federation, self_id)
        self.ask: Callable[[BrokerId, RepairRequest], None] = lambda neighbour, request: None
        self.on_time: Callable[[], None] = lambda: None
        self.send_copies = carrier.send_copies
        self.send_repair = carrier.send_repair
        self.deliver = carrier.deliver
        self.number = carrier.number
        self._broker = carrier.broker
        self._alarm = Alarm(lambda: self.on_time())

    @property
    def room(self) -> bool:
        """Our broker can take a good deal more."""
        broker = self._broker()
        return broker is not None and broker.room

    @property
    def settled(self) -> bool:
        """Our broker is connected, and has acknowledged all that we published."""
        broker = self._broker()
        return broker is not None and not broker.unacknowledged

    def mark(self, marker: bytes) -> None:
        """Have our broker keep ``marker`` behind all that we published."""
        broker = self._broker()
        if broker is not None:
            packet = bytearray(
                PublishPacket(
                    self.marker_topic, marker, qos=QoS.AT_LEAST_ONCE, retain=True, packet_id=1
                ).write()
            )
            broker.publish_packet(packet, packet_id_at(packet), 1)

    def wake(self, at_ms: Millis) -> None:
        """Call ``on_time`` at this instant of our monotonic clock; earlier wishes are void."""
        self._alarm.set(at_ms)

    def tell(self, notice: e.Notice) -> None:
        """Tell the operator."""
        getattr(_log, notice.level)(notice.name, **notice.details)


def custodian(
    outlet: CustodyOutlet,
    stores: CustodyStores,
    *,
    self_id: BrokerId,
    forwarder: Forwarder,
    hop_limit: int,
    wall_clock_us: Callable[[], int],
    held_bytes_max: int,
) -> Custodian:
    """The custodian of a running agent. See ``Custodian``."""
    made = Custodian(
        self_id=self_id,
        stores=stores,
        outlet=outlet,
        forwarder=forwarder,
        hop_limit=hop_limit,
        clocks=Clocks(monotonic_ms, wall_clock_us),
        held_bytes_max=held_bytes_max,
    )
    outlet.on_time = made.on_time
    return made


def counts(custody: Custodian, log: CustodyLog) -> dict[str, int]:
    """What operators see of custody; names as in the table of metrics, after ``custody_``."""
    receiver, origin = custody.destination.receiver, custody.origin
    return {
        "log_bytes": log.bytes,
        "log_records": log.records,
        "dropped_by_age": log.dropped_by_age,
        "dropped_for_room": log.dropped_for_room,
        "repairs": origin.repairs,
        "failures": sum(each.trouble.failures for each in (custody, origin, custody.destination)),
        "owed": custody.owed,
        "chains": len(receiver),
        "gaps": receiver.gaps,
        "held_bytes": receiver.held_bytes,
        "asked": receiver.asked,
        "duplicates": receiver.duplicates,
        "gone": receiver.voids,
    }
