"""Questions to agents: is a client's subscription known across the federation?

A client's SUBACK waits for the answer, but not for long, and not at all where no agent answers.
When a client was moved, no SUBACK waits: the question is repeated until the agent says yes, as long
as missed publications can still be sent to the client.

Source: docs/gateway.md; docs/protocol.md 14.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from federator.gateway.clients.proxied_client import ProxiedClient
from federator.gateway.metrics import GatewayCounters
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.clocks import monotonic_ms

REST_MS: Final = 1_000
"""Publications before a move was known everywhere may still arrive by themselves."""

MOVE_SETTLES_WITHIN: Final = 0.5
"""Part of the time for which publications are remembered; the rest is for sending missed ones."""


@dataclass(slots=True)
class _Question:
    """A question that no agent has answered with yes.

    Attributes:
        token: The question's id in the client's session.
        asks_again: Whether it is repeated, for the client does not wait for the answer.
    """

    client: ProxiedClient
    token: int
    filters: tuple[str, ...]
    asks_again: bool
    end: asyncio.Handle  # the time limit
    again: asyncio.Handle | None = None  # repeats it, after the agent has said no

    def cancel(self) -> None:
        """Stop both timers."""
        self.end.cancel()
        if self.again is not None:
            self.again.cancel()


class Settlings:
    """The questions of one gateway.

    Args:
        settle_s: How long a client waits for a SUBACK.
        recent_s: How long publications are remembered.
        first: Less than all numbers; grows at each start, so that no earlier answer counts.
    """

    def __init__(
        self, *, settle_s: float, recent_s: float, counters: GatewayCounters, first: int = 0
    ) -> None:
        self._settle_s = settle_s
        self._move_s = max(settle_s, recent_s * MOVE_SETTLES_WITHIN)
        self._counters = counters
        self._number = first
        self._questions: dict[int, _Question] = {}
        self._moved = 0  # questions about clients that moved
        self._known_ms = Millis(-REST_MS)  # when the last of them ended

    @property
    def at_rest(self) -> bool:
        """Whether all moves are known everywhere, and late publications had time to arrive."""
        return not self._moved and monotonic_ms() - self._known_ms >= REST_MS

    def ask(
        self, client: ProxiedClient, token: int, filters: tuple[str, ...], *, client_waits: bool
    ) -> None:
        """Ask the agent of the client's broker whether ``filters`` are known.

        ``client.on_settled`` is called when they are, or at a time limit.
        """
        self._number += 1
        number = self._number
        expected = _put(client, number, filters)
        wait_s = self._move_s
        if client_waits:
            wait_s = self._settle_s if expected else 0.0
        end = asyncio.get_running_loop().call_later(wait_s, self._end, number, False)
        self._questions[number] = _Question(client, token, filters, not client_waits, end)
        self._moved += not client_waits

    def on_answer(self, broker: BrokerId, token: int, known: bool) -> None:
        """Take an agent's answer: report it to the client, or repeat the question later.

        It counts if the client is at that agent's ``broker``.
        """
        question = self._questions.get(token)
        if question is None or (at := question.client.broker) is None or at.id != broker:
            return
        if known or not question.asks_again:
            self._end(token, known)
        elif question.again is None:
            loop = asyncio.get_running_loop()
            question.again = loop.call_later(self._settle_s, self._repeat_question, token)

    def forget(self, client: ProxiedClient) -> None:
        """Drop the questions of a client that is gone."""
        for number, question in [*self._questions.items()]:
            if question.client is client:
                self._close(number)

    def _repeat_question(self, number: int) -> None:
        question = self._questions[number]
        question.again = None
        _put(question.client, number, question.filters)

    def _end(self, number: int, known: bool) -> None:
        question = self._close(number)
        self._counters.settled += known
        self._counters.unsettled += not known
        question.client.on_settled(question.token)

    def _close(self, number: int) -> _Question:
        question = self._questions.pop(number)
        question.cancel()
        if question.asks_again:
            self._moved -= 1
            self._known_ms = monotonic_ms()
        return question


def _put(client: ProxiedClient, number: int, filters: tuple[str, ...]) -> bool:
    """Ask the agent of the client's broker; return whether an answer can be expected."""
    broker = client.broker
    return broker is not None and broker.ask_settled(number, filters)
