"""Both sides of sharing at one broker, between recorded connections."""

import mqtt5
from mqtt5 import PublishPacket, QoS

from federator.protocol.filters import FilterTrie
from federator.protocol.messages.group_records import MemberRecord
from federator.protocol.sharing.assignment import Assignment
from federator.protocol.sharing.ledger import Ledger, LedgerParameters
from federator.protocol.sharing.membership import Membership
from federator.protocol.sharing.parcels import pack_parcel, unpack_parcel
from federator.runtime.mqtt.wire import read_packets, split_run
from federator.runtime.sharing.destination import ShareDestination
from federator.runtime.sharing.origin import ShareCounters, ShareOrigin
from lab.sim.data import publish_each
from tests.protocol.frames import made_frame

US, N2, N3 = 1, 2, 3
JOBS = ("g", "jobs/#")
EPOCH = 7


def packet(payload, *, topic="jobs/1", qos=1, retain=False):
    packet_id = 5 if qos else None
    return PublishPacket(topic, payload, qos=QoS(qos), retain=retain, packet_id=packet_id).write()


def payloads(run):
    return [bytes(mqtt5.read(memoryview(each))[0].payload) for each in split_run(bytes(run))]


def inbound(*packets):
    """A read of these packets, as a link hands it over."""
    chunk, publishes = memoryview(b"".join(packets)), []
    read_packets(chunk, publishes, [])
    return chunk, publishes


class OurBroker:
    """Keeps what is published; ``room`` packets of QoS 1 and 2 more are taken."""

    def __init__(self):
        self.published = []
        self.offered = 0
        self.settled_through = 0
        self.room = 1_000
        self.connected = True

    def write_packets(self, parts, count):
        if self.connected:
            self.published += payloads(b"".join(parts))
        return self.connected

    def publish_run(self, run, places):
        return publish_each(self, run, places)

    def publish_packet(self, packet, packet_id_at, qos):
        if not self.room:
            return False
        self.room -= 1
        self.offered += 1
        self.published += payloads(packet)
        return True


class Agent:
    """Origin and destination of broker 1, and what they sent to whom."""

    def __init__(self, *members, allows_export=lambda topic: True, settle_s=0.0, **options):
        self.broker = OurBroker()
        self.counters = ShareCounters()
        self.sent = []
        self.reachable = True
        self.assignment = Assignment(US, stand_ins_max=8)
        self.origin = ShareOrigin(
            self_id=US,
            epoch=EPOCH,
            assignment=self.assignment,
            ledger=Ledger(LedgerParameters(**options)),
            counters=self.counters,
            send_to=self._send_to,
            publish_here=lambda run: self.destination.publish(run),
            allows_export=allows_export,
            want_inbox=lambda: None,
        )
        self.destination = ShareDestination(
            assignment=self.assignment,
            wanted=FilterTrie(),
            data_link=self.broker,
            counters=self.counters,
            send_to=self._send_to,
            pass_on=self.origin.pass_on,
            settle_s=settle_s,
        )
        self.know(*members)

    def know(self, *members, gone=(), orphans=()):
        """There are so many members at these brokers."""
        membership = Membership()
        for broker, count in members:
            membership.add(MemberRecord(broker, count, False, *JOBS))
            membership.reach(broker)
        self.assignment.update(membership, orphans=frozenset(orphans))
        self.origin.on_members(gone)

    def parcel(self, number, *packets, origin=N2, epoch=EPOCH):
        """A parcel for us."""
        run = b"".join(packets)
        body = memoryview(pack_parcel(epoch, number) + run)
        came = made_frame(
            origin=origin, epoch=epoch, publications=len(packets) or 1, keys=b"", body=body
        )
        self.destination.on_parcel(came, unpack_parcel(body))

    def taken(self, *packets):
        """Stand-ins got these; what became of each."""
        chunk, publishes = inbound(*packets)
        return [self.destination.take_back(each, chunk[each[1] : each[2]]) for each in publishes]

    def _send_to(self, broker, parts, size, count):
        body = b"".join(parts)
        assert len(body) == size
        if self.reachable:
            self.sent.append((broker, unpack_parcel(memoryview(body)), count))
        return self.reachable
