"""Questions to agents: is what a client subscribes to known across the federation by now?

A client's SUBACK waits for the answer, but not for long, and not at all where no agent answers.
When a client was moved, nobody waits: then the question is put again until the agent says yes, as
long as what the client may have missed in the meantime can still be given to it.

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
"""What was published before everybody knew of a move may still come by itself."""

MOVE_SETTLES_WITHIN: Final = 0.5
"""Part of the time for which publications are remembered; the rest is to give what was missed."""


@dataclass(slots=True)
class _Question:
    """A question that no agent has answered with yes.

    Attributes:
        token: What the client's session calls the question.
        asks_again: Whether it is put again, for the client does not wait for the answer.
    """

    client: ProxiedClient
    token: int
    filters: tuple[str, ...]
    asks_again: bool
    end: asyncio.Handle  # gives up in time
    again: asyncio.Handle | None = None  # puts it again, after the agent has said no

    def cancel(self) -> None:
        """Stop both timers: nobody wants to know any more."""
        self.end.cancel()
        if self.again is not None:
            self.again.cancel()


class Settlings:
    """The questions of one gateway.

    Args:
        settle_s: How long a client waits for a SUBACK,
        recent_s: and for how long publications are remembered.
        first: Number below all; greater at each start, so that no answer of an earlier one counts.
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
        """Whether everybody knows where clients moved, and what was late has had time to come."""
        return not self._moved and monotonic_ms() - self._known_ms >= REST_MS

    def ask(
        self, client: ProxiedClient, token: int, filters: tuple[str, ...], *, client_waits: bool
    ) -> None:
        """Ask the agent of the client's broker; tell ``client`` when ``filters`` are known.

        It is also told when the answer has been waited for long enough.
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
        """Take an agent's answer: the client is told, or the question is put again later.

        It counts when the client is at that agent's ``broker``.
        """
        question = self._questions.get(token)
        if question is None or (at := question.client.broker) is None or at.id != broker:
            return
        if known or not question.asks_again:
            self._end(token, known)
        elif question.again is None:
            loop = asyncio.get_running_loop()
            question.again = loop.call_later(self._settle_s, self._ask_again, token)

    def forget(self, client: ProxiedClient) -> None:
        """Drop the questions of a client that is gone."""
        for number, question in [*self._questions.items()]:
            if question.client is client:
                self._close(number)

    def _ask_again(self, number: int) -> None:
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
    """Ask the agent of the client's broker; tell whether an answer is to be expected."""
    broker = client.broker
    return broker is not None and broker.ask_settled(number, filters)
