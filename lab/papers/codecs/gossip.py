"""Repair by rumour: whoever has a whole message tells some random others, besides the tree.

**Push**: it sends them the message at once. **Pull**: now and then it sends them one packet with a
list of what it has; who lacks some of it asks for that (one packet), and gets it. Time goes in
steps of one link's delay, over direct links that lose like those of the tree. Packets are bits of a
word: a copy that loses some fills gaps all the same, and what is new goes on down the tree.

A fanout of ln N + c makes rumours reach all with probability exp(-exp(-c)) (Eugster et al. 2004).

Source: Esposito 2018, 2 and 4.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from lab.papers.codecs.loss import SOURCE_PACKETS, Chains
from lab.papers.codecs.simulator import LINK_MS, Lossy, Outcome
from lab.papers.codecs.tree import ROOT, BoolArray, CodecError, IntArray

Words = npt.NDArray[np.uint32]

WHOLE = (1 << SOURCE_PACKETS) - 1
FANOUT_ABOVE_LOG = 1.0
STEPS_MAX = 200
NOTE_PACKETS = 1  # length of a list of messages, and of a request

LIST_INTERVAL_MS = 500.0
"""Between two lists of a node, which begin at no particular time; the paper does not say."""


class Mode(StrEnum):
    """The side that starts an exchange."""

    PUSH = "push gossip"
    PULL = "pull gossip"


@dataclass(frozen=True, slots=True)
class Flight:
    """What arrives at the next step: packets from and to nodes, each for one message."""

    source: IntArray
    target: IntArray
    message: IntArray
    bits: Words  # which packets of the message

    def only(self, kept: BoolArray) -> "Flight":
        return Flight(self.source[kept], self.target[kept], self.message[kept], self.bits[kept])


def simulate_gossip(
    lossy: Lossy,
    mode: Mode,
    messages: int,
    rng: np.random.Generator,
    *,
    interval_ms: float = LIST_INTERVAL_MS,
) -> Outcome:
    """Publish ``messages`` at the root of one tree, whose mean direct links lose like.

    With pull, ``interval_ms`` lie between two lists. Raises ``CodecError``: it is a forest, and
    rumours do not cross trees.
    """
    if lossy.tree.roots != 1:
        raise CodecError(f"gossip wants one tree, got {lossy.tree.roots}")
    run = _Run(lossy, mode, messages, rng, interval_ms)
    for step in range(STEPS_MAX):
        if not run.step(step):
            break
    return run.outcome()


class _Run:
    def __init__(
        self, lossy: Lossy, mode: Mode, messages: int, rng: np.random.Generator, interval_ms: float
    ) -> None:
        nodes = len(lossy.tree)
        self._lossy, self._mode, self._rng = lossy, mode, rng
        self._fanout = math.ceil(math.log(max(nodes, 2)) + FANOUT_ABOVE_LOG)
        self._nodes, self._messages = nodes, messages
        self._list_steps = max(round(interval_ms / LINK_MS), 1)
        self._has = np.zeros((nodes, messages), dtype=np.uint32)
        self._since = np.full((nodes, messages), -1)
        self._tells = np.full((nodes, messages), -1)
        self._packets = np.zeros(nodes)
        self._loss = float(lossy.plr[1:].mean()) if nodes > 1 else 0.0
        self._burst = float(lossy.abl[1:].mean()) if nodes > 1 else 1.0
        everyone = np.arange(messages)
        whole = np.full(messages, WHOLE, dtype=np.uint32)
        self._arriving = [Flight(np.zeros(messages, np.int64), 0 * everyone, everyone, whole)]
        self._notes: list[Flight] = []
        self._requests: list[Flight] = []

    def step(self, step: int) -> bool:
        """Take what arrives, send what follows; whether anything is on its way."""
        fresh = self._take(step)
        requests, notes = self._requests, self._notes
        self._arriving, self._requests, self._notes = list(map(self._sent, requests)), [], []
        for flight in notes:
            self._answer(flight)
        self._down_the_tree(fresh)
        self._rumours(np.argwhere(self._tells == step))
        waiting = self._arriving or self._requests or self._notes
        return bool(waiting) or bool((self._tells > step).any())

    def outcome(self) -> Outcome:
        """Sums of what happened."""
        there = self._since >= 0
        waited = np.where(there, self._since, 0).sum(axis=1) * LINK_MS
        return Outcome(self._messages, there.sum(axis=1).astype(float), waited, self._packets)

    def _take(self, step: int) -> Words:
        """What was new, shape (N, messages)."""
        before = self._has.copy()
        for flight in self._arriving:
            np.bitwise_or.at(self._has, (flight.target, flight.message), flight.bits)
        whole = (self._has == WHOLE) & (before != WHOLE)
        self._since[whole] = step
        wait = self._list_steps if self._mode is Mode.PULL else 1
        self._tells[whole] = step + self._rng.integers(0, wait, int(whole.sum()))
        return self._has & ~before

    def _down_the_tree(self, fresh: Words) -> None:
        tree = self._lossy.tree
        below = np.flatnonzero(tree.parent != ROOT)
        rows, message = np.nonzero(fresh[tree.parent[below]])
        if len(rows):
            target = below[rows]
            source = tree.parent[target]
            bits = fresh[source, message]
            self._arriving.append(self._sent(Flight(source, target, message, bits), tree=True))

    def _rumours(self, told: IntArray) -> None:
        """Everyone who has just got a whole message picks others that are no children of it."""
        if not len(told) or self._nodes < 3:
            return
        source = np.repeat(told[:, 0], self._fanout)
        message = np.repeat(told[:, 1], self._fanout)
        target = (source + self._rng.integers(1, self._nodes, len(source))) % self._nodes
        whole = np.full(len(source), WHOLE, dtype=np.uint32)
        other = self._lossy.tree.parent[target] != source
        flight = Flight(source, target, message, whole).only(other)
        if self._mode is Mode.PUSH:
            self._arriving.append(self._sent(flight))
        else:
            self._notes.append(self._noted(flight))

    def _answer(self, notes: Flight) -> None:
        """Let whoever lacks something ask who has it."""
        lacking: Words = np.uint32(WHOLE) & ~self._has[notes.target, notes.message]
        request = Flight(notes.target, notes.source, notes.message, lacking)
        heard = self._noted(request.only(lacking != 0))
        if len(heard.source):
            self._requests.append(replace(heard, source=heard.target, target=heard.source))

    def _noted(self, flight: Flight) -> Flight:
        """A note that is one packet long: the part of ``flight`` that is not lost."""
        np.add.at(self._packets, flight.target, NOTE_PACKETS)
        return flight.only(self._rng.random(len(flight.source)) >= self._loss)

    def _sent(self, flight: Flight, *, tree: bool = False) -> Flight:
        """``flight`` with the packets that come through."""
        plr = self._lossy.plr[flight.target] if tree else np.array(self._loss)
        abl = self._lossy.abl[flight.target] if tree else np.array(self._burst)
        chains = Chains(plr, abl, flight.bits.shape, self._rng)
        through = np.zeros_like(flight.bits)
        sent = np.zeros(len(flight.bits))
        for packet in range(SOURCE_PACKETS):
            if packet:
                chains.step()
            here = (flight.bits >> np.uint32(packet)) & np.uint32(1)
            through |= (here * ~chains.bad).astype(np.uint32) << np.uint32(packet)
            sent += here
        np.add.at(self._packets, flight.target, sent)
        return replace(flight, bits=through)
