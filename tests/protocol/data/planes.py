"""A data plane on disks in memory, whose broker tells what it is given."""

from federator.protocol.data.features import Features, Limits
from federator.protocol.data.plane import DataPlane
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.forwarding.publications import packets_in, topics_of
from federator.protocol.types import Epoch, Millis
from lab.sim.data import LocalLink
from lab.sim.disks import CustodyDisk, DiskInUse, Writer


def plane_of(id, outlet, take, now, *, flows_max=0, **options):
    """``take`` gets each packet that is published at its broker."""
    plane = DataPlane(
        self_id=id,
        epoch=Epoch(1),
        federation="fed",
        forwarder=Forwarder(),
        disk=DiskInUse(CustodyDisk(), 1, Writer()),
        outlet=outlet,
        now=now,
        limits=Limits(flows_max=flows_max),
        features=Features(link=LocalLink(take), **options),
    )
    plane.custody.destination.on_local_up(Millis(-10_000))
    return plane


def bring(plane, run, now):
    """Let the plane's broker bring ``run``."""
    spans = zip(packets_in(run), topics_of(run), strict=True)
    publishes = [(packet, start, end) for packet, (start, end, _) in spans]
    plane.on_publishes(memoryview(run), publishes, now)
