"""The simulator earns its keep: each plausible mistake in the protocol is caught within 200 seeds.

A mutant is the daemon's own code with one line's worth of mistake patched in.
"""

import pytest

from federator.protocol.duplicates import DuplicateLog
from federator.protocol.routing.announcements import Announcements
from federator.protocol.routing.core_route import CoreRoute
from federator.protocol.routing.flooding import Flooding
from federator.protocol.routing.meshes import Meshes
from federator.protocol.routing.own_core import OwnCore
from federator.protocol.types import Epoch
from lab.sim import world
from lab.sim.campaign import draw, run
from lab.sim.story import Kind
from tests.lab.sim.violations import assert_caught

SEEDS_MAX = 200


def forwards_on_equal_cost(monkeypatch):
    """Passes an announcement on again whenever another copy of it comes that is as cheap."""
    original = Announcements.on_announcement

    def on_announcement(self, ann, *, now_ms):
        steps = original(self, ann, now_ms=now_ms)
        route = self.routes.get(ann.core)
        if route is None or not route.reachable or ann.sender not in route.parents:
            return steps
        return steps + self._correct(route)

    monkeypatch.setattr(Announcements, "on_announcement", on_announcement)


def core_ignores_children(monkeypatch):
    """The core does not note who chose it as a parent."""
    original = Meshes.on_membership

    def on_membership(self, message, *, now_ms):
        if message.core == self._links.self_id:
            return []
        return original(self, message, now_ms=now_ms)

    monkeypatch.setattr(Meshes, "on_membership", on_membership)


def parents_reset_by_equal_copies(monkeypatch):
    """The last copy that is as cheap as the best replaces the parents instead of joining them."""
    on_announcement, choose = Announcements.on_announcement, CoreRoute.choose
    last_sender = []

    def remember_sender(self, ann, *, now_ms):
        last_sender[:] = [ann.sender]
        return on_announcement(self, ann, now_ms=now_ms)

    def choose_last(self, *args, **kwargs):
        choose(self, *args, **kwargs)
        self.parents = tuple(p for p in self.parents if p in last_sender) or self.parents[-1:]

    monkeypatch.setattr(Announcements, "on_announcement", remember_sender)
    monkeypatch.setattr(CoreRoute, "choose", choose_last)


def sequence_numbers_restart(monkeypatch):
    """A restarted agent counts from 0 again, in the epoch it had before."""
    original = world.World._start

    def start(self, id):
        disk = self.disks[id]
        disk.epoch = Epoch(world.FIRST_EPOCH - 1)
        original(self, id)

    monkeypatch.setattr(world.World, "_start", start)


def no_announcement_until_an_interval_passed(monkeypatch):
    """Changes wait for the next refresh."""

    def announce_soon(self, *, now_ms):
        if self.due_ms is None:
            self.due_ms = now_ms + self._parameters.core_ann_interval_ms
        return []

    monkeypatch.setattr(OwnCore, "announce_soon", announce_soon)


def duplicate_log_by_count_only(monkeypatch):
    """Remembers the last few frames, whosever they are."""

    def admit(self, origin, epoch, seq, *, k, mask, sender):
        last = self.__dict__.setdefault("last", [])
        if (origin, epoch, seq) in last:
            return False, 0
        last.append((origin, epoch, seq))
        del last[:-4]
        return True, mask

    monkeypatch.setattr(DuplicateLog, "admit", admit)


def no_feasibility_condition(monkeypatch):
    """Any neighbour may become a parent, also one whose path leads through us."""
    original = CoreRoute.choose

    def choose(self, *args, **kwargs):
        self.feasible_cost = 2**31
        return original(self, *args, **kwargs)

    monkeypatch.setattr(CoreRoute, "choose", choose)


def flooding_does_not_end(monkeypatch):
    """What lost its core is handed to all neighbours from then on."""
    monkeypatch.setattr(Flooding, "pop_due", lambda self, now_ms: ([], []))
    monkeypatch.setattr(Flooding, "next_deadline_ms", lambda self: None)


@pytest.mark.parametrize(
    ("mutate", "invariants"),
    [
        (forwards_on_equal_cost, {"announcement_cost", "no_storm"}),
        (core_ignores_children, {"converges"}),
        (parents_reset_by_equal_copies, {"converges"}),
        (sequence_numbers_restart, {"converges", "triggered_updates"}),
        (no_announcement_until_an_interval_passed, {"triggered_updates"}),
        (duplicate_log_by_count_only, {"once_per_broker", "once_per_link", "hops"}),
        (no_feasibility_condition, {"cost_falls_towards_the_core"}),
        (flooding_does_not_end, {"converges"}),
    ],
)
def test_mutant_is_caught(monkeypatch, mutate, invariants):
    mutate(monkeypatch)

    drawn = (draw(Kind.ROUTES, seed, nodes=6 + seed % 8) for seed in range(SEEDS_MAX))
    assert_caught(map(run, drawn), invariants)
