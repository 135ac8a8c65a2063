"""What is kept at the edge needs no custody, and what is owed survives a restart as it was."""

from federator.protocol.data.features import Limits
from federator.protocol.data.plane import DataPlane
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.forwarding.keeping import KeepPolicy
from federator.protocol.forwarding.publications import packets_in
from federator.protocol.types import BrokerId, Epoch, Millis, Now
from lab.sim.data import packet_of
from lab.sim.disks import CustodyDisk, DiskInUse, Writer

HUB, OTHER = BrokerId(2), BrokerId(3)
NOW = Now(Millis(0), 1_000_000)
COLLECTED = FilterRoute(False, True, (), (HUB,), collected=True)
WANTED = FilterRoute(False, True, (), (HUB, OTHER))


class Outlet:
    def ask(self, neighbour, request):
        raise AssertionError("nothing is missing")

    def tell(self, notice):
        raise AssertionError(notice)


def plane(disk, life=1):
    made = DataPlane(
        self_id=BrokerId(1),
        epoch=Epoch(life),
        federation="fed",
        forwarder=Forwarder(),
        disk=DiskInUse(disk, life, Writer()),
        outlet=Outlet(),
        now=NOW,
        limits=Limits(flows_max=8),
    )
    made.set_destinations({HUB: HUB, OTHER: OTHER}, NOW)
    return made


def publish(made, topic, *, qos):
    wire = packet_of(topic, 1, qos)
    packet = next(packets_in(wire))
    made.on_publishes(memoryview(wire), [(packet, 0, len(wire))], NOW)


def test_what_is_kept_is_counted_and_is_in_no_log_no_frame_and_no_flow():
    disk = CustodyDisk()
    made = plane(disk)
    made.set_route("a/#", COLLECTED, NOW)
    made.keep(KeepPolicy.NS, NOW)

    publish(made, "a/b", qos=0)
    publish(made, "a/b", qos=1)
    publish(made, "b", qos=1)

    counters = made.counters
    assert (counters.kept, counters.unwanted, counters.publications_out) == (2, 1, 0)
    assert counters.kept_bytes == sum(len(packet_of("a/b", 1, qos)) for qos in (0, 1))
    assert made.custody.origin.log.next_seq == 1
    made.intake.flows.on_time(0)
    made.intake.flows.on_time(1_000)
    assert made.intake.flows.told(made.forwarder) == ((), 0.0)

    made.keep(None, NOW)
    publish(made, "a/b", qos=1)

    assert made.custody.origin.log.next_seq == 2
    assert counters.kept == 2


def test_what_only_a_collector_wanted_is_kept_again_after_a_restart():
    disk = CustodyDisk()
    plane(disk).set_route("a/#", COLLECTED, NOW)

    again = plane(disk, 2)
    again.custody.resume(NOW)
    again.keep(KeepPolicy.NS, NOW)

    assert again.forwarder.keeps("a/b")
    again.set_route("a/#", COLLECTED, NOW)
    assert again.forwarder.keeps("a/b")


def test_what_others_wanted_before_a_restart_is_owed_to_them_first():
    disk = CustodyDisk()
    plane(disk).set_route("a/#", WANTED, NOW)

    again = plane(disk, 2)
    again.custody.resume(NOW)
    again.keep(KeepPolicy.NS, NOW)
    again.set_route("a/#", COLLECTED, NOW)
    assert not again.forwarder.keeps("a/b")

    later = Now(Millis(NOW.ms + again.custody.owed.keep_ms), NOW.us)
    again.tend(later)

    assert again.forwarder.keeps("a/b")


def test_a_collector_out_of_reach_changes_nothing_and_another_who_was_lost_is_owed():
    made = plane(CustodyDisk())
    made.keep(KeepPolicy.NS, NOW)
    made.set_route("a/#", COLLECTED, NOW)
    made.set_route("a/#", None, NOW, lost=True)
    assert made.forwarder.keeps("a/b")

    made.set_route("a/#", WANTED, NOW)
    assert not made.forwarder.keeps("a/b")
    made.set_route("a/#", COLLECTED, NOW, lost=True)
    assert not made.forwarder.keeps("a/b")
