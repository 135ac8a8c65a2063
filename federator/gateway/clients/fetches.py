"""Fetch what moved clients missed through the agent beside their new broker.

A publisher elsewhere does not notice the death: what its broker acknowledged is in an agent's
custody log. So, as soon as the subscriptions are made at the new broker, its agent is asked what
was published since shortly before the death. The agent returns what its broker will not deliver by
itself; each client gets the part that it did not receive.

Source: docs/gateway.md, "What a client missed".
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from federator.gateway.brokers import Broker
from federator.gateway.clients.proxied_client import ProxiedClient
from federator.gateway.metrics import GatewayCounters
from federator.gateway.session.healing import EARLY_MS
from federator.gateway.session.journal import Journal, Publication, told
from federator.protocol.messages.gateways import FETCH_FILTERS_MAX, Fetch, Fetched
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.clocks import monotonic_ms

GATHER_S: Final = 0.02
"""Clients that move within this time share a question."""

BEFORE_MS: Final = 1_000
"""How long a publication may have been under way to a client when its broker died."""

GRACE_S: Final = 0.2
"""Wait for what was under way when the question was asked: it need not be sent twice."""

AGAIN_S: Final = 1.0
"""Later answers are collected this long: each round compares everything for each client."""

OPEN_S: Final = 9.0
"""How long an answer may take; the agent itself stops a little earlier."""

OPEN_MAX: Final = 64
ANSWER_BYTES_MAX: Final = 4_194_304
FOUND_BYTES_MAX: Final = 33_554_432
"""Of all open questions."""


@dataclass(slots=True, eq=False)
class _Question:
    """One open question.

    Attributes:
        since_ms: The question covers publications from here on.
        lost_ms: When the last of the clients lost its broker.
        found: All publications found so far: equal ones can only be counted.
        giving: Whether a round is scheduled; ``rounds``: how many there were.
    """

    broker: BrokerId
    clients: tuple[ProxiedClient, ...]
    since_ms: Millis
    lost_ms: Millis
    found: list[Publication] = field(default_factory=list)
    bytes: int = 0
    giving: bool = False
    rounds: int = 0


class Fetches:
    """The questions of one gateway.

    Args:
        first: Greater than the number of every earlier question.
        start: Runs a coroutine under a name.
    """

    def __init__(
        self,
        name: str,
        brokers: Mapping[BrokerId, Broker],
        journal: Journal,
        counters: GatewayCounters,
        *,
        first: int,
        start: Callable[..., object],
    ) -> None:
        self._name = name
        self._brokers = brokers
        self._journal = journal
        self._counters = counters
        self._number = first
        self._start = start
        self._questions: dict[int, _Question] = {}
        self._gathered: dict[BrokerId, dict[ProxiedClient, None]] = {}

    def ask(self, client: ProxiedClient) -> None:
        """Ask the agent for what ``client``, now subscribed there, missed."""
        broker = client.broker
        if broker is None or client.lost_ms is None:
            return
        if broker.id not in self._gathered:
            asyncio.get_running_loop().call_later(GATHER_S, self._ask, broker.id)
        self._gathered.setdefault(broker.id, {})[client] = None

    def on_fetched(self, broker: BrokerId, answer: Fetched) -> None:
        """Take a part of an answer."""
        question = self._questions.get(answer.number)
        if question is None or question.broker != broker:
            return
        room = FOUND_BYTES_MAX - sum(other.bytes for other in self._questions.values())
        for packet in answer.packets:
            publication = told(packet, question.lost_ms)
            if publication is None:
                self._counters.malformed += 1
            elif question.bytes + len(packet) <= ANSWER_BYTES_MAX and len(packet) <= room:
                question.found.append(publication)
                question.bytes += len(packet)
                room -= len(packet)
        if not question.giving:
            question.giving = True
            self._start(self._give(question), name=f"missed, {answer.number}")

    def _ask(self, id: BrokerId) -> None:
        broker, now_ms = self._brokers[id], monotonic_ms()
        clients = [c for c in self._gathered.pop(id) if c.broker is broker]
        by_filter: dict[str, list[ProxiedClient]] = {}
        for client in clients:
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
            self._number += 1
            fetch = Fetch(self._name, self._number, tuple(part), max(0, now_ms - since_ms))
            broker.ask_agent(fetch)
            self._questions[self._number] = _Question(id, concerned, since_ms, max(lost))
            asyncio.get_running_loop().call_later(OPEN_S, self._close, self._number)

    def _close(self, number: int) -> None:
        question = self._questions.pop(number)
        for client in question.clients:
            if client.lost_ms is not None and client.lost_ms <= question.lost_ms:
                client.lost_ms = None

    async def _give(self, question: _Question) -> None:
        """Send each client the found publications that it did not receive."""
        await asyncio.sleep(AGAIN_S if question.rounds else GRACE_S)
        question.giving = False
        question.rounds += 1
        since_ms = question.since_ms
        if any(client.session.subscriptions.wants_none_of_its_own for client in question.clients):
            journal = self._journal.between(Millis(since_ms - EARLY_MS), monotonic_ms())
            ours = {
                (publication.topic, publication.payload): publication.client
                for publication in journal
            }
            for publication in question.found:
                publication.client = ours.get((publication.topic, publication.payload), "")
        for client in question.clients:
            if client.broker is not None and client.broker.id == question.broker:
                client.give_missed(since_ms, Millis(since_ms - 1), qos=(), others=question.found)
                await asyncio.sleep(0)  # each client takes a moment: let other traffic pass
