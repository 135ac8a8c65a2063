"""Catch up: after the death of a broker, find what clients missed, and send it to them.

Both questions are the same, "what was published on these filters since then?", and so is what is
done with the answers:

- The agent beside the new broker of the clients that moved searches the custody logs. A publisher
  elsewhere does not notice the death, and what its broker acknowledged is in an agent's log. So the
  agent is asked as soon as the subscriptions are made there. It returns what its broker will not
  deliver by itself.
- The journals of gateways, ours and on request the others', have what their clients published. So
  they have what else only the log of the dead broker's agent has, which cannot be asked without its
  broker. They are compared late: publications may be under way while agents find other routes.

Each client gets the part that it did not receive (``healing``).

Source: docs/gateway.md, "What a client missed".
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from federator.gateway.brokers import Broker
from federator.gateway.clients.proxied_client import GatewayContext, ProxiedClient
from federator.gateway.session.healing import EARLY_MS
from federator.gateway.session.journal import Publication, read_publication
from federator.protocol.bounded_cache import Recent
from federator.protocol.filters import FilterTrie
from federator.protocol.messages.gateways import (
    FETCH_FILTERS_MAX,
    RECALL_FILTERS_MAX,
    Fetch,
    Fetched,
    Recall,
    Recalled,
)
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.clocks import monotonic_ms

BEFORE_MS: Final = 1_500
"""How long a publication may have been under way to a client when its broker died."""

GATHER_S: Final = 0.02
"""Clients that move within this time share a question."""

GRACE_S: Final = 0.2
"""Wait for what was under way when the question was asked: it need not be sent twice."""

AGAIN_S: Final = 1.0
"""Later answers are collected this long: each round compares everything for each client."""

OPEN_S: Final = 9.0
"""How long an agent's answer may take; the agent itself stops a little earlier."""

GATEWAYS_S: Final = 1.0
"""How long those of gateways may take: what is compared later was given long ago, and is no longer
known to have been."""

PATIENCE_MS: Final = 4_500
"""How long what clients of gateways published may take to arrive by itself; sent earlier, it would
often arrive twice. At most ``PATIENCE`` of ``failover.recent_ms``, for which they are kept."""
PATIENCE: Final = 0.45

ROUND_MS: Final = 2_000
"""Publications of so long a time are compared together; at most ``ROUND`` of ``recent_ms``."""
ROUND: Final = 0.2
ROUND_MS_MIN: Final = 500

WATCH_MS: Final = 16_000
"""How long after a death the journals are compared: agents find other routes in half a second,
usually, and forget a dead core after 15 s, at the latest."""

OPEN_MAX: Final = 64
ANSWER_BYTES_MAX: Final = 4_194_304
PAGE_BYTES_MAX: Final = 262_144
FOUND_BYTES_MAX: Final = 33_554_432
"""Of the answers to all open questions."""

ANSWERED_MAX: Final = 1_024
"""Remembered questions of other gateways: copies of them come by several brokers."""


@dataclass(slots=True, eq=False)
class _Question:
    """One open question.

    Attributes:
        broker: Its agent is asked; ``None``: the gateways are.
        since_ms: The question covers publications from here on.
        lost_ms: When the last of the clients that moved lost its broker.
        found: All publications found so far: equal ones can only be counted.
        giving: Whether a round is scheduled; ``rounds``: how many there were.
    """

    broker: BrokerId | None
    clients: Sequence[ProxiedClient]
    since_ms: Millis
    lost_ms: Millis
    found: list[Publication] = field(default_factory=list)
    bytes: int = 0
    giving: bool = False
    rounds: int = 0


class CatchUp:
    """The questions of one gateway.

    Args:
        first: Greater than the number of every earlier question.
        start: Runs a coroutine under a name.
    """

    def __init__(
        self, context: GatewayContext, *, first: int, start: Callable[..., object]
    ) -> None:
        self._context = context
        self._name = context.settings.name
        self._number = first
        self._start = start
        self._questions: dict[int, _Question] = {}
        self._gathered: dict[BrokerId, dict[ProxiedClient, None]] = {}
        self._answered: Recent[tuple[str, int], None] = Recent(ANSWERED_MAX)
        recent_ms = context.settings.failover.recent_ms
        self._patience_ms = min(PATIENCE_MS, PATIENCE * recent_ms)
        self._round_ms = max(ROUND_MS_MIN, min(ROUND_MS, ROUND * recent_ms))
        self._watches = False
        self._watch_until_ms = Millis(0)

    def ask(self, client: ProxiedClient) -> None:
        """Ask the agent for what ``client``, now subscribed there, missed."""
        broker = client.broker
        if broker is None or client.lost_ms is None:
            return
        if broker.id not in self._gathered:
            asyncio.get_running_loop().call_later(GATHER_S, self._ask_agent, broker.id)
        self._gathered.setdefault(broker.id, {})[client] = None

    def on_death(self) -> None:
        """Compare the journals of gateways from now on, for ``WATCH_MS``: a broker died."""
        now_ms = monotonic_ms()
        self._watch_until_ms = Millis(now_ms + WATCH_MS)
        if not self._watches:
            self._watches = True
            self._start(self._watch(Millis(now_ms - BEFORE_MS)), name="missed through a death")

    def on_found(self, broker: BrokerId | None, answer: Fetched | Recalled) -> None:
        """Take a part of an answer: of the agent of ``broker``, or of another gateway."""
        question = self._questions.get(answer.number)
        if question is None or question.broker != broker:
            return
        room = FOUND_BYTES_MAX - sum(other.bytes for other in self._questions.values())
        before = len(question.found)
        for packet in answer.packets:
            publication = read_publication(packet, question.lost_ms)
            if publication is None:
                self._context.counters.malformed += 1
            elif question.bytes + len(packet) <= ANSWER_BYTES_MAX and len(packet) <= room:
                question.found.append(publication)
                question.bytes += len(packet)
                room -= len(packet)
        if len(question.found) > before:
            self._give_soon(question)

    def on_recall(self, recall: Recall, broker: Broker) -> None:
        """Answer another gateway's question what our clients published."""
        question = recall.gateway, recall.number
        if recall.gateway == self._name or question in self._answered:
            return
        self._answered.put(question, None)
        now_ms = monotonic_ms()
        span = Millis(now_ms - recall.oldest_ms), Millis(now_ms - recall.newest_ms)
        for page in _pages(self._context.journal.between(*span), recall.filters):
            broker.answer(recall.gateway, Recalled(self._name, recall.number, tuple(page)))

    def _ask_agent(self, id: BrokerId) -> None:
        broker = self._context.brokers[id]
        by_filter: dict[str, list[ProxiedClient]] = {}
        for client in self._gathered.pop(id):
            if client.broker is not broker:
                continue
            filters_of = client.session.subscriptions.acknowledged_filters
            if not filters_of:
                client.lost_ms = None
            for filter in filters_of:
                by_filter.setdefault(filter, []).append(client)
        filters = sorted(by_filter)
        for at in range(0, len(filters), FETCH_FILTERS_MAX):
            if len(self._questions) >= OPEN_MAX:
                break
            part = filters[at : at + FETCH_FILTERS_MAX]
            concerned = tuple(dict.fromkeys(c for filter in part for c in by_filter[filter]))
            lost = [c.lost_ms for c in concerned if c.lost_ms is not None]
            since_ms = Millis(min(lost) - BEFORE_MS)
            self._open(_Question(id, concerned, since_ms, max(lost)))
            oldest_ms = max(0, monotonic_ms() - since_ms)
            broker.ask_agent(Fetch(self._name, self._number, tuple(part), oldest_ms))

    async def _watch(self, from_ms: Millis) -> None:
        """Compare what clients of gateways published, each part of the time once."""
        while from_ms < self._watch_until_ms:
            to_ms = Millis(from_ms + int(self._round_ms))
            await asyncio.sleep(max(0, to_ms + self._patience_ms - monotonic_ms()) / 1_000)
            self._ask_gateways(from_ms, to_ms)
            from_ms = Millis(to_ms + 1)
        self._watches = False

    def _ask_gateways(self, from_ms: Millis, to_ms: Millis) -> None:
        clients = self._context.every
        filters = {f for c in clients for f in c.session.subscriptions.acknowledged_filters}
        if not filters:
            return
        question = _Question(None, clients, from_ms, from_ms)
        question.found += self._context.journal.between(from_ms, to_ms)
        self._open(question)
        if question.found:
            self._give_soon(question)
        asked = tuple(sorted(filters)) if len(filters) <= RECALL_FILTERS_MAX else ("#",)
        now_ms = monotonic_ms()
        recall = Recall(self._name, self._number, asked, now_ms - from_ms, now_ms - to_ms)
        for broker in self._context.brokers.values():
            if broker.up:
                broker.ask_others(recall)

    def _open(self, question: _Question) -> None:
        self._number += 1
        self._questions[self._number] = question
        open_s = GATEWAYS_S if question.broker is None else OPEN_S
        asyncio.get_running_loop().call_later(open_s, self._close, self._number)

    def _close(self, number: int) -> None:
        question = self._questions.pop(number)
        for client in question.clients if question.broker is not None else ():
            if client.lost_ms is not None and client.lost_ms <= question.lost_ms:
                client.lost_ms = None

    def _give_soon(self, question: _Question) -> None:
        if not question.giving:
            question.giving = True
            self._start(self._give(question), name="missed publications")

    async def _give(self, question: _Question) -> None:
        """Send each client the found publications that it did not receive."""
        await asyncio.sleep(AGAIN_S if question.rounds else GRACE_S)
        question.giving = False
        question.rounds += 1
        if question.broker is not None:
            self._name_publishers(question)
        for client in question.clients:
            if question.broker is None or (client.broker and client.broker.id == question.broker):
                client.give_missed(question.found, since_ms=question.since_ms)
                await asyncio.sleep(0)  # each client takes a moment: let other traffic pass

    def _name_publishers(self, question: _Question) -> None:
        """Note the publishers of what was found, where they matter: for clients with No Local."""
        if any(client.session.subscriptions.wants_none_of_its_own for client in question.clients):
            since_ms = Millis(question.since_ms - EARLY_MS)
            journal = self._context.journal.between(since_ms, monotonic_ms())
            ours = {(p.topic, p.payload): p.client for p in journal}
            for publication in question.found:
                publication.client = ours.get((publication.topic, publication.payload), "")


def _pages(publications: Iterable[Publication], filters: Sequence[str]) -> list[list[bytes]]:
    """The publications that match ``filters``, as packets of version 5, in pages."""
    trie = FilterTrie()
    for filter in filters:
        trie.add(filter)
    pages: list[list[bytes]] = []
    room = total = 0
    for publication in publications:
        if not trie.match(publication.topic.decode()):
            continue
        packet = publication.as_v5()
        total += len(packet)
        if total > ANSWER_BYTES_MAX:
            break
        if room < len(packet):
            pages.append([])
            room = PAGE_BYTES_MAX
        pages[-1].append(packet)
        room -= len(packet)
    return pages
