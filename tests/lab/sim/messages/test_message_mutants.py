"""Each planted bug in what carries messages is found: most within fifty seeds, the rarest in 2,005.

A mutant is the code that the daemon runs, with one line's worth of mistake.
"""

from functools import partial

import pytest

from federator.protocol.custody.owed import Owed
from federator.protocol.custody.receiver import Receiver
from federator.protocol.data.intake import Intake
from federator.protocol.data.plane import DataPlane
from federator.protocol.discovery.reconciliation import Reconciliation
from federator.protocol.types import Epoch
from lab.sim import campaign, world
from lab.sim.campaign import run
from lab.sim.disks import CustodyDisk, FrameLog
from lab.sim.story import Kind
from tests.lab.sim.violations import assert_caught

draw = partial(campaign.draw, Kind.MESSAGES)

SEEDS_MAX = 1_000


def forgets_to_widen_on_mismatch(monkeypatch):
    """The broker counts more subscriptions than we know, and we trust what we know."""

    def trust(self, **_):
        self.doubt = None

    monkeypatch.setattr(Reconciliation, "_check", trust)
    monkeypatch.setattr(Reconciliation, "_reconsider", trust)


def acknowledges_early(monkeypatch):
    """The broker is told to forget a publication before it is in the log."""
    take = DataPlane.on_publishes

    def acknowledge_first(self, chunk, publishes, now):
        ids = [(packet.packet_id, 1) for packet, _, _ in publishes if packet.packet_id is not None]
        if ids:
            link = self.delivery.link
            link.acknowledge(ids, session_number=link.session_number)
        take(self, chunk, publishes, now)

    monkeypatch.setattr(DataPlane, "on_publishes", acknowledge_first)


def acknowledges_what_waits_for_the_log(monkeypatch):
    """The log could not be written, and the broker is told to forget all the same."""

    def acknowledge_at_once(self, link, packet_ids):
        link.acknowledge(packet_ids, session_number=link.session_number)

    monkeypatch.setattr(Intake, "acknowledge", acknowledge_at_once)


def reuses_an_epoch(monkeypatch):
    """A restarted agent numbers from 1 again in the epoch it had before."""
    start = world.World._start

    def start_again(self, id):
        self.disks[id].epoch = Epoch(world.FIRST_EPOCH - 1)
        start(self, id)

    monkeypatch.setattr(world.World, "_start", start_again)


def reuses_an_epoch_of_the_log(monkeypatch):
    """A log that was lost begins anew in the epoch that it had."""

    def open_again(self, epoch):
        if self.log is None:
            self.log = FrameLog(world.FIRST_EPOCH, records_max=self.records_max)
        return self.log

    monkeypatch.setattr(CustodyDisk, "open", open_again)


def owes_nothing(monkeypatch):
    """Who goes out of reach is forgotten."""

    def forget(self, filter, route, *, lost, now_ms, collected):
        return route

    monkeypatch.setattr(Owed, "on_route", forget)


def never_asks(monkeypatch):
    """A gap is noticed, and nobody asks for what is missing."""
    asks = Receiver.asks
    monkeypatch.setattr(Receiver, "asks", lambda self, now_ms: asks(self, now_ms)[:0])


def takes_any_old_frame_for_a_copy(monkeypatch):
    """A chain speaks of frames from before it was followed, too."""
    begin = Receiver._begin

    def begin_at_nothing(self, *args):
        chain = begin(self, *args)
        chain.begun = 0
        return chain

    monkeypatch.setattr(Receiver, "_begin", begin_at_nothing)


@pytest.mark.parametrize(
    ("mutate", "first", "invariants"),
    [
        (forgets_to_widen_on_mismatch, 0, {"converges", "settles"}),
        (acknowledges_early, 0, {"logged_before_acknowledged"}),
        (acknowledges_what_waits_for_the_log, 60, {"logged_before_acknowledged"}),
        (reuses_an_epoch, 0, {"converges", "numbers_grow", "owed", "arrives_in_the_calm"}),
        (reuses_an_epoch_of_the_log, 140, {"arrives_in_the_calm", "owed"}),
        (owes_nothing, 0, {"owed", "logged_before_acknowledged"}),
        (never_asks, 0, {"owed", "arrives_in_the_calm"}),
        (takes_any_old_frame_for_a_copy, 2_000, {"owed"}),
    ],
)
def test_mutant_is_caught(monkeypatch, mutate, first, invariants):
    """``first``: where to begin, for the sake of time; it is found from 0 on, too."""
    mutate(monkeypatch)

    assert_caught(map(run, map(draw, range(first, first + SEEDS_MAX))), invariants)
