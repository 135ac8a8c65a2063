"""A signed federation under attack keeps what it promised, and believes no stranger."""

from functools import partial

import pytest

from federator.protocol.custody.proofs import FrameJudge
from federator.protocol.custody.receiver import Receiver
from federator.protocol.effects import HangUp
from federator.protocol.links.links import Links
from federator.protocol.trust.peers import Peer
from federator.protocol.trust.proofs import ProofJudge
from lab.sim import campaign
from lab.sim.campaign import run
from lab.sim.story import Kind

draw = partial(campaign.draw, Kind.ATTACK)


def takes_seals_twice(monkeypatch):
    """What was recorded is believed again."""
    monkeypatch.setattr(Peer, "admit", lambda self, channel, counter: True)


def believes_anybody_about_cores(monkeypatch):
    """An announcement needs no signature of its core."""
    monkeypatch.setattr(ProofJudge, "check_announcement", lambda self, ann, *, now_s: None)


def asks_no_origin(monkeypatch):
    """What an origin says of its numbers is not listened to: a lie stays."""
    monkeypatch.setattr(Receiver, "on_word", lambda self, *_: [])


def judges_no_frame(monkeypatch):
    """A frame is believed whoever made it."""
    monkeypatch.setattr(FrameJudge, "believes", lambda self, frame, size, now: True)


def hangs_up_at_once(monkeypatch):
    """A connection that seems to lead to our own broker is given up for good."""
    honest = Links._on_own_hello

    def hang_up(self, hello, now_ms):
        mine = self.connections.get(hello.conn)
        if hello.epoch == self.epoch and mine is not None and mine.neighbour is None:
            del self.connections[hello.conn]
            return [HangUp(hello.conn)]
        return honest(self, hello, now_ms)

    monkeypatch.setattr(Links, "_on_own_hello", hang_up)


@pytest.mark.parametrize(
    "mistake",
    [
        takes_seals_twice,
        believes_anybody_about_cores,
        asks_no_origin,
        judges_no_frame,
        hangs_up_at_once,
    ],
)
def test_planted_mistake_is_found(mistake, monkeypatch):
    mistake(monkeypatch)

    assert any(run(draw(seed)).violation is not None for seed in range(200))
