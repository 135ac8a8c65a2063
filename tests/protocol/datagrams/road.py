"""Two ends of a link and the road between them, in simulated time: a Gilbert-Elliott chain each way
that also delays, repeats and reorders."""

import heapq
import itertools
import random

from federator.protocol.datagrams.link import DatagramLink
from federator.protocol.datagrams.protection import Chain as Model
from federator.protocol.datagrams.sender import Limits
from federator.runtime.datagrams.raptor import RaptorCoder


class Chain:
    """Loses datagrams as Gilbert and Elliott have it."""

    def __init__(self, rng, plr=0.0, abl=2.0):
        self.rng, self.bad = rng, False
        self.to_good, self.to_bad = 1 / abl, plr / (1 - plr) / abl if plr < 1 else 1.0
        self.sent = self.lost = 0

    def loses(self):
        self.sent += 1
        self.bad = self.rng.random() < (1 - self.to_good if self.bad else self.to_bad)
        self.lost += self.bad
        return self.bad


def lost_distribution(plr, abl, sent):
    """P(exactly k of ``sent`` packets are lost), for k in 0..sent, as the model says."""
    good, bad = Model(plr, abl).walk(sent, 1 - plr, plr)
    return [g + b for g, b in zip(good, bad, strict=True)]


class Road:
    """End 0 and end 1. ``came[i]`` and ``back[i]`` hold (time, frame) of end i."""

    def __init__(self, seed=1, *, plr=0.0, abl=2.0, delay_ms=50, jitter_ms=0, repeat=0.0, **limits):
        self.rng = random.Random(seed)
        self.now = 1_000
        self.delay_ms, self.jitter_ms, self.repeat = delay_ms, jitter_ms, repeat
        self.chains = [Chain(self.rng, plr, abl), Chain(self.rng, plr, abl)]
        self.ends = [
            DatagramLink(Limits(**limits), RaptorCoder(), stream=7 + i, now_ms=self.now)
            for i in range(2)
        ]
        self.came, self.back, self.sent = ([], []), ([], []), ([], [])
        self._ways, self._tick = [], itertools.count()

    def offer(self, end, frame):
        datagrams = self.ends[end].offer(frame, now_ms=self.now)
        if datagrams is None:
            return False
        self._send(end, datagrams)
        return True

    def run(self, ms):
        until = self.now + ms
        while True:
            due = [link.next_deadline_ms() for link in self.ends]
            arrival = self._ways[0][0] if self._ways else until + 1
            at = min(*due, arrival)
            if at > until:
                self.now = until
                return self
            self.now = max(self.now, at)
            if arrival <= self.now:
                _, _, end, datagram = heapq.heappop(self._ways)
                self._told(end, self.ends[end].on_datagram(datagram, now_ms=self.now))
            for end, deadline in enumerate(due):
                if deadline <= self.now:
                    self._told(end, self.ends[end].on_deadline(now_ms=self.now))

    def usable(self):
        self.run(1_000)
        while not all(link.usable for link in self.ends):
            self.run(1_000)
        return self

    def _told(self, end, heard):
        self._send(end, heard.datagrams)
        self.came[end].extend((self.now, frame) for frame in heard.frames)
        self.back[end].extend((self.now, frame) for frame in heard.given_back)

    def _send(self, end, datagrams):
        for datagram in datagrams:
            self.sent[end].append(datagram)
            if self.chains[end].loses():
                continue
            for _ in range(2 if self.rng.random() < self.repeat else 1):
                at = self.now + self.delay_ms + self.rng.randint(0, self.jitter_ms)
                heapq.heappush(self._ways, (at, next(self._tick), 1 - end, datagram))
