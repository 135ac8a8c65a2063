"""Local steering of one agent: hears words, prices its links, chooses for its own flows."""

from collections.abc import Sequence
from typing import Final

from federator.protocol.messages.steering import FlowLoad, LinkLoad, Tree
from federator.protocol.types import BrokerId, Epoch, Millis
from lab.local_steering.board import Board
from lab.local_steering.chooser import Chooser, Move
from lab.local_steering.prices import LinkPricer
from lab.local_steering.words import AMOUNT_MAX, LINKS_MAX, LinkPrices, PricedLink, Shift

SAMPLE_MS: Final = 2_000
TURN_MS: Final = 2_000
REFRESH_MS: Final = Millis(20_000)
CHANGED: Final = 0.05
"""A link's load is told anew when it differs from what was told by this share of its capacity."""


class LocalSteering:
    """One agent. Methods that may have something to tell return the word that is to be flooded."""

    def __init__(self, broker: BrokerId, epoch: Epoch) -> None:
        self._broker, self.epoch = broker, epoch
        self._board, self._chooser = Board(), Chooser(broker)
        self._pricers: dict[BrokerId, LinkPricer] = {}
        self._links: tuple[LinkLoad, ...] = ()
        self._told: LinkPrices | None = None
        self._told_ms = Millis(0)
        self._number = 0

    @property
    def own_trees(self) -> Sequence[Tree]:
        """Those of our clients' flows."""
        return self._chooser.trees

    def trees(self) -> Sequence[Tree]:
        """All trees that pass us."""
        return self._board.trees_through(self._broker)

    def sample(
        self, links: Sequence[LinkLoad], flows: Sequence[FlowLoad], now_ms: Millis
    ) -> LinkPrices | None:
        """Take what was measured, every ``SAMPLE_MS``."""
        self._links = tuple(links)[:LINKS_MAX]
        up = {link.neighbour for link in self._links}
        self._pricers = {id: self._pricers.get(id) or LinkPricer() for id in up}
        for link in self._links:
            self._pricers[link.neighbour].sample(link.rate, link.capacity, now_ms)
        self._chooser.take([each for each in flows if not each.meshed], now_ms)
        self._board.forget(now_ms)
        return self._tell(now_ms)

    def turn(self, now_ms: Millis) -> tuple[LinkPrices | None, list[Move]]:
        """Choose, if one of our flows has something to gain; what we tell then, and what moved."""
        network = self._board.network()
        dropped = self._chooser.drop_broken(network)
        move = self._chooser.choose(network, now_ms)
        made = [*dropped, *([move] if move is not None else [])]
        if not made:
            return None, []
        shift = move.shift if move is not None else None
        if shift is not None:
            self._count(shift, now_ms)
        return self._tell(now_ms, shift=shift, anyway=True), made

    def on_word(self, word: LinkPrices, now_ms: Millis) -> tuple[bool, LinkPrices | None]:
        """Whether to pass ``word`` on, and what we have to say then."""
        if word.broker == self._broker or not self._board.take(word, now_ms):
            return False, None
        if word.shift is None or not self._count(word.shift, now_ms):
            return True, None
        return True, self._tell(now_ms, anyway=True)

    def _count(self, shift: Shift, now_ms: Millis) -> bool:
        """Count a flow that moved at our links; whether it concerns one."""
        concerned = False
        for edges, rate in ((shift.left, -shift.rate), (shift.joined, shift.rate)):
            for tail, head in edges:
                if tail == self._broker and head in self._pricers:
                    self._pricers[head].shift(rate, now_ms)
                    concerned = True
        return concerned

    def _tell(
        self, now_ms: Millis, *, shift: Shift | None = None, anyway: bool = False
    ) -> LinkPrices | None:
        links = tuple(
            PricedLink(
                link.neighbour,
                link.cost,
                float(round(self._pricers[link.neighbour].load)),
                min(link.capacity, AMOUNT_MAX) if link.capacity else None,
                self._pricers[link.neighbour].price,
            )
            for link in self._links
            if link.open
        )
        trees = self._chooser.trees
        if not anyway and now_ms - self._told_ms < REFRESH_MS and not self._news(links, trees):
            return None
        self._number += 1
        word = LinkPrices(self._broker, self.epoch, self._number, links, trees, shift)
        self._told, self._told_ms = word, now_ms
        self._board.take(word, now_ms)
        return word

    def _news(self, links: tuple[PricedLink, ...], trees: tuple[Tree, ...]) -> bool:
        """Whether what we told is no longer true."""
        told = self._told
        if told is None or told.trees != trees or len(told.links) != len(links):
            return True
        return any(
            (new.neighbour, new.cost, new.capacity, new.price)
            != (old.neighbour, old.cost, old.capacity, old.price)
            or (new.capacity is not None and abs(new.load - old.load) > CHANGED * new.capacity)
            for new, old in zip(links, told.links, strict=True)
        )
