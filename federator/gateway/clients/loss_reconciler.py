"""After the death of a broker: make sure that none of our clients missed anything.

Routes around a dead broker take a moment to form, and publications under way at that time may be
stuck in the log of an unreachable agent. So what was acknowledged around the death, to clients of
this gateway and, on request, of the others, is compared with what each of our subscribers got; each
gets the rest.

Source: docs/gateway.md, "What a client missed".
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from federator.config.gateway import BROKERS_MAX
from federator.gateway.brokers import Broker
from federator.gateway.clients.proxied_client import GatewayContext, ProxiedClient
from federator.gateway.session.journal import Publication, told
from federator.protocol.filters import FilterTrie
from federator.protocol.messages.gateways import RECALL_FILTERS_MAX, Recall, Recalled
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.clocks import monotonic_ms

CHECKS_MS: Final = (
    (1, -500, 700, 1_200),
    (1, 701, 1_500, 2_500),
    (1, 1_501, 3_000, 4_000),
    (1, 3_001, 6_000, 7_500),
    (2, -1_500, 3_000, 7_600),
    (1, 6_001, 10_000, 12_000),
    (2, 3_001, 8_000, 12_500),
    (1, 10_001, 16_000, 18_000),
)
"""(QoS, from, to, at): what was published at this QoS and acknowledged between ``from`` and ``to``
is checked at ``at``, in milliseconds from the death. Agents find other routes in half a second,
usually, and forget a dead core after 15 s, at the latest. A later check repeats fewer publications,
but sends them later: preferred at QoS 2."""

REST_POLL_S: Final = 0.05
REST_POLLS: Final = 120
"""How long we wait for clients to move: longer than questions about their subscriptions last."""

ANSWERS_S: Final = 1.0
"""How long to wait for answers of other gateways."""

ANSWER_BYTES_MAX: Final = 4_194_304
PAGE_BYTES_MAX: Final = 262_144
HEARD_MAX: Final = 1_024


class LossReconciler:
    """The checks after the deaths of brokers, of the gateway ``name``.

    Args:
        first: Greater than the number of every earlier question.
        start: Runs a coroutine under a name.
        at_rest: Whether all agents know the moved clients' subscriptions: until then missing
            publications may arrive by themselves.
    """

    def __init__(
        self,
        context: GatewayContext,
        *,
        name: str,
        first: int,
        start: Callable[..., object],
        at_rest: Callable[[], bool],
    ) -> None:
        self._context = context
        self._name = name
        self._number = first
        self._start = start
        self._at_rest = at_rest
        self._deaths: RateLimiter[BrokerId] = RateLimiter(
            gap_ms=Millis(CHECKS_MS[-1][-1]), keys_max=BROKERS_MAX
        )
        self._answers: dict[int, list[bytes]] = {}
        self._seen_questions: dict[tuple[str, int], None] = {}

    def on_death(self, broker: BrokerId) -> None:
        """Check for losses after the death of ``broker``; repeated calls are ignored."""
        now_ms = monotonic_ms()
        if self._deaths.allow(broker, now_ms):
            self._start(self._watch(now_ms), name=f"missed through {broker}")

    def on_recall(self, recall: Recall, broker: Broker) -> None:
        """Answer another gateway's question what our clients published."""
        question = recall.gateway, recall.number
        if recall.gateway == self._name or question in self._seen_questions:
            return
        self._seen_questions[question] = None
        if len(self._seen_questions) > HEARD_MAX:
            del self._seen_questions[next(iter(self._seen_questions))]
        now_ms = monotonic_ms()
        span = Millis(now_ms - recall.oldest_ms), Millis(now_ms - recall.newest_ms)
        for page in _pages(self._context.journal.between(*span), recall.filters):
            broker.answer(recall.gateway, Recalled(self._name, recall.number, tuple(page)))

    def on_recalled(self, answer: Recalled) -> None:
        """Take another gateway's answer to our question."""
        packets = self._answers.get(answer.number)
        if packets is not None and sum(map(len, packets)) < ANSWER_BYTES_MAX:
            packets.extend(answer.packets)

    async def _watch(self, death_ms: Millis) -> None:
        await asyncio.sleep(CHECKS_MS[0][-1] / 1_000)
        for _ in range(REST_POLLS):
            if self._at_rest():
                break
            await asyncio.sleep(REST_POLL_S)
        for qos, from_ms, to_ms, at_ms in CHECKS_MS:
            due_ms = death_ms + at_ms - monotonic_ms()
            await asyncio.sleep(max(0, due_ms) / 1_000)
            span = Millis(death_ms + from_ms), Millis(death_ms + to_ms)
            others = [
                publication
                for publication in await self._request_recall(*span)
                if publication.qos == qos
            ]
            for client in self._context.every:
                client.give_missed(*span, qos=(qos,), others=others)
                await asyncio.sleep(0)  # each client takes a moment: let other traffic pass

    async def _request_recall(self, from_ms: Millis, to_ms: Millis) -> list[Publication]:
        """Ask the other gateways what their clients published."""
        filters = _filters(self._context.every)
        if not filters:
            return []
        self._number += 1
        number, now_ms = self._number, monotonic_ms()
        oldest_ms, newest_ms = max(0, now_ms - from_ms), max(0, now_ms - to_ms)
        recall = Recall(self._name, number, filters, oldest_ms, newest_ms)
        packets = self._answers.setdefault(number, [])
        for broker in self._context.brokers.values():
            if broker.up:
                broker.ask_others(recall)
        await asyncio.sleep(ANSWERS_S)
        del self._answers[number]
        return [publication for p in packets if (publication := told(p, from_ms)) is not None]


def _filters(clients: Iterable[ProxiedClient]) -> tuple[str, ...]:
    """The filters of clients at QoS 1 and 2; everything if they are too many to send."""
    filters = {
        filter
        for client in clients
        for filter, subscription in client.session.subscriptions.granted.items()
        if subscription.granted and not filter.startswith("$share/")
    }
    return tuple(sorted(filters)) if len(filters) <= RECALL_FILTERS_MAX else ("#",)


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
